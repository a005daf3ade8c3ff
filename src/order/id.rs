//! Which stream, and which stretch of it.

use core::fmt;

/// A stream's number: unique in the process, never used twice.
///
/// The driver hands out the handle of a destroyed stream again. An id is ours: a stream with a recycled handle has a new
/// one. It is a machine's number, a place in that machine's table, and the how-manieth stream in that place it is, so
/// looking a stream up is an array access, and the table does not grow with the streams that are gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

/// A million streams at a time, each place used a million times: at a thousand streams a second, 34 years.
const INDEX_BITS: u32 = 20;
pub(super) const GENERATION_BITS: u32 = 20;

impl StreamId {
    /// How many machines a process can make: 16 million, because each test case makes one.
    pub(crate) const MACHINES: u32 = 1 << (64 - INDEX_BITS - GENERATION_BITS);
    /// How many places a table can have.
    pub(crate) const PLACES: u32 = 1 << INDEX_BITS;

    /// The first stream in a place.
    pub(crate) const fn new(machine: u32, index: u32) -> Self {
        Self::in_place(machine, index, 0)
    }

    /// The stream that had a place after so many others.
    pub(super) const fn in_place(machine: u32, index: u32, generation: u32) -> Self {
        let place = (machine as u64) << INDEX_BITS | index as u64;
        Self(place << GENERATION_BITS | generation as u64)
    }

    /// The next stream in the same place; `None` if the place has been used up.
    pub(crate) const fn successor(self) -> Option<Self> {
        let next = Self(self.0 + 1);
        if next.generation() == 0 { None } else { Some(next) }
    }

    /// The number of the machine that the stream belongs to.
    pub(crate) const fn machine(self) -> u32 {
        (self.0 >> (INDEX_BITS + GENERATION_BITS)) as u32
    }

    /// Its place in the machine's table.
    pub(crate) const fn index(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32 & (Self::PLACES - 1)
    }

    /// Returns `true` if the two are of one place, so that the lesser one is gone and over.
    pub(super) const fn has_place_of(self, other: Self) -> bool {
        self.0 >> GENERATION_BITS == other.0 >> GENERATION_BITS
    }

    /// How many streams had its place before.
    pub(super) const fn generation(self) -> u32 {
        self.0 as u32 & ((1 << GENERATION_BITS) - 1)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.machine(), self.index())?;
        match self.generation() {
            0 => Ok(()),
            generation => write!(f, ".{generation}"),
        }
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

impl Epoch {
    /// Before the first epoch of a stream.
    pub(crate) const NONE: Self = Self(0);
    /// At least as late as any epoch that a stream can come to.
    pub(crate) const ALL: Self = Self(u64::MAX);
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_do_not_run_into_each_other() {
        let last = StreamId::new(StreamId::MACHINES - 1, StreamId::PLACES - 1);
        assert_eq!((last.machine(), last.index()), (StreamId::MACHINES - 1, StreamId::PLACES - 1));
        let mut id = StreamId::new(3, 5);
        assert_eq!(id.to_string(), "3.5");
        let mut used = 1;
        while let Some(next) = id.successor() {
            assert!(next > id && (next.machine(), next.index()) == (3, 5));
            (id, used) = (next, used + 1);
        }
        assert_eq!((used, id.to_string()), (1 << GENERATION_BITS, "3.5.1048575".to_owned()));
    }
}
