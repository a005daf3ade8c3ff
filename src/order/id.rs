//! `StreamId`, `Epoch` and `Stamp`: the number of a stream, and points of its work.

use core::fmt;

/// The number of a stream: unique in the process, never reused.
///
/// The driver reuses the handles of destroyed streams; ids are never reused. An id is the number of a machine, a place in the
/// stream table of that machine, and the generation: the number of earlier streams in that place. So a look-up is an array access,
/// and the table does not grow with the streams that are gone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u64);

/// A million streams at a time, each place used a million times: at a thousand streams a second, 34 years.
const INDEX_BITS: u32 = 20;
pub(super) const GENERATION_BITS: u32 = 20;

impl StreamId {
    /// The most machines that a process can make: 16 million, because each test case makes one.
    pub(crate) const MACHINES: u32 = 1 << (64 - INDEX_BITS - GENERATION_BITS);
    /// The most places of a table.
    pub(crate) const PLACES: u32 = 1 << INDEX_BITS;

    /// The first stream in a place.
    pub(crate) const fn new(machine: u32, index: u32) -> Self {
        Self::in_place(machine, index, 0)
    }

    /// The stream of that generation in a place.
    pub(super) const fn in_place(machine: u32, index: u32, generation: u32) -> Self {
        let place = (machine as u64) << INDEX_BITS | index as u64;
        Self(place << GENERATION_BITS | generation as u64)
    }

    /// The next stream in the same place; `None` if the place has been used up.
    pub(crate) const fn successor(self) -> Option<Self> {
        let next = Self(self.0 + 1);
        if next.generation() == 0 { None } else { Some(next) }
    }

    /// How many bits of the number are the place, and the generation: the lowest.
    pub(crate) const BITS: [u32; 2] = [INDEX_BITS, GENERATION_BITS];

    /// All of it in one word.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// The number of the machine that the stream belongs to.
    pub(crate) const fn machine(self) -> u32 {
        (self.0 >> (INDEX_BITS + GENERATION_BITS)) as u32
    }

    /// The place in the table of the machine.
    pub(crate) const fn index(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32 & (Self::PLACES - 1)
    }

    /// Returns `true` if both have the same place, so that the lesser one is gone and over.
    pub(super) const fn has_place_of(self, other: Self) -> bool {
        self.0 >> GENERATION_BITS == other.0 >> GENERATION_BITS
    }

    /// The number of streams that had the place before.
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

/// The part of a stream between two of its recorded events.
///
/// The counter of a stream starts at 1 and advances each time an event is about to be recorded. Work that a thread submitted
/// before it reads the epoch lies in that epoch or an earlier one.
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

/// A point of a stream: all work that was submitted to it up to there.
///
/// A block that is freed on a stream carries one, and so does a use on a second stream. Taking one costs no driver call. Only a
/// stream makes stamps, so a stamp never lies in the future of its stream.
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

    /// The epoch of that stream.
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
