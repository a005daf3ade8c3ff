//! Which stream, and which stretch of it.

use core::fmt;

/// A stream's number: unique in the process, never used twice.
///
/// The driver hands out the handle of a destroyed stream again. An id is ours: a stream with a recycled handle has a new
/// one. It is a machine's number and an index into that machine's table, so looking a stream up is an array access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

impl StreamId {
    pub(crate) const fn new(machine: u32, index: u32) -> Self {
        Self((machine as u64) << 32 | index as u64)
    }

    /// The number of the machine that the stream belongs to.
    pub(crate) const fn machine(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(crate) const fn index(self) -> u32 {
        self.0 as u32
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.machine(), self.index())
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StreamId({self})")
    }
}

/// A stretch of a stream, between two of its recorded events.
///
/// The counter of a stream starts at 1 and advances each time an event is about to be recorded. Whoever reads an epoch
/// has, before, submitted work that lies in that epoch or an earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub(crate) u64);

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Epoch({})", self.0)
    }
}

/// A point of a stream: everything that was submitted to it up to there.
///
/// A block that is freed on a stream carries one, and so does a use on a second stream. Taking one costs no driver call.
/// Only a stream makes them, so that a point is never later than its stream has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    pub(crate) stream: StreamId,
    pub(crate) epoch: Epoch,
}

impl Stamp {
    /// The stream.
    #[must_use]
    pub const fn stream(self) -> StreamId {
        self.stream
    }

    /// How far along it.
    #[must_use]
    pub const fn epoch(self) -> Epoch {
        self.epoch
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{:?}", self.stream, self.epoch)
    }
}
