//! `Capabilities`: the features of a device.

use core::fmt;

use crate::driver::{DeviceAttribute, Driver, HandleType};
use crate::error::Error;

/// The features of a device, as the driver reports them. Two devices of one machine may differ.
///
/// Prints one line for each feature, for a person to read.
///
/// ```
/// use alluvion::Sim;
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// assert!(device.capabilities()?.memory_pools);
/// print!("{}", device.capabilities()?);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The name of the device.
    pub name: String,
    /// The version of the driver: 13000 is 13.0.
    pub driver_version: u32,
    /// Compute capability, major and minor.
    pub compute: (u32, u32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub total_bytes: usize,
    /// Stream-ordered allocation from memory pools.
    pub memory_pools: bool,
    /// The handle types that pools can export.
    pub pool_handle_types: HandleType,
    /// The driver's pools of managed memory (driver 13.0 and concurrent managed access).
    pub managed_pools: bool,
    /// Managed memory.
    pub managed_memory: bool,
    /// Host and device may touch managed memory at once, and prefetch works.
    pub concurrent_managed_access: bool,
    /// The device reads ordinary host memory (HMM or ATS).
    pub pageable_memory_access: bool,
    /// The device uses the host's page tables (ATS).
    pub uses_host_page_tables: bool,
    /// Reserving addresses and mapping memory behind them.
    pub virtual_memory: bool,
    /// The handle types that mapped pages can be exported as. A slice of a GPU may have some where pools have none.
    pub page_handle_types: HandleType,
    /// Network cards can read and write mapped pages (GPUDirect RDMA).
    pub page_rdma: bool,
    /// Memory can be exported as a dma-buf.
    pub dma_buf: bool,
    /// Other processes can open an event, as they can plain memory.
    pub shared_events: bool,
    /// Ordinary host memory can be pinned.
    pub host_register: bool,
    /// Device and host share one memory.
    pub integrated: bool,
    /// The host's NUMA node nearest to the device.
    pub numa_node: Option<u32>,
}

/// The first driver with pools of managed memory.
const MANAGED_POOLS_SINCE: u32 = 13_000;

impl Capabilities {
    pub(super) fn probe(driver: &dyn Driver, ordinal: u32) -> Result<Self, Error> {
        use DeviceAttribute as A;
        let number = |attribute| driver.attribute(ordinal, attribute);
        let can = |attribute| number(attribute).map(|value| value != 0);
        let driver_version = driver.version();
        let concurrent_managed_access = can(A::ConcurrentManagedAccess)?;
        let memory_pools = can(A::MemoryPools)?;
        let virtual_memory = can(A::VirtualMemory)?;
        let page_types = [
            (A::MemoryDescriptors, HandleType::POSIX_FILE_DESCRIPTOR),
            (A::MemoryFabricHandles, HandleType::FABRIC),
        ];
        let mut page_handle_types = HandleType::NONE;
        for (attribute, handle_type) in page_types {
            if virtual_memory && can(attribute)? {
                page_handle_types = page_handle_types.with(handle_type);
            }
        }
        Ok(Self {
            name: driver.device_name(ordinal)?,
            driver_version,
            compute: (number(A::ComputeMajor)? as u32, number(A::ComputeMinor)? as u32),
            multiprocessors: number(A::Multiprocessors)? as u32,
            total_bytes: driver.memory_info(ordinal)?.total_bytes,
            memory_pools,
            pool_handle_types: HandleType(number(A::PoolHandleTypes)? as u32),
            managed_pools: memory_pools && concurrent_managed_access && driver_version >= MANAGED_POOLS_SINCE,
            managed_memory: can(A::ManagedMemory)?,
            concurrent_managed_access,
            pageable_memory_access: can(A::PageableMemoryAccess)?,
            uses_host_page_tables: can(A::PageableUsesHostPageTables)?,
            virtual_memory,
            page_handle_types,
            page_rdma: virtual_memory && can(A::PageRdma)?,
            dma_buf: can(A::DmaBuf)?,
            shared_events: can(A::SharedEvents)?,
            host_register: can(A::HostRegister)?,
            integrated: can(A::Integrated)?,
            numa_node: u32::try_from(number(A::HostNumaNode)?).ok(),
        })
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes_no = |can: bool| if can { "yes" } else { "no" };
        let (major, minor) = (self.driver_version / 1000, self.driver_version % 1000 / 10);
        writeln!(f, "{}, compute {}.{}, driver {major}.{minor}", self.name, self.compute.0, self.compute.1)?;
        writeln!(f, "  memory                     {} MiB", self.total_bytes >> 20)?;
        writeln!(f, "  multiprocessors            {}", self.multiprocessors)?;
        for (name, can) in [
            ("memory pools", self.memory_pools),
            ("managed pools", self.managed_pools),
            ("managed memory", self.managed_memory),
            ("concurrent managed access", self.concurrent_managed_access),
            ("pageable memory access", self.pageable_memory_access),
            ("host page tables", self.uses_host_page_tables),
            ("virtual memory", self.virtual_memory),
            ("pages for RDMA", self.page_rdma),
            ("export as a dma-buf", self.dma_buf),
            ("shared events", self.shared_events),
            ("host registration", self.host_register),
            ("integrated", self.integrated),
        ] {
            writeln!(f, "  {name:<26} {}", yes_no(can))?;
        }
        writeln!(f, "  pool export                {}", self.pool_handle_types)?;
        writeln!(f, "  page export                {}", self.page_handle_types)?;
        match self.numa_node {
            Some(node) => writeln!(f, "  NUMA node                  {node}"),
            None => writeln!(f, "  NUMA node                  unknown"),
        }
    }
}

impl fmt::Display for HandleType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::POSIX_FILE_DESCRIPTOR, "file descriptor"),
            (Self::WIN32, "win32"),
            (Self::WIN32_KMT, "win32 kmt"),
            (Self::FABRIC, "fabric"),
        ];
        let mut first = true;
        for (_, name) in names.into_iter().filter(|(bit, _)| self.contains(*bit)) {
            write!(f, "{}{name}", if first { "" } else { ", " })?;
            first = false;
        }
        if first { f.write_str("none") } else { Ok(()) }
    }
}
