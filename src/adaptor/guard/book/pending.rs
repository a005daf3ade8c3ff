//! `Pending`: checks that wait for a point of a stream.

use core::ops::Bound;
use std::collections::{BTreeMap, VecDeque};

use smallvec::SmallVec;

use crate::stream::{Epoch, Stamp, StreamId};

/// Items behind points of streams, in the order of the points.
///
/// Taking out what is over looks at that, and at one thing more for each stream that is asked about: however many are left.
pub(super) struct Pending<T> {
    /// Not empty, each, and sorted. Streams are sorted too, so that they have their turns.
    streams: BTreeMap<StreamId, VecDeque<(Epoch, T)>>,
    /// The stream that was last in turn.
    last: Option<StreamId>,
    len: usize,
    #[cfg(test)]
    pub(super) looks: usize,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self {
            streams: BTreeMap::new(),
            last: None,
            len: 0,
            #[cfg(test)]
            looks: 0,
        }
    }
}

impl<T> Pending<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts one behind a point.
    pub(super) fn push(&mut self, point: Stamp, thing: T) {
        let queue = self.streams.entry(point.stream()).or_default();
        // Nearly always at the end: only threads that share a stream may come in another order than their points.
        let behind = queue.iter().rev().take_while(|(epoch, _)| *epoch > point.epoch()).count();
        queue.insert(queue.len() - behind, (point.epoch(), thing));
        self.len += 1;
    }

    /// The first point of each of the `count` streams whose turn is next.
    pub(super) fn next_points(&mut self, count: usize) -> SmallVec<[Stamp; 4]> {
        let point = |(stream, queue): (&StreamId, &VecDeque<(Epoch, T)>)| {
            queue.front().map(|(epoch, _)| Stamp { stream: *stream, epoch: *epoch })
        };
        let after_the_last = (self.last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let in_turn = self.streams.range(after_the_last).chain(self.streams.iter());
        let points: SmallVec<[Stamp; 4]> =
            in_turn.take(count.min(self.streams.len())).filter_map(point).collect();
        self.last = points.last().map(|point| point.stream()).or(self.last);
        points
    }

    /// The last point of each stream.
    pub(super) fn last_points(&self) -> Vec<Stamp> {
        let last = |(stream, queue): (&StreamId, &VecDeque<(Epoch, T)>)| {
            queue.back().map(|(epoch, _)| Stamp { stream: *stream, epoch: *epoch })
        };
        self.streams.iter().filter_map(last).collect()
    }

    /// Takes out what is behind no later point of the stream than this, in order.
    pub(super) fn take_up_to(&mut self, point: Stamp, taken: &mut Vec<T>) {
        let Some(queue) = self.streams.get_mut(&point.stream()) else { return };
        let before = taken.len();
        while let Some((_, thing)) = queue.pop_front_if(|(epoch, _)| *epoch <= point.epoch()) {
            taken.push(thing);
        }
        let gone = taken.len() - before;
        self.len -= gone;
        #[cfg(test)]
        {
            self.looks += gone + usize::from(!queue.is_empty());
        }
        if queue.is_empty() {
            self.streams.remove(&point.stream());
        }
    }

    /// Takes out everything.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.len = 0;
        let streams = core::mem::take(&mut self.streams);
        streams.into_values().flatten().map(|(_, thing)| thing)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn point(stream: u32, epoch: u64) -> Stamp {
        Stamp { stream: StreamId::new(1, stream), epoch: Epoch(epoch) }
    }

    fn taken(pending: &mut Pending<u64>, stream: u32, epoch: u64) -> Vec<u64> {
        let mut taken = Vec::new();
        pending.take_up_to(point(stream, epoch), &mut taken);
        taken
    }

    #[test]
    fn what_is_over_goes_in_order_whatever_order_it_came_in() {
        let mut pending = Pending::default();
        for epoch in [1, 2, 5, 3, 3, 9] {
            pending.push(point(7, epoch), epoch);
        }
        pending.push(point(8, 1), 100);
        assert_eq!((pending.len(), pending.last_points()), (7, vec![point(7, 9), point(8, 1)]));
        assert_eq!(taken(&mut pending, 9, 100), []);
        assert_eq!(taken(&mut pending, 7, 4), [1, 2, 3, 3]);
        assert_eq!(taken(&mut pending, 8, 1), [100]);
        assert_eq!((pending.len(), pending.last_points()), (2, vec![point(7, 9)]));
        assert!(pending.take_all().eq([5, 9]));
        assert_eq!((pending.len(), pending.last_points(), pending.next_points(4).len()), (0, vec![], 0));
    }

    #[test]
    fn every_stream_has_its_turn() {
        let mut pending = Pending::default();
        (0..5).for_each(|stream| pending.push(point(stream, 1), 0));
        let mut turns = |count| pending.next_points(count).to_vec();
        assert_eq!(turns(2), [point(0, 1), point(1, 1)]);
        assert_eq!(turns(2), [point(2, 1), point(3, 1)]);
        assert_eq!(turns(3), [point(4, 1), point(0, 1), point(1, 1)]);
        assert_eq!(turns(9).len(), 5, "each once");
    }

    #[test]
    fn looking_does_not_depend_on_what_is_left() {
        for left in [10, 16_000] {
            let mut pending = Pending::default();
            (0..left).for_each(|at| pending.push(point(1, 10 + at), at));
            for _ in 0..100 {
                let first = pending.next_points(4);
                assert_eq!(first[..], [point(1, 10)]);
                assert!(taken(&mut pending, 1, 9).is_empty());
            }
            assert_eq!(pending.looks, 100, "with {left}");
        }
    }
}
