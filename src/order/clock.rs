//! `VectorClock`: the points that a stream has waited for.

use smallvec::SmallVec;

use super::epoch_tree::EpochTree;
use super::{Epoch, Stamp, StreamId};

/// The number of streams that a clock holds inline: one to four in practice, so a search is a scan of one cache line.
const RECENT: usize = 4;

/// For each other stream, the epoch up to which its work is known to come first.
///
/// Cheap to clone, because each event keeps the clock of its stream: a clone copies four entries and counts a reference.
#[derive(Clone, Debug, Default)]
pub(crate) struct VectorClock {
    /// The streams that were entered last, unordered, one entry for each place.
    recent: SmallVec<[Stamp; RECENT]>,
    /// All others, and older epochs of the inline ones.
    rest: Option<EpochTree>,
}

impl VectorClock {
    pub(crate) fn includes(&self, stamp: Stamp) -> bool {
        self.known(stamp.stream) >= stamp.epoch
    }

    /// The latest known epoch of the stream; 0 if there is none.
    pub(crate) fn known(&self, stream: StreamId) -> Epoch {
        let recent = self.recent.iter().find(|entry| entry.stream == stream);
        let recent = recent.map_or(Epoch::NONE, |entry| entry.epoch);
        self.rest.as_ref().map_or(recent, |rest| recent.max(rest.known(stream)))
    }

    /// Adds one point.
    pub(crate) fn raise(&mut self, stamp: Stamp) {
        if self.includes(stamp) {
            return;
        }
        if let Some(entry) = self.recent.iter_mut().find(|entry| entry.stream.has_place_of(stamp.stream)) {
            // Where two streams have had the place in turn, the earlier one is over.
            *entry = stamp.max(*entry);
            return;
        }
        if self.recent.len() == RECENT {
            let rest = self.rest.get_or_insert_with(|| EpochTree::of(stamp.stream.machine()));
            self.recent.drain(..).for_each(|entry| rest.raise(entry));
        }
        self.recent.push(stamp);
    }

    /// Adds the points of `other`. Where both are large and neither includes the other, some are left out. Points that are over
    /// may be left out.
    pub(crate) fn join(&mut self, other: &Self) {
        if let Some(theirs) = other.rest.as_ref().filter(|theirs| !theirs.is_over()) {
            match &mut self.rest {
                Some(rest) => rest.join(theirs),
                None => self.rest = Some(theirs.clone()),
            }
        }
        other.recent.iter().for_each(|entry| self.raise(*entry));
    }

    /// Removes that point, and earlier ones of its stream. Always safe: it costs a wait at worst.
    pub(crate) fn forget(&mut self, stamp: Stamp) {
        self.recent.retain(|entry| entry.stream != stamp.stream || entry.epoch > stamp.epoch);
        if let Some(rest) = &mut self.rest {
            rest.forget(stamp);
        }
    }

    /// Up to sixteen points from `place` on; moves `place` behind them. `None` at the end, and always where there are few points.
    pub(crate) fn next_points(&self, place: &mut u32) -> Option<SmallVec<[Stamp; 16]>> {
        let behind = self.rest.as_ref().and_then(|rest| rest.leaf_behind(*place));
        let points;
        (*place, points) = behind.map_or((0, None), |(end, points)| (end, Some(points.collect())));
        points
    }

    /// Calls `finish` for each point that it has not been called for before: all points are over.
    pub(crate) fn finish(&self, mut finish: impl FnMut(Stamp)) {
        self.recent.iter().for_each(|entry| finish(*entry));
        if let Some(rest) = &self.rest {
            rest.finish(&mut finish);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn stamp(index: u32, epoch: u64) -> Stamp {
        Stamp { stream: StreamId::new(7, index), epoch: Epoch(epoch) }
    }

    /// All that it knows.
    fn points(clock: &VectorClock) -> BTreeMap<StreamId, Epoch> {
        let (mut place, mut all) = (0, clock.recent.to_vec());
        while let Some(points) = clock.next_points(&mut place) {
            all.extend(points);
        }
        assert_eq!(place, 0, "from there it begins again");
        all.sort();
        all.into_iter().map(|point| (point.stream, point.epoch)).collect()
    }

    #[test]
    fn a_clock_knows_what_it_was_told_and_all_before() {
        let mut clock = VectorClock::default();
        clock.raise(stamp(2, 5));
        assert!(clock.includes(stamp(2, 5)) && clock.includes(stamp(2, 1)));
        assert!(!clock.includes(stamp(2, 6)) && !clock.includes(stamp(1, 1)));
        clock.raise(stamp(2, 3));
        assert!(clock.includes(stamp(2, 5)), "a clock never goes back");
    }

    #[test]
    fn joining_is_the_pointwise_maximum() {
        let (mut left, mut right) = (VectorClock::default(), VectorClock::default());
        left.raise(stamp(1, 9));
        left.raise(stamp(2, 1));
        right.raise(stamp(2, 4));
        right.raise(stamp(3, 2));
        left.join(&right);
        let all = [stamp(1, 9), stamp(2, 4), stamp(3, 2)];
        assert_eq!(points(&left), all.map(|point| (point.stream, point.epoch)).into());
    }

    /// Places whose paths part in each level of a tree.
    const PLACES: [u32; 8] = [0, 1, 15, 16, 17, 255, 256, 5000];

    proptest! {
        /// A clock is a map from streams to the latest point known of each.
        #[test]
        fn a_clock_is_a_map(steps in vec((0_usize..3, 0_usize..8, 1_u64..6, 0_u8..8), 1..60)) {
            let mut clocks = vec![VectorClock::default(); 3];
            let mut maps: Vec<BTreeMap<u32, u64>> = vec![BTreeMap::new(); 3];
            for (at, place, epoch, what) in steps {
                let (from, stream) = (epoch as usize % 3, PLACES[place]);
                match what {
                    0 => {
                        clocks[at].forget(stamp(stream, epoch));
                        maps[at].retain(|known, latest| *known != stream || *latest > epoch);
                    }
                    1 | 2 => {
                        let (clock, map) = (clocks[from].clone(), maps[from].clone());
                        clocks[at].join(&clock);
                        for (stream, epoch) in map {
                            let known = maps[at].entry(stream).or_default();
                            *known = epoch.max(*known);
                        }
                    }
                    _ => {
                        clocks[at].raise(stamp(stream, epoch));
                        let known = maps[at].entry(stream).or_default();
                        *known = epoch.max(*known);
                    }
                }
                for (clock, map) in clocks.iter().zip(&maps) {
                    for stream in PLACES {
                        let known = map.get(&stream).copied().unwrap_or(0);
                        prop_assert_eq!(clock.known(StreamId::new(7, stream)), Epoch(known));
                    }
                    for (stream, epoch) in PLACES.into_iter().flat_map(|at| (1..7).map(move |epoch| (at, epoch))) {
                        let known = map.get(&stream).is_some_and(|known| *known >= epoch);
                        prop_assert_eq!(clock.includes(stamp(stream, epoch)), known);
                    }
                }
            }
            for (clock, map) in clocks.iter().zip(&maps) {
                let all = map.iter().map(|(stream, epoch)| (StreamId::new(7, *stream), Epoch(*epoch))).collect();
                prop_assert_eq!(points(clock), all);
            }
        }
    }

    #[test]
    fn forgetting_keeps_the_others_and_what_came_later() {
        let mut clock = VectorClock::default();
        (0..20).for_each(|place| clock.raise(stamp(place, 3)));
        for place in 0..20 {
            clock.forget(stamp(place, 2));
            assert!(clock.includes(stamp(place, 3)), "it came later");
            clock.forget(stamp(place, 3));
            assert!(!clock.includes(stamp(place, 1)));
            assert_eq!(points(&clock).len(), 19 - place as usize);
        }
    }
}
