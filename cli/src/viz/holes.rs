//! `Holes`: what is free between the blocks, at every step.

use std::collections::{BTreeMap, BTreeSet};

/// What is free between the blocks of segments that come and go. Each step is a few look-ups in ordered maps: under a
/// microsecond, whatever the number of blocks.
#[derive(Debug, Default)]
pub(super) struct Holes {
    /// Where each free range begins, and where it ends. No two touch within a segment.
    free: BTreeMap<u64, u64>,
    /// How many free ranges there are of each length.
    lengths: BTreeMap<u64, u32>,
    free_bytes: u64,
    /// Where each segment begins, and where it ends. What is free in two does not meet.
    segments: BTreeMap<u64, u64>,
    /// Where each block begins; where it ends, and its number.
    blocks: BTreeMap<u64, (u64, u32)>,
    /// Blocks whose range was handed out again before they were freed.
    covered: BTreeSet<u32>,
}

impl Holes {
    pub(super) fn add_segment(&mut self, place: u64, bytes: u64) {
        self.segments.insert(place, place + bytes);
        // What a log's segment holds may be known to be taken before it.
        self.open(place, place + bytes);
    }

    pub(super) fn remove_segment(&mut self, place: u64) {
        if let Some(end) = self.segments.remove(&place) {
            self.close(place, end);
        }
    }

    /// A block comes. Returns those that it lies over, as far as they lay there: their frees are missing from the log.
    pub(super) fn take(&mut self, block: u32, place: u64, bytes: u64) -> Vec<u32> {
        let end = place.saturating_add(bytes);
        let mut under = Vec::new();
        while let Some((&begin, &(its_end, number))) = self.blocks.range(..end).next_back()
            && its_end > place
        {
            self.blocks.remove(&begin);
            self.open(begin, its_end);
            self.covered.insert(number);
            under.push(number);
        }
        self.close(place, end);
        self.blocks.insert(place, (end, block));
        under
    }

    /// A block goes.
    pub(super) fn give_back(&mut self, block: u32, place: u64) {
        if self.covered.remove(&block) {
            return;
        }
        if let Some((end, _)) = self.blocks.remove(&place) {
            self.open(place, end);
        }
    }

    /// How much of what is free does not lie in the longest free range: 0 if all of it does, near 1 if it is dust. In 65535ths.
    pub(super) fn fragmentation(&self) -> u16 {
        match self.lengths.last_key_value() {
            Some((longest, _)) if self.free_bytes > 0 => {
                let share = *longest as f64 / self.free_bytes as f64;
                ((1.0 - share).clamp(0.0, 1.0) * f64::from(u16::MAX)).round() as u16
            }
            _ => 0,
        }
    }

    /// What of `begin..end` lies in segments becomes free, and meets its neighbours.
    fn open(&mut self, begin: u64, end: u64) {
        let mut at = begin;
        while at < end {
            let (low, high) = match self.segments.range(..=at).next_back() {
                Some((&low, &high)) if high > at => (low, high),
                _ => match self.segments.range(at..end).next() {
                    Some((&low, _)) => {
                        at = low;
                        continue;
                    }
                    None => return,
                },
            };
            let stop = end.min(high);
            let (mut from, mut to) = (at, stop);
            if let Some((&before, &its_end)) = self.free.range(..at).next_back()
                && its_end >= at
                && before >= low
            {
                from = before;
                to = to.max(its_end);
                self.forget(before, its_end);
            }
            while let Some((&after, &its_end)) = self.free.range(from..=to).next()
                && after < high
            {
                to = to.max(its_end);
                self.forget(after, its_end);
            }
            self.remember(from, to);
            at = stop;
        }
    }

    /// Nothing of `begin..end` is free any more.
    fn close(&mut self, begin: u64, end: u64) {
        while let Some((&from, &to)) = self.free.range(..end).next_back()
            && to > begin
        {
            self.forget(from, to);
            if to > end {
                self.remember(end, to);
            }
            if from < begin {
                self.remember(from, begin);
                return;
            }
        }
    }

    fn remember(&mut self, begin: u64, end: u64) {
        self.free.insert(begin, end);
        *self.lengths.entry(end - begin).or_default() += 1;
        self.free_bytes += end - begin;
    }

    fn forget(&mut self, begin: u64, end: u64) {
        self.free.remove(&begin);
        self.free_bytes -= end - begin;
        if let Some(count) = self.lengths.get_mut(&(end - begin)) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&(end - begin));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(free: f64, longest: f64) -> u16 {
        ((1.0 - longest / free) * 65_535.0).round() as u16
    }

    #[test]
    fn holes_meet_within_a_segment_and_not_beyond() {
        let mut holes = Holes::default();
        assert_eq!(holes.fragmentation(), 0, "nothing is free");
        holes.add_segment(0, 1000);
        assert_eq!(holes.fragmentation(), 0, "all is in one piece");
        assert!(holes.take(0, 0, 300).is_empty());
        assert!(holes.take(1, 300, 100).is_empty());
        holes.give_back(0, 0);
        assert_eq!(holes.fragmentation(), share(900.0, 600.0));
        holes.give_back(1, 300);
        assert_eq!(holes.fragmentation(), 0, "three became one");
        holes.add_segment(1000, 500);
        assert_eq!(holes.fragmentation(), share(1500.0, 1000.0));
        holes.remove_segment(0);
        assert_eq!((holes.fragmentation(), holes.free_bytes), (0, 500));
        holes.remove_segment(1000);
        assert_eq!((holes.free_bytes, holes.free.len(), holes.lengths.len()), (0, 0, 0));
    }

    #[test]
    fn a_block_over_another_ends_it() {
        let mut holes = Holes::default();
        holes.add_segment(0, 1000);
        assert!(holes.take(0, 100, 200).is_empty());
        assert!(holes.take(1, 400, 100).is_empty());
        assert_eq!(holes.take(2, 250, 200), [1, 0]);
        assert_eq!(holes.free_bytes, 800);
        holes.give_back(0, 100);
        assert_eq!(holes.free_bytes, 800, "it had gone already");
        holes.give_back(2, 250);
        assert_eq!((holes.free_bytes, holes.fragmentation()), (1000, 0));
    }

    /// Against bytes that are marked one by one.
    #[test]
    fn it_is_what_marking_bytes_says() {
        let (mut seed, mut holes, mut blocks) = (7_u64, Holes::default(), Vec::new());
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        holes.add_segment(0, 60);
        holes.add_segment(60, 40);
        for block in 0..2000 {
            if blocks.len() > 6 || (!blocks.is_empty() && next(3) == 0) {
                let (gone, place, _) = blocks.swap_remove(next(blocks.len() as u64) as usize);
                holes.give_back(gone, place);
            } else {
                let place = next(100);
                let bytes = 1 + next(if place < 60 { 60 - place } else { 100 - place });
                let under = holes.take(block, place, bytes);
                blocks.retain(|(number, begin, length)| {
                    let meets = *begin < place + bytes && place < begin + length;
                    assert_eq!(meets, under.contains(number));
                    !meets
                });
                blocks.push((block, place, bytes));
            }
            let taken =
                |at: u64| blocks.iter().any(|(_, place, bytes)| (*place..place + bytes).contains(&at));
            let (mut free, mut longest, mut run) = (0, 0, 0);
            for at in 0..100 {
                run = if taken(at) {
                    0
                } else if at == 60 {
                    1
                } else {
                    run + 1
                };
                free += u64::from(!taken(at));
                longest = longest.max(run);
            }
            assert_eq!(holes.free_bytes, free);
            let wanted = if free == 0 { 0 } else { share(free as f64, longest as f64) };
            assert_eq!(holes.fragmentation(), wanted, "after block {block}");
        }
    }
}
