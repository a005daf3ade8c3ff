//! `Pinned`: memory of the host that the device reaches.

#![expect(unsafe_code, reason = "pins and frees memory")]

mod config;
pub(super) mod host_memory;
#[cfg(unix)]
mod mapping;
#[cfg(not(unix))]
#[path = "unmapped.rs"]
mod mapping;

pub use config::{NumaPolicy, PinnedConfig};

use core::fmt;
use core::mem::ManuallyDrop;
use core::num::NonZero;
use core::ptr::NonNull;

use super::refusal;
use crate::blocks::BlockTable;
use crate::device::Device;
use crate::driver::{DeviceAttribute, Driver, MemoryInfo, PinnedFlags, RelaxedCapture};
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    DeviceAccessible, DevicePtr, HostAccessible, Layer, LayerBook, Layout, Resource, ResourceId,
};
use crate::stream::StreamRef;
use crate::sync::Arc;
use mapping::Mapping;

/// Page-locked memory of the host, at one address for the host and for every device: the device reads and writes it directly, so
/// copies run beside other work.
///
/// Small blocks come from the driver (`cuMemHostAlloc`), at 0.5 ms for an allocation and its free, at any size. Large ones, from
/// [`PinnedConfig::huge_bytes`] up, are mapped in huge pages near the device, touched by several threads and registered: 143 ms
/// for 4 GiB on an H200 host, where the driver took 1,187 ms. If that is not possible, they come from the driver. Blocks are
/// rounded up to whole pages at most.
///
/// Clones are the same source: they free each other's blocks. Put a pool over it for frequent allocations.
///
/// # Stream ordering
///
/// The stream is checked and not used to allocate: a block may be used by any stream, and by the host, as soon as it is allocated.
/// [`deallocate`](Resource::deallocate) waits, on the host, for the work of its stream: the device may be reading the block until
/// then. The driver's own free waits for all work of the device. A block that is freed on a stream that captures a graph is
/// leaked, because the end of the graph's work cannot be known.
///
/// # Thread safety
///
/// Any thread may call it. A large allocation starts up to [`PinnedConfig::threads`] threads, and joins them before it returns.
///
/// # Examples
///
/// ```
/// use alluvion::{Layout, Resource, Sim, source::Pinned};
///
/// let sim = Sim::new();
/// let resource = Pinned::new(&sim.device(0))?;
/// let layout = Layout::new(1000, 2 << 20)?;
/// let block = resource.allocate_sync(layout)?;
/// assert!(block.is_aligned_to(2 << 20));
/// // SAFETY: `block` came from this resource with this layout, and nothing uses it.
/// unsafe { resource.deallocate_sync(block, layout) };
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Pinned {
    core: Arc<PinnedCore>,
}

struct PinnedCore {
    device: Device,
    config: PinnedConfig,
    /// The NUMA node that `config` selects on this device.
    node: Option<u32>,
    /// Whether the device can pin memory that the driver did not allocate.
    registers: bool,
    id: ResourceId,
    /// The origins of the blocks that the driver cannot free by their own address, by that address.
    origins: BlockTable<PinnedOrigin>,
}

/// How a block was made, unless the driver made it at its own address.
enum PinnedOrigin {
    /// Mapped and registered. Not unmapped when dropped, because the device may access it.
    Mapped(ManuallyDrop<Mapping>),
    /// A larger block of the driver at this address: the block starts at an aligned address inside.
    Padded(u64),
}

static_assertions::assert_impl_all!(Pinned: Send, Sync, Clone, DeviceAccessible, HostAccessible);

/// The alignment of the driver's blocks.
const DRIVER_ALIGN: usize = 4096;

/// The largest page of x86-64; no use for more is known.
const MAX_ALIGN: usize = 1 << 30;

impl Pinned {
    pub(crate) const CARD: Card = Card {
        name: "pinned",
        about: "Page-locked memory of the host that the device reaches.",
        parameters: &[
            Parameter::new("portable", ArgumentKind::Flag, "page-locked for every device; true if left out"),
            Parameter::new(
                "numa",
                ArgumentKind::WordOrCount(&["near", "anywhere"]),
                "near the device, anywhere, or the number of a node; near if left out",
            ),
            Parameter::new(
                "huge",
                ArgumentKind::Size,
                "blocks from this size on are in huge pages; 2MiB if left out",
            ),
            Parameter::new(
                "threads",
                ArgumentKind::Count,
                "how many threads at most touch the pages of a new block; 8 if left out",
            ),
            Parameter::GPU,
        ],
    };
}

impl Pinned {
    /// Pinned memory near `device`, with the default configuration.
    ///
    /// # Errors
    ///
    /// `Unsupported` if host and device have no common addresses; as the driver says.
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::with_config(device, PinnedConfig::default())
    }

    /// Pinned memory with that configuration.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_config(device: &Device, config: PinnedConfig) -> Result<Self, Error> {
        if device.driver().attribute(device.ordinal(), DeviceAttribute::UnifiedAddressing)? == 0 {
            return Err(Error::unsupported(
                "pinned memory",
                "host and device have no common addresses",
                "copy from ordinary memory",
            ));
        }
        let capabilities = device.capabilities()?;
        let node = match config.numa {
            NumaPolicy::NearDevice => capabilities.numa_node,
            NumaPolicy::Node(node) => Some(node),
            NumaPolicy::Anywhere => None,
        };
        let core = PinnedCore {
            device: device.clone(),
            config,
            node,
            registers: capabilities.host_register,
            id: ResourceId::unique(),
            origins: BlockTable::default(),
        };
        Ok(Self { core: Arc::new(core) })
    }

    /// The configuration.
    pub fn config(&self) -> PinnedConfig {
        self.core.config
    }
}

impl PinnedCore {
    fn flags(&self) -> PinnedFlags {
        PinnedFlags { portable: self.config.portable, mapped: true, write_combined: false }
    }

    /// Relaxes the capture mode for a free. The inner value is `None` if the driver refuses that, and the block is freed all the
    /// same. The outer one is `None` if the driver has shut down, and in a child of the process that the block belongs to.
    fn relax_to_free<'d>(&self, driver: &'d dyn Driver) -> Option<Option<RelaxedCapture<'d>>> {
        if self.origins.is_forked_child() {
            return None;
        }
        match RelaxedCapture::enter(driver) {
            Ok(relaxed) => Some(Some(relaxed)),
            Err(error) if error.code.is_shut_down() => None,
            Err(_) => Some(None),
        }
    }

    /// Whether the block may have a recorded origin. The layout alone decides, so small blocks need no look-up.
    fn may_have_origin(&self, layout: Layout) -> bool {
        layout.align() > DRIVER_ALIGN || layout.bytes() >= self.config.huge_bytes
    }

    fn allocate(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(MAX_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        self.origins.require_same_process()?;
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::enter(driver)?;
        if self.may_have_origin(layout)
            && self.registers
            && let Some(mapping) = self.map(layout)
            && let Some(block) = self.register(driver, mapping)?
        {
            return Ok(block);
        }
        self.allocate_by_driver(driver, layout)
    }

    /// Maps memory near the device and makes it present; `None` if the host has too little.
    fn map(&self, layout: Layout) -> Option<Mapping> {
        // If the host has too little, the driver returns an error, while touching the pages would end the process.
        if host_memory::host_memory().is_some_and(|host| host.free_bytes < layout.bytes()) {
            return None;
        }
        let mapping = Mapping::new(layout.bytes(), layout.align())?;
        mapping.prefer_huge_pages();
        if let Some(node) = self.node {
            mapping.prefer_node(node);
        }
        mapping.populate(self.config.threads).then_some(mapping)
    }

    /// Pins a mapping; `None` if the driver refuses.
    fn register(&self, driver: &dyn Driver, mapping: Mapping) -> Result<Option<DevicePtr>, Error> {
        let (ordinal, start) = (self.device.ordinal(), mapping.start());
        // SAFETY: the mapping is whole pages; `free_block` unmaps it after `unregister_host` only, and the record of it
        // forgets it rather than unmap it.
        let registered = unsafe { driver.register_host(ordinal, start, mapping.bytes(), self.flags()) };
        if let Err(error) = registered {
            let error = Error::of_driver(error, mapping.bytes());
            return if error.is_final() { Err(error) } else { Ok(None) };
        }
        let origin = PinnedOrigin::Mapped(ManuallyDrop::new(mapping));
        Ok(self.record(driver, start.as_ptr().expose_provenance() as u64, origin))
    }

    /// A block of `cuMemHostAlloc`, or an aligned address inside of a larger one.
    fn allocate_by_driver(&self, driver: &dyn Driver, layout: Layout) -> Result<DevicePtr, Error> {
        // A `Layout` does not overflow when rounded up to its alignment, so this sum does not.
        let padding = layout.align().saturating_sub(DRIVER_ALIGN);
        let bytes = layout.bytes() + padding;
        let start = driver
            .allocate_pinned(self.device.ordinal(), bytes, self.flags())
            .map_err(|error| refusal::failed("Pinned", &self.device, layout, error, host_memory::of_host))?;
        let refused = || refusal::refused("Pinned", &self.device, layout, host_memory::of_host);
        let start = start.as_ptr().expose_provenance() as u64;
        let block = start.next_multiple_of(layout.align() as u64);
        if block == start {
            return DevicePtr::new(start).ok_or_else(refused);
        }
        self.record(driver, block, PinnedOrigin::Padded(start)).ok_or_else(refused)
    }

    /// Records the origin of a block. If there is no memory for the record, frees the block and returns `None`.
    fn record(&self, driver: &dyn Driver, block: u64, origin: PinnedOrigin) -> Option<DevicePtr> {
        let at = DevicePtr::new(block)?;
        let Err(origin) = self.origins.try_insert(at, origin) else { return Some(at) };
        // SAFETY: the block was not handed out, and it is not on record.
        unsafe { self.free_block(driver, block, Some(origin)) };
        None
    }

    /// Removes the record of a block, before its address can be reused.
    fn forget(&self, block: DevicePtr, layout: Layout) -> Option<PinnedOrigin> {
        if self.may_have_origin(layout) { self.origins.take(block) } else { None }
    }

    /// Frees a block by its origin. A block that the driver refuses is leaked.
    ///
    /// # Safety
    ///
    /// The block was made by this core, as `origin` says, and is off the record. The host does not use it again. The device does
    /// not use a mapped one again; for the driver's own blocks, the driver waits for the device before it frees them.
    unsafe fn free_block(&self, driver: &dyn Driver, block: u64, origin: Option<PinnedOrigin>) {
        let ordinal = self.device.ordinal();
        let start = match origin {
            None => block,
            Some(PinnedOrigin::Padded(start)) => start,
            Some(PinnedOrigin::Mapped(mapping)) => {
                // SAFETY: `register` registered it, and no work that touches it is left, as the caller promises.
                let unregistered = unsafe { driver.unregister_host(ordinal, mapping.start()) };
                // Pages that are still registered stay mapped for ever: the device could access them.
                if unregistered.is_ok() {
                    ManuallyDrop::into_inner(mapping).unmap();
                }
                return;
            }
        };
        let Some(start) = NonZero::new(start as usize) else { return };
        // SAFETY: the address came from `allocate_pinned` of this device, whose provenance was exposed, and the caller does
        // not use it again. A failure means that the context is lost, and the block with it.
        let _ = unsafe { driver.free_pinned(ordinal, NonNull::with_exposed_provenance(start)) };
    }
}

// SAFETY: the driver hands out memory that overlaps no other live memory, and so does the kernel of the host; both in whole pages,
// and the code above adds larger alignments. Blocks are recorded in the core, which every clone shares and whose number is the id;
// for a layout without a record, the block is the driver's. Dropping the core drops the records, and frees no block. Nothing
// unwinds: `populate` joins threads that do not.
unsafe impl Resource for Pinned {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.core.device.require(stream.device())?;
        self.core.allocate(layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        let driver = &**self.core.device.driver();
        let Some(_relaxed) = self.core.relax_to_free(driver) else { return };
        // Work recorded in a graph may run at any time, and a wait for a stream that captures would break the capture.
        let captures = stream.is_capturing();
        if matches!(captures, Ok(true)) {
            return;
        }
        let origin = self.core.forget(block, layout);
        // The driver itself waits before it frees its own blocks: 100 ms behind a task of 100 ms. No document says that it waits
        // before it unregisters. If the wait here fails, the device may still use the pages, and they are leaked.
        if matches!(origin, Some(PinnedOrigin::Mapped(_)))
            && (captures.is_err() || stream.synchronize().is_err())
        {
            return;
        }
        // SAFETY: the block is live and came from this core with this layout, as the caller promises; `forget` took its
        // record away. Its uses come before this point of the stream: for a mapped one they were waited for, and for the
        // others the driver waits.
        unsafe { self.core.free_block(driver, block.address(), origin) };
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.core.allocate(layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if layout.is_empty() {
            return;
        }
        let driver = &**self.core.device.driver();
        let Some(_relaxed) = self.core.relax_to_free(driver) else { return };
        let origin = self.core.forget(block, layout);
        // SAFETY: the block is live, came from this core with this layout, and every use is over, as the caller promises;
        // `forget` took its record away.
        unsafe { self.core.free_block(driver, block.address(), origin) };
    }

    fn device(&self) -> &Device {
        &self.core.device
    }

    fn id(&self) -> ResourceId {
        self.core.id
    }

    fn host_access(&self) -> bool {
        true
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({})", self.core.device)
    }

    fn max_align(&self) -> usize {
        MAX_ALIGN
    }

    /// The memory of the host, as far as this process may use it.
    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        host_memory::of_host()
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }
}

// SAFETY: the flags say mapped, host and device have common addresses (`with_config` checked), and the driver refuses to pin where
// they would differ for the block at hand.
unsafe impl DeviceAccessible for Pinned {}
// SAFETY: the blocks are ordinary, cached memory of the host, readable and writable, and the code that makes a block exposes its provenance.
unsafe impl HostAccessible for Pinned {}

impl Layer for Pinned {
    type Book = Self;
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
