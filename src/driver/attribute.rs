//! The properties of devices, pools and allocations, under names of this crate rather than of a vendor's header.

use super::RawGraph;

/// A property of a device that the driver can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DeviceAttribute {
    /// Major part of the compute capability.
    ComputeMajor,
    /// Minor part of the compute capability.
    ComputeMinor,
    /// Number of multiprocessors.
    Multiprocessors,
    /// 1 if `cuMemAllocAsync` and memory pools exist.
    MemoryPools,
    /// 1 if managed memory exists.
    ManagedMemory,
    /// 1 if host and device may touch managed memory at once, and prefetch works.
    ConcurrentManagedAccess,
    /// 1 if the device can read ordinary host memory (HMM or ATS).
    PageableMemoryAccess,
    /// 1 if the device uses the host's page tables (ATS).
    PageableUsesHostPageTables,
    /// 1 if the virtual-memory calls exist.
    VirtualMemory,
    /// 1 if physical memory can be exported as file descriptors.
    MemoryDescriptors,
    /// 1 if physical memory can be exported as fabric handles.
    MemoryFabricHandles,
    /// 1 if physical memory can be made for network cards to read and write (GPUDirect RDMA).
    PageRdma,
    /// 1 if memory of the device can be exported as a dma-buf.
    DmaBuf,
    /// 1 if pinned host memory has the same address on the device.
    UnifiedAddressing,
    /// 1 if host memory can be mapped into the device.
    MapHostMemory,
    /// 1 if device and host share one memory.
    Integrated,
    /// 1 if ordinary host memory can be registered.
    HostRegister,
    /// Bit set of [`HandleType`] that memory pools can export.
    PoolHandleTypes,
    /// 1 if other processes can open an event.
    SharedEvents,
    /// NUMA node of the host nearest to the device, or -1.
    HostNumaNode,
    /// PCI domain number.
    PciDomain,
    /// PCI bus number.
    PciBus,
    /// PCI device number.
    PciDevice,
}

macro_rules! attribute_numbers {
    ($($name:ident = $number:literal;)+) => {
        impl DeviceAttribute {
            /// Every attribute, in the order of CUDA's numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The number of the attribute in CUDA, as [`Driver::attribute_by_number`](super::Driver::attribute_by_number) takes it.
            #[must_use]
            pub const fn number(self) -> i32 {
                match self { $(Self::$name => $number),+ }
            }
        }
    };
}

attribute_numbers! {
    Multiprocessors = 16;
    Integrated = 18;
    MapHostMemory = 19;
    PciBus = 33;
    PciDevice = 34;
    UnifiedAddressing = 41;
    PciDomain = 50;
    ComputeMajor = 75;
    ComputeMinor = 76;
    ManagedMemory = 83;
    PageableMemoryAccess = 88;
    ConcurrentManagedAccess = 89;
    HostRegister = 99;
    PageableUsesHostPageTables = 100;
    VirtualMemory = 102;
    MemoryDescriptors = 103;
    PageRdma = 110;
    MemoryPools = 115;
    PoolHandleTypes = 119;
    DmaBuf = 124;
    SharedEvents = 125;
    MemoryFabricHandles = 128;
    HostNumaNode = 134;
}

/// How a pool's or a physical allocation's memory may be exported to another process. Bits may be combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HandleType(pub u32);

impl HandleType {
    /// No export.
    pub const NONE: Self = Self(0);
    /// A POSIX file descriptor.
    pub const POSIX_FILE_DESCRIPTOR: Self = Self(1);
    /// A Windows NT handle.
    pub const WIN32: Self = Self(2);
    /// A Windows D3DKMT handle.
    pub const WIN32_KMT: Self = Self(4);
    /// A fabric handle, across nodes.
    pub const FABRIC: Self = Self(8);

    /// Both sets of bits.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns `true` if every bit of `other` is in `self`.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The kind of memory of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolKind {
    /// Memory of the device.
    #[default]
    Device,
    /// Managed memory, migrating between host and device.
    Managed,
}

/// How to make a memory pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PoolProperties {
    /// The handle types that the pool's memory can be exported as.
    pub handle_types: HandleType,
    /// The most bytes that the pool may hold; 0 for no limit.
    pub max_bytes: u64,
}

/// A property of a memory pool. The `Reuse*` ones are 0 or 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum PoolAttribute {
    /// May reuse memory freed on another stream that the allocating stream already waited for.
    ReuseFollowEventDependencies,
    /// May reuse memory freed on another stream when that free has completed.
    ReuseAllowOpportunistic,
    /// May insert a wait between streams in order to reuse.
    ReuseAllowInternalDependencies,
    /// Bytes that a synchronisation leaves in the pool.
    ReleaseThreshold,
    /// Bytes that the pool holds now (read only).
    ReservedCurrent,
    /// The most bytes that the pool has held; may be set to 0 only.
    ReservedHigh,
    /// Bytes handed out now (read only).
    UsedCurrent,
    /// The most bytes handed out; may be set to 0 only.
    UsedHigh,
}

/// How pinned host memory is to be made or registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PinnedFlags {
    /// Pinned for every context of the process, not only the current one.
    pub portable: bool,
    /// Mapped into the device's address space.
    pub mapped: bool,
    /// Uncached on the host: fast to write in order, very slow to read. Never the default.
    pub write_combined: bool,
}

impl Default for PinnedFlags {
    fn default() -> Self {
        Self { portable: true, mapped: true, write_combined: false }
    }
}

/// How a stream is to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamFlags {
    /// Ordered with the legacy default stream, as CUDA's `CU_STREAM_DEFAULT`. Off by default.
    pub blocking: bool,
    /// Lower numbers go first; the driver clamps it to its range.
    pub priority: i32,
}

/// Whether a stream records work into a graph instead of running it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaptureStatus {
    /// Work runs: no capture.
    None,
    /// Work is recorded.
    Active,
    /// An illegal call broke the capture; it must be ended.
    Invalidated,
}

/// A capture that a stream takes part in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CaptureId {
    /// The number of the capture, never used twice while the process lives. Streams that have joined the capture have it too.
    pub number: u64,
    /// The graph that is being recorded: the one that the end of the capture returns.
    pub graph: RawGraph,
}

/// Which calls a capture forbids on the calling thread, as `CUstreamCaptureMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CaptureMode {
    /// Potentially unsafe calls are forbidden while any thread captures in this mode. A thread starts with this one.
    #[default]
    Global,
    /// Forbidden while this thread captures.
    ThreadLocal,
    /// Never forbidden.
    Relaxed,
}

/// A place where managed or physical memory can live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// The device with this ordinal.
    Device(u32),
    /// The host, wherever it likes.
    Host,
    /// One NUMA node of the host.
    HostNuma(u32),
}

/// Advice on how managed or system memory will be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// Mostly read: keep copies in several places.
    ReadMostly(bool),
    /// The preferred location of the memory; `None` takes it back.
    PreferredLocation(Option<Location>),
    /// The device or host that will access the memory; `true` sets, `false` takes back.
    AccessedBy(Location, bool),
}

/// The value that a fill repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FillValue {
    /// One byte.
    U8(u8),
    /// Two bytes, in the machine's order; the address must be aligned to 2.
    U16(u16),
    /// Four bytes; the address must be aligned to 4.
    U32(u32),
}

impl FillValue {
    /// Bytes in one repetition.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) => 4,
        }
    }
}

/// The accesses that are allowed to mapped virtual memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapAccess {
    /// No access.
    None,
    /// Reads.
    Read,
    /// Reads and writes.
    ReadWrite,
}

/// Free and total bytes of a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemoryInfo {
    /// The free bytes.
    pub free_bytes: usize,
    /// All bytes.
    pub total_bytes: usize,
}
