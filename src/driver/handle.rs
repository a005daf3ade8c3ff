//! The handles of a driver: plain numbers, each with its own type so that they cannot be confused.
//!
//! A raw handle owns nothing. The code that creates one through [`Driver`](super::Driver) destroys it once.

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

/// Physical memory in a form that another process can import.
#[derive(Debug)]
#[non_exhaustive]
pub enum ExportedMemory {
    /// A file descriptor, to be sent through a socket. The memory lives for as long as any copy of it is open.
    #[cfg(unix)]
    FileDescriptor(std::os::fd::OwnedFd),
    /// A fabric handle, to be sent as it is, to other nodes too. It does not keep the memory alive.
    Fabric(Box<[u8; 64]>),
}

impl RawStream {
    /// Returns `true` for null and for the two values that name a default stream. Such a value is no stream of its own.
    #[must_use]
    pub const fn is_default(self) -> bool {
        self.0 <= Self::PER_THREAD.0
    }

    /// The legacy default stream: every blocking stream of its device waits for it and it for them.
    pub const LEGACY: Self = Self(1);
    /// The default stream of the thread that makes the call.
    pub const PER_THREAD: Self = Self(2);
}
