//! `Peer`: an allocator of another crate.

/// An allocator of another crate, with streams of its own that are numbered from 0.
pub(crate) trait Peer {
    /// Goes back to the allocator when it is dropped.
    type Block;

    /// As the lines call it.
    const NAME: &'static str;

    fn allocate(&mut self, bytes: usize, stream: usize) -> Result<Self::Block, Refusal>;

    /// Waits for all streams.
    fn synchronize(&mut self) -> Result<(), String>;

    /// The most bytes that it ever held of the device.
    fn peak_bytes(&mut self) -> Result<u64, String>;
}

/// Why an allocation failed.
#[derive(Debug)]
pub(crate) enum Refusal {
    OutOfMemory,
    Other(String),
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("out of memory"),
            Self::Other(words) => f.write_str(words),
        }
    }
}
