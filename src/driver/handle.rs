//! What a driver hands out: plain numbers, each with its own type so that they cannot be mixed up.
//!
//! A raw handle owns nothing. Who creates one through [`Driver`](super::Driver) destroys it once.

macro_rules! raw_handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);
    };
}

raw_handle! {
    /// A stream, as `CUstream`. Values 1 and 2 name the legacy and the per-thread default stream, as in CUDA.
    RawStream
}
raw_handle! {
    /// An event, as `CUevent`.
    RawEvent
}
raw_handle! {
    /// A memory pool, as `CUmemoryPool`.
    RawPool
}
raw_handle! {
    /// Physical memory without an address, as `CUmemGenericAllocationHandle`.
    RawMemory
}
raw_handle! {
    /// Work that a capture recorded, as `CUgraph`.
    RawGraph
}

/// Physical memory as another process can be given it.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportedMemory {
    /// A file descriptor, to be sent through a socket. The memory lives for as long as any copy of it is open.
    #[cfg(unix)]
    FileDescriptor(std::os::fd::OwnedFd),
    /// A fabric handle, to be sent as it is, to other nodes too. It keeps nothing alive.
    Fabric(Box<[u8; 64]>),
}

impl RawStream {
    /// The legacy default stream: every blocking stream of its device waits for it and it for them.
    pub const LEGACY: Self = Self(1);
    /// The default stream of whichever thread makes the call.
    pub const PER_THREAD: Self = Self(2);
}
