//! `Event`: one step of a trace.

/// One step of a trace: a block is allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether the block is allocated or freed.
    pub kind: EventKind,
    /// The block, numbered from 0 in the order of allocation. No number is used twice.
    pub block: u32,
    /// The stream that the call named, numbered from 0 in the order in which they appear in the log.
    pub stream: u32,
    /// The thread that called, numbered in the same way.
    pub thread: u32,
    /// The bytes that were asked for when the block was allocated; the same at its free.
    pub bytes: u64,
}

/// Whether a block is allocated or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It is allocated.
    Allocate,
    /// It is freed.
    Free,
}
