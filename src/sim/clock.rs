//! `LaneClock`: the order of operations, as vector clocks.
//!
//! Queued work lives on *lanes*. A lane runs its operations one after another, so an operation is identified by its lane and its
//! place on it. The operations that come before it are one number per lane.

use smallvec::SmallVec;

/// One first-in-first-out line of work: a stream, or one branch of a graph that was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LaneId(pub(super) u32);

/// One operation: the `sequence`-th of its lane, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Point {
    pub(super) lane: LaneId,
    pub(super) sequence: u64,
}

/// For each lane, the last operation that is ordered before the owner of the clock.
///
/// Sorted by lane. Most clocks have one or two entries: operations that the host has seen done are left out (see `Lanes::prune`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneClock(SmallVec<[(LaneId, u64); 4]>);

impl LaneClock {
    /// The clock that covers `point` alone.
    pub(super) fn of(point: Point) -> Self {
        let mut clock = Self::default();
        clock.raise(point);
        clock
    }

    /// The last covered operation of the lane; 0 for none.
    pub(super) fn get(&self, lane: LaneId) -> u64 {
        self.0.binary_search_by_key(&lane, |entry| entry.0).map_or(0, |index| self.0[index].1)
    }

    /// Covers the lane up to `point`.
    pub(super) fn raise(&mut self, point: Point) {
        match self.0.binary_search_by_key(&point.lane, |entry| entry.0) {
            Ok(index) => self.0[index].1 = self.0[index].1.max(point.sequence),
            Err(index) => self.0.insert(index, (point.lane, point.sequence)),
        }
    }

    /// Covers all that `other` covers.
    pub(super) fn join(&mut self, other: &Self) {
        for point in other.points() {
            self.raise(point);
        }
    }

    /// Keeps the entries for which `keep` returns `true`.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(Point) -> bool) {
        self.0.retain(|&mut (lane, sequence)| keep(Point { lane, sequence }));
    }

    /// The last covered operation of each lane.
    pub(super) fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.0.iter().map(|&(lane, sequence)| Point { lane, sequence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(lane: u32, sequence: u64) -> Point {
        Point { lane: LaneId(lane), sequence }
    }

    #[test]
    fn a_join_is_the_pointwise_maximum() {
        let mut left = LaneClock::of(point(1, 5));
        left.raise(point(3, 2));
        let mut right = LaneClock::of(point(3, 7));
        right.raise(point(2, 1));
        left.join(&right);
        let points: Vec<_> = left.points().map(|p| (p.lane.0, p.sequence)).collect();
        assert_eq!(points, [(1, 5), (2, 1), (3, 7)]);
        assert_eq!(left.get(LaneId(4)), 0);
    }

    #[test]
    fn raising_never_lowers() {
        let mut clock = LaneClock::of(point(1, 5));
        clock.raise(point(1, 3));
        assert_eq!(clock.get(LaneId(1)), 5);
        clock.retain(|p| p.lane != LaneId(1));
        assert_eq!(clock, LaneClock::default());
    }
}
