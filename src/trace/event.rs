//! `Event`: one step of a trace.

/// One step of a trace: a block comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether it comes or goes.
    pub kind: EventKind,
    /// Which block, numbered from 0 in the order of their allocation. No number comes twice.
    pub block: u32,
    /// The stream that the call named, numbered from 0 in the order in which they appear in the log.
    pub stream: u32,
    /// The thread that called, numbered in the same way.
    pub thread: u32,
    /// The bytes that the block was asked for with, at its free too.
    pub bytes: u64,
}

/// Whether a block comes or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// It is allocated.
    Allocate,
    /// It is freed.
    Free,
}
