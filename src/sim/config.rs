//! `SimConfig`: the configuration of a simulated machine.

use super::CostModel;
use crate::driver::DeviceAttribute;

/// The configuration of a simulated machine: devices, memory, a seed. Set by chaining.
///
/// ```
/// use alluvion::driver::Driver;
/// use alluvion::sim::{SimConfig, SimDriver};
///
/// let driver = SimDriver::new(SimConfig::default().devices(2).memory_bytes(64 << 20).seed(7));
/// assert_eq!(driver.device_count(), Ok(2));
/// assert_eq!(driver.memory_info(1).unwrap().free_bytes, 64 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct SimConfig {
    pub(super) devices: u32,
    pub(super) memory_bytes: usize,
    pub(super) pinned_bytes: usize,
    pub(super) seed: u64,
    pub(super) version: u32,
    pub(super) panics_on_unseen_hazards: bool,
    pub(super) cost: CostModel,
    pub(super) streams_keep_up: bool,
    pub(super) peers: bool,
    pub(super) has_aliases: bool,
    pub(super) is_announced: bool,
    pub(super) watches_blocks: bool,
    /// The device, or `None` for all of them; the attribute; its value.
    pub(super) attributes: Vec<(Option<u32>, DeviceAttribute, i32)>,
}

impl Default for SimConfig {
    /// One device with 256 MiB, no limit on pinned memory, seed 0, driver 13.0, calls that cost nothing, and a panic if hazards
    /// are not read.
    fn default() -> Self {
        Self {
            devices: 1,
            memory_bytes: 256 << 20,
            pinned_bytes: usize::MAX,
            seed: 0,
            version: 13_000,
            panics_on_unseen_hazards: true,
            cost: CostModel::free(),
            streams_keep_up: false,
            peers: true,
            has_aliases: true,
            is_announced: false,
            watches_blocks: true,
            attributes: Vec::new(),
        }
    }
}

impl SimConfig {
    /// The number of devices; 0 is allowed.
    #[must_use]
    pub const fn devices(mut self, devices: u32) -> Self {
        self.devices = devices;
        self
    }

    /// Memory of each device. Costs nothing until it is touched.
    #[must_use]
    pub const fn memory_bytes(mut self, bytes: usize) -> Self {
        self.memory_bytes = bytes;
        self
    }

    /// The most host memory that may be pinned, registered or managed at once.
    #[must_use]
    pub const fn pinned_bytes(mut self, bytes: usize) -> Self {
        self.pinned_bytes = bytes;
        self
    }

    /// Decides every choice that is random on hardware, and the junk in fresh memory.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The driver version, numbered as CUDA does: 12020 is 12.2. Older drivers lack the same features as CUDA's.
    #[must_use]
    pub const fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Whether dropping a [`Sim`](crate::Sim) panics if there are hazards that the test has not read. Default: it does. Switch it
    /// off for a program that makes mistakes on purpose and does not check for them.
    ///
    /// ```
    /// use alluvion::Sim;
    /// use alluvion::sim::SimConfig;
    ///
    /// let sim = Sim::with_config(SimConfig::default().panic_on_unseen_hazards(false));
    /// drop(sim); // Never panics.
    /// ```
    #[must_use]
    pub const fn panic_on_unseen_hazards(mut self, panics: bool) -> Self {
        self.panics_on_unseen_hazards = panics;
        self
    }

    /// The cost that each call adds to [`SimDriver::clock_ns`](super::SimDriver::clock_ns).
    #[must_use]
    pub fn cost(mut self, cost: CostModel) -> Self {
        self.cost = cost;
        self
    }

    /// Whether all work that could run has run when a pool of the driver is asked for memory. Default: work waits as long as it may,
    /// which finds missing waits. With streams that keep up, a pool of the driver holds what one on hardware holds under a program
    /// that queues no long work: frees of other streams are over when their memory is looked for.
    ///
    /// ```
    /// use alluvion::source::CudaAsync;
    /// use alluvion::sim::SimConfig;
    /// use alluvion::{Layout, Resource, Sim};
    ///
    /// let sim = Sim::with_config(SimConfig::default().streams_keep_up(true));
    /// let (device, layout) = (sim.device(0), Layout::from_bytes(20 << 20)?);
    /// let (pool, first, second) = (CudaAsync::new(&device)?, device.stream()?, device.stream()?);
    /// let block = pool.allocate(layout, first.as_ref())?;
    /// // SAFETY: the block came from this pool with this layout, and nothing uses it.
    /// unsafe { pool.deallocate(block, layout, first.as_ref()) };
    /// let again = pool.allocate(layout, second.as_ref())?;
    /// assert_eq!(again, block);
    /// # unsafe { pool.deallocate(again, layout, second.as_ref()) };
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub const fn streams_keep_up(mut self, keep_up: bool) -> Self {
        self.streams_keep_up = keep_up;
        self
    }

    /// Whether the devices can reach each other's memory. Default: each reaches every other one.
    ///
    /// ```
    /// use alluvion::driver::Driver;
    /// use alluvion::sim::{SimConfig, SimDriver};
    ///
    /// let driver = SimDriver::new(SimConfig::default().devices(2).peers(false));
    /// assert_eq!(driver.sharing().unwrap().can_reach(0, 1), Ok(false));
    /// ```
    #[must_use]
    pub const fn peers(mut self, peers: bool) -> Self {
        self.peers = peers;
        self
    }

    /// Whether memory may be mapped at several addresses at once. Default: it may, as with CUDA.
    ///
    /// ```
    /// use alluvion::driver::Driver;
    /// use alluvion::sim::{SimConfig, SimDriver};
    ///
    /// assert!(SimDriver::new(SimConfig::default()).may_alias());
    /// assert!(!SimDriver::new(SimConfig::default().aliases(false)).may_alias());
    /// ```
    #[must_use]
    pub const fn aliases(mut self, aliases: bool) -> Self {
        self.has_aliases = aliases;
        self
    }

    /// Whether a tool that watches the process hears of memory of this machine, through NVTX, as of that of a GPU. Default: it does not.
    /// `compute-sanitizer` knows no memory but a driver's, and counts a heap elsewhere as an error of the program; and two machines have
    /// the same addresses. It is for a test of a tool of your own.
    ///
    /// ```
    /// use alluvion::driver::Driver;
    /// use alluvion::sim::{SimConfig, SimDriver};
    ///
    /// for announced in [false, true] {
    ///     let driver = SimDriver::new(SimConfig::default().announced(announced));
    ///     let address = driver.allocate_device(0, 4096)?;
    ///     assert_eq!(driver.plain_allocation(address)?.is_some(), announced);
    ///     # unsafe { driver.free_device(0, address) }?;
    /// }
    /// # Ok::<(), alluvion::driver::DriverError>(())
    /// ```
    #[must_use]
    pub const fn announced(mut self, announced: bool) -> Self {
        self.is_announced = announced;
        self
    }

    /// Whether layers tell the machine of the blocks that they carve. Default: they do, so a use after free, a use beyond the end and a
    /// wrong free are found inside of pools, arenas, bins, fixed sizes and guards too, and frees are
    /// [checked](crate::Machine::check_frees). It takes under a microsecond for each block. Switch it off where time is measured.
    ///
    /// ```
    /// use alluvion::Sim;
    /// use alluvion::sim::SimConfig;
    ///
    /// let sim = Sim::with_config(SimConfig::default().watch_blocks(false));
    /// assert_eq!(sim.machine().checks_frees(), cfg!(debug_assertions));
    /// ```
    #[must_use]
    pub const fn watch_blocks(mut self, watches: bool) -> Self {
        self.watches_blocks = watches;
        self
    }

    /// Returns `true` if device `ordinal` can reach memory of device `peer`, another one.
    pub(super) const fn reaches(&self, ordinal: u32, peer: u32) -> bool {
        self.peers && ordinal != peer && ordinal < self.devices && peer < self.devices
    }

    /// Overrides an attribute of every device; calls of a feature that it switches off fail with the driver's own code.
    #[must_use]
    pub fn attribute(mut self, attribute: DeviceAttribute, value: i32) -> Self {
        self.attributes.push((None, attribute, value));
        self
    }

    /// Overrides an attribute of one device, so that two devices of the machine differ.
    #[must_use]
    pub fn attribute_of_device(mut self, ordinal: u32, attribute: DeviceAttribute, value: i32) -> Self {
        self.attributes.push((Some(ordinal), attribute, value));
        self
    }

    /// The attribute of a device: the last override, otherwise that of an H200.
    pub(super) fn attribute_of(&self, ordinal: u32, attribute: DeviceAttribute) -> i32 {
        use DeviceAttribute as A;
        let is_meant =
            |&(of, which, _): &(Option<u32>, _, _)| which == attribute && of.is_none_or(|of| of == ordinal);
        if let Some(&(.., value)) = self.attributes.iter().rev().find(|entry| is_meant(entry)) {
            return value;
        }
        match attribute {
            A::ComputeMajor => 9,
            A::Multiprocessors => 132,
            A::MemoryPools
            | A::ManagedMemory
            | A::ConcurrentManagedAccess
            | A::VirtualMemory
            | A::UnifiedAddressing
            | A::MapHostMemory
            | A::HostRegister
            | A::PoolHandleTypes
            | A::PageRdma
            | A::DmaBuf
            | A::SharedEvents => 1,
            // Pages go out as pools do, unless it is said otherwise.
            A::MemoryDescriptors => self.attribute_of(ordinal, A::PoolHandleTypes) & 1,
            A::MemoryFabricHandles => (self.attribute_of(ordinal, A::PoolHandleTypes) & 8) >> 3,
            A::PciBus => i32::try_from(ordinal).unwrap_or(i32::MAX - 1) + 1,
            A::ComputeMinor
            | A::PageableMemoryAccess
            | A::PageableUsesHostPageTables
            | A::Integrated
            | A::HostNumaNode
            | A::PciDomain
            | A::PciDevice => 0,
        }
    }
}
