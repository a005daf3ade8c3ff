//! `Frontier`: the points that must come before the next use of a block.

use core::fmt;

use smallvec::SmallVec;

use super::Stamp;

/// The points that a free block's next use must come after: a small set of [`Stamp`]s, one a stream, almost always one.
///
/// Other pools keep one event for each free list. Here the dependency belongs to the block, so joining two blocks is the pointwise
/// maximum of their frontiers and cannot lose one (rapidsai/rmm#2489). There is no default, so a free block without a frontier
/// cannot be expressed.
///
/// There are two questions about a frontier, and they differ: [`StreamRef::may_reuse`](crate::StreamRef::may_reuse) (may *this
/// stream* use the block next?) and [`Machine::is_quiescent`](crate::Machine::is_quiescent) (is the block free of use on *every*
/// device?). Only quiescent memory may be unmapped or returned to a driver.
///
/// ```
/// use alluvion::{Frontier, Sim};
///
/// let sim = Sim::new();
/// let (first, second) = (sim.device(0).stream()?, sim.device(0).stream()?);
/// let mut block = Frontier::of(first.release());
/// assert!(first.may_reuse(&block) && !second.may_reuse(&block));
///
/// // A neighbour that was freed on the other stream is joined: now both must be waited for.
/// block.join(&Frontier::of(second.release()));
/// assert_eq!(block.len(), 2);
/// second.wait_for(&block)?;
/// assert!(second.may_reuse(&block));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Frontier {
    /// Sorted by stream, one entry for each stream.
    stamps: SmallVec<[Stamp; 1]>,
}

impl Frontier {
    /// The frontier of a block that was last used up to `stamp`.
    #[must_use]
    pub fn of(stamp: Stamp) -> Self {
        Self { stamps: SmallVec::from_buf([stamp]) }
    }

    /// The frontier of memory that is not in use: new from a source that is not stream-ordered.
    #[must_use]
    pub fn quiescent() -> Self {
        Self { stamps: SmallVec::new() }
    }

    /// Adds a point.
    pub fn extend(&mut self, stamp: Stamp) {
        match self.stamps.binary_search_by_key(&stamp.stream, |entry| entry.stream) {
            Ok(at) => self.stamps[at].epoch = self.stamps[at].epoch.max(stamp.epoch),
            Err(at) => self.stamps.insert(at, stamp),
        }
    }

    /// Adds all points of `other`, as when two blocks are merged.
    pub fn join(&mut self, other: &Self) {
        for &stamp in &other.stamps {
            self.extend(stamp);
        }
    }

    /// The points, in the order of their streams.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Stamp> + '_ {
        self.stamps.iter().copied()
    }

    /// The number of points.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stamps.len()
    }

    /// Returns `true` if there are no points: nothing must come first.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stamps.is_empty()
    }

    /// Drops the points for which `is_done` returns `true`.
    pub(crate) fn retire(&mut self, is_done: impl Fn(Stamp) -> bool) {
        self.stamps.retain(|stamp| !is_done(*stamp));
    }
}

impl fmt::Debug for Frontier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(&self.stamps).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Epoch, StreamId};
    use super::*;

    fn stamp(index: u32, epoch: u64) -> Stamp {
        Stamp { stream: StreamId::new(1, index), epoch: Epoch(epoch) }
    }

    #[test]
    fn one_entry_a_stream_the_later_one() {
        let mut frontier = Frontier::of(stamp(3, 4));
        frontier.extend(stamp(3, 2));
        frontier.extend(stamp(1, 7));
        frontier.extend(stamp(3, 9));
        assert_eq!(frontier.iter().collect::<Vec<_>>(), [stamp(1, 7), stamp(3, 9)]);
    }

    #[test]
    fn joining_commutes_and_is_idempotent() {
        let (mut left, mut right) = (Frontier::of(stamp(1, 2)), Frontier::of(stamp(2, 1)));
        right.extend(stamp(1, 5));
        let before = right.clone();
        left.join(&right);
        right.join(&Frontier::of(stamp(1, 2)));
        assert_eq!(left, right);
        assert_eq!(left, before);
    }

    #[test]
    fn an_inline_frontier_is_three_words() {
        assert_eq!(size_of::<Frontier>(), 24);
    }
}
