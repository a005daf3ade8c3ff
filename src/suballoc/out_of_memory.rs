//! `OutOfMemory`: what a suballocator knows when it has tried everything.

use crate::stream::StreamId;

/// What a suballocator knew when it had nothing left to try: what its handlers see, and what the error carries.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OutOfMemory {
    pub requested_bytes: usize,
    pub align: usize,
    /// The stream that asked, unless the call was a synchronous one.
    pub stream: Option<StreamId>,
    /// How often the ladder has been climbed for this request, from 1.
    pub attempt: u32,
    pub live_bytes: usize,
    /// Free and usable by the stream that asked.
    pub free_bytes: usize,
    /// Free, but behind work that is not known to be over.
    pub pending_bytes: usize,
    pub reserved_bytes: usize,
    /// The largest block that the stream that asked could get now.
    pub largest_bytes: usize,
    /// What the suballocator may have at most, if it has a limit.
    pub maximum_bytes: Option<usize>,
    pub cause: Cause,
}

/// Why there was no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The request, on top of what is live, is more than the limit.
    Limit,
    /// There are enough free bytes, but not in one piece.
    Fragmentation,
    /// The upstream has no more, and what it gave is live here.
    Full,
    /// The upstream has no more, and others have most of it.
    Others,
}

/// What a handler has done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// Memory was freed: try again.
    Freed,
    /// Nothing could be freed: ask the next handler.
    None,
}
