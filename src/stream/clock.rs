//! What a stream has waited for.

use smallvec::SmallVec;

use super::{Epoch, Stamp, StreamId};

/// For each other stream, the epoch up to which its work is known to come first.
///
/// Kept sorted by stream; one to four entries in practice, so a search is a scan of one cache line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VectorClock {
    entries: SmallVec<[Stamp; 4]>,
}

impl VectorClock {
    pub(crate) fn includes(&self, stamp: Stamp) -> bool {
        self.position(stamp.stream).is_ok_and(|at| self.entries[at].epoch >= stamp.epoch)
    }

    /// The latest epoch of the stream that is known of; 0 if none is.
    pub(crate) fn known(&self, stream: StreamId) -> Epoch {
        self.position(stream).map_or(Epoch::NONE, |at| self.entries[at].epoch)
    }

    /// Learns of one point.
    pub(crate) fn raise(&mut self, stamp: Stamp) {
        match self.position(stamp.stream) {
            Ok(at) => self.entries[at].epoch = self.entries[at].epoch.max(stamp.epoch),
            Err(at) => self.entries.insert(at, stamp),
        }
    }

    /// Learns all that `other` knows.
    pub(crate) fn join(&mut self, other: &Self) {
        for &stamp in &other.entries {
            self.raise(stamp);
        }
    }

    /// Forgets the streams that `is_gone` names. Forgetting is always safe: it costs a wait at worst.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(StreamId) -> bool) {
        self.entries.retain(|stamp| !is_gone(stamp.stream));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Stamp> + '_ {
        self.entries.iter().copied()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    fn position(&self, stream: StreamId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&stream, |entry| entry.stream)
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
        assert_eq!(left.iter().collect::<Vec<_>>(), [stamp(1, 9), stamp(2, 4), stamp(3, 2)]);
    }

    proptest! {
        /// A clock is a map from streams to the latest point known of each.
        #[test]
        fn a_clock_is_a_map(steps in vec((0_usize..3, 0_u32..8, 1_u64..6, 0_u8..8), 1..60)) {
            let mut clocks = vec![VectorClock::default(); 3];
            let mut maps: Vec<BTreeMap<u32, u64>> = vec![BTreeMap::new(); 3];
            for (at, stream, epoch, what) in steps {
                let from = epoch as usize % 3;
                match what {
                    0 => {
                        clocks[at].forget(|known| known.index() == stream);
                        maps[at].remove(&stream);
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
            }
            for (clock, map) in clocks.iter().zip(&maps) {
                let points: Vec<_> = map.iter().map(|(stream, epoch)| stamp(*stream, *epoch)).collect();
                prop_assert_eq!(clock.iter().collect::<Vec<_>>(), points);
                for stream in 0..8 {
                    let known = map.get(&stream).copied().unwrap_or(0);
                    prop_assert_eq!(clock.known(StreamId::new(7, stream)), Epoch(known));
                }
                for (stream, epoch) in (0..8).flat_map(|stream| (1..7).map(move |epoch| (stream, epoch))) {
                    let known = map.get(&stream).is_some_and(|known| *known >= epoch);
                    prop_assert_eq!(clock.includes(stamp(stream, epoch)), known);
                }
            }
        }
    }

    #[test]
    fn forgetting_keeps_the_others() {
        let mut clock = VectorClock::default();
        clock.raise(stamp(1, 1));
        clock.raise(stamp(2, 2));
        clock.forget(|stream| stream.index() == 1);
        assert_eq!((clock.len(), clock.includes(stamp(2, 2))), (1, true));
    }
}
