//! `PoolSpace`: which addresses of a pool are free, for whom, and which of them have memory.
//!
//! Plain data, without a machine: `pool` says how far each stream has come, and maps and unmaps the pages.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::clock::{LaneClock, LaneId};

/// A free range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FreeRange {
    pub(super) bytes: u64,
    /// Orders ranges of one size: the oldest is taken first.
    age: u64,
    /// The last free of its parts, on the stream that freed them; 0 once the range is shared.
    freed: u64,
    /// The operations that its new owner must come after.
    pub(super) after: LaneClock,
}

/// A key of an index by size: bytes, age, address.
type BySize = (u64, u64, u64);

/// Free ranges; neighbours are one range.
#[derive(Clone, Debug, Default)]
struct FreeList {
    ranges: BTreeMap<u64, FreeRange>,
    by_size: BTreeSet<BySize>,
    /// No range was freed before this.
    earliest: u64,
    latest: u64,
}

impl FreeList {
    fn insert(&mut self, address: u64, range: FreeRange) {
        if self.ranges.is_empty() {
            (self.earliest, self.latest) = (range.freed, range.freed);
        }
        self.earliest = self.earliest.min(range.freed);
        self.latest = self.latest.max(range.freed);
        self.by_size.insert((range.bytes, range.age, address));
        self.ranges.insert(address, range);
    }

    fn remove(&mut self, address: u64) -> Option<FreeRange> {
        let range = self.ranges.remove(&address)?;
        self.by_size.remove(&(range.bytes, range.age, address));
        Some(range)
    }

    /// Where the range starts that ends at `address`, if there is one.
    fn before(&self, address: u64) -> Option<u64> {
        let (&start, range) = self.ranges.range(..address).next_back()?;
        (start + range.bytes == address).then_some(start)
    }

    /// Where the range starts that `address` lies in.
    fn around(&self, address: u64) -> Option<u64> {
        let (&start, range) = self.ranges.range(..=address).next_back()?;
        (address < start + range.bytes).then_some(start)
    }

    /// The smallest range that is large enough, the oldest of several.
    fn best(&self, bytes: u64) -> Option<u64> {
        self.by_size.range((bytes, 0, 0)..).next().map(|&(.., address)| address)
    }

    /// The same among those whose frees are covered by `until`.
    fn best_until(&self, bytes: u64, until: u64) -> Option<u64> {
        if until < self.earliest {
            return None;
        }
        if until >= self.latest {
            return self.best(bytes);
        }
        let mut fitting = self.by_size.range((bytes, 0, 0)..);
        fitting.find(|(.., address)| self.ranges[address].freed <= until).map(|&(.., address)| address)
    }
}

/// The addresses of a pool.
#[derive(Clone, Debug)]
pub(super) struct PoolSpace {
    /// Bytes of a page, the unit in which memory comes and goes.
    pub(super) page_bytes: u64,
    /// The reserved addresses; empty if the memory says where it is.
    pub(super) start: u64,
    end: u64,
    /// All below is live, freed by a stream, or a hole.
    top: u64,
    /// The operations that an owner of what is above `top` must come after.
    above: LaneClock,
    /// What each stream has freed, in the order in which the streams came.
    streams: Vec<(LaneId, FreeList)>,
    places: HashMap<LaneId, usize>,
    /// What any stream may have, with memory or without.
    holes: FreeList,
    /// The holes that have memory throughout.
    backed: BTreeSet<BySize>,
    /// The pages, and their bytes.
    pages: BTreeMap<u64, u64>,
    ages: u64,
}

impl PoolSpace {
    /// Space without addresses, which come with [`Self::reserve`] or [`Self::add_block`].
    pub(super) fn new(page_bytes: u64) -> Self {
        Self {
            page_bytes,
            start: 0,
            end: 0,
            top: 0,
            above: LaneClock::default(),
            streams: Vec::new(),
            places: HashMap::new(),
            holes: FreeList::default(),
            backed: BTreeSet::new(),
            pages: BTreeMap::new(),
            ages: 0,
        }
    }

    pub(super) fn is_reserved(&self) -> bool {
        self.end > 0
    }

    pub(super) fn reserve(&mut self, start: u64, bytes: u64) {
        (self.start, self.end, self.top) = (start, start + bytes, start);
    }

    /// Reserved bytes of address.
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.end - self.start
    }

    /// Where the pages start.
    pub(super) fn pages(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().copied()
    }

    /// Adds memory that says itself where it is. It never becomes one with its neighbour.
    pub(super) fn add_block(&mut self, address: u64, bytes: u64) {
        self.pages.insert(address, bytes);
        let age = self.next_age();
        self.insert_hole(address, FreeRange { bytes, age, ..FreeRange::default() });
    }

    fn next_age(&mut self) -> u64 {
        self.ages += 1;
        self.ages
    }

    /// Whether ranges on both sides of an address may become one.
    fn may_join(&self, boundary: u64) -> bool {
        self.is_reserved() || !self.pages.contains_key(&boundary)
    }

    /// Notes a free by a stream.
    pub(super) fn free(&mut self, lane: LaneId, address: u64, bytes: u64, sequence: u64, after: LaneClock) {
        let place = self.place_of(lane);
        let age = self.next_age();
        let mut range = FreeRange { bytes, age, freed: sequence, after };
        let mut start = address;
        let (joins_after, joins_before) = (self.may_join(address + bytes), self.may_join(address));
        let list = &mut self.streams[place].1;
        if joins_after && let Some(next) = list.remove(address + bytes) {
            merge(&mut range, &next);
        }
        if joins_before
            && let Some(before) = list.before(address)
            && let Some(previous) = list.remove(before)
        {
            merge(&mut range, &previous);
            start = before;
        }
        list.insert(start, range);
    }

    fn place_of(&mut self, lane: LaneId) -> usize {
        let streams = &mut self.streams;
        *self.places.entry(lane).or_insert_with(|| {
            streams.push((lane, FreeList::default()));
            streams.len() - 1
        })
    }

    /// Takes a range that needs nothing: one that the stream freed, a hole with memory, or one that another stream freed, as far
    /// as `reach` says that this stream may have it.
    pub(super) fn take_free(
        &mut self,
        lane: LaneId,
        bytes: u64,
        reach: impl Fn(LaneId) -> u64,
    ) -> Option<(u64, LaneClock)> {
        let own = self.place_of(lane);
        if let Some(address) = self.streams[own].1.best(bytes) {
            return Some((address, self.take_from(own, address, bytes)));
        }
        if let Some(address) = self.best_backed(bytes) {
            return Some((address, self.claim(address, bytes)));
        }
        let others = self.streams.iter().enumerate().filter(|&(place, _)| place != own);
        let mut found = others.filter_map(|(place, (other, list))| {
            (!list.ranges.is_empty()).then(|| list.best_until(bytes, reach(*other)).map(|at| (place, at)))?
        });
        let (place, address) = found.next()?;
        Some((address, self.take_from(place, address, bytes)))
    }

    fn take_from(&mut self, place: usize, address: u64, bytes: u64) -> LaneClock {
        let age = self.next_age();
        let list = &mut self.streams[place].1;
        let Some(range) = list.remove(address) else { return LaneClock::default() };
        if range.bytes > bytes {
            list.insert(address + bytes, FreeRange { bytes: range.bytes - bytes, age, ..range.clone() });
        }
        range.after
    }

    /// Makes holes of what the streams have freed, as far as `done` says; `prune` shortens the clocks. What then lies at the top
    /// is no hole: the top sinks.
    pub(super) fn gather(&mut self, done: impl Fn(LaneId) -> u64, prune: impl Fn(&mut LaneClock)) {
        let mut moved = false;
        for place in 0..self.streams.len() {
            let (lane, list) = &mut self.streams[place];
            let until = done(*lane);
            if list.ranges.is_empty() || until < list.earliest {
                continue;
            }
            // The last that was freed comes first: so measured.
            let is_done = |(_, range): &(&u64, &FreeRange)| range.freed <= until;
            let mut over: Vec<(u64, u64)> =
                list.ranges.iter().filter(is_done).map(|(&address, range)| (range.age, address)).collect();
            over.sort_unstable_by(|left, right| right.cmp(left));
            for (_, address) in over {
                let Some(mut range) = self.streams[place].1.remove(address) else { continue };
                prune(&mut range.after);
                moved = true;
                self.add_hole(address, range);
            }
        }
        if !moved {
            return;
        }
        // Streams that are over and have nothing left.
        self.streams.retain(|(lane, list)| !list.ranges.is_empty() || done(*lane) < u64::MAX);
        self.places = self.streams.iter().enumerate().map(|(place, (lane, _))| (*lane, place)).collect();
        self.sink();
    }

    fn sink(&mut self) {
        if self.is_reserved()
            && let Some(last) = self.holes.before(self.top)
            && let Some(hole) = self.remove_hole(last)
        {
            self.top = last;
            self.above.join(&hole.after);
        }
    }

    fn add_hole(&mut self, address: u64, mut range: FreeRange) {
        let mut start = address;
        let end = address + range.bytes;
        if self.may_join(end)
            && let Some(next) = self.remove_hole(end)
        {
            merge(&mut range, &next);
        }
        if self.may_join(address)
            && let Some(before) = self.holes.before(address)
            && let Some(previous) = self.remove_hole(before)
        {
            merge(&mut range, &previous);
            start = before;
        }
        (range.freed, range.age) = (0, self.next_age());
        self.insert_hole(start, range);
    }

    fn insert_hole(&mut self, address: u64, range: FreeRange) {
        if self.missing(address, range.bytes).next().is_none() {
            self.backed.insert((range.bytes, range.age, address));
        }
        self.holes.insert(address, range);
    }

    fn remove_hole(&mut self, address: u64) -> Option<FreeRange> {
        let range = self.holes.remove(address)?;
        self.backed.remove(&(range.bytes, range.age, address));
        Some(range)
    }

    /// Looks again whether the holes that touch a page have memory throughout.
    fn look_again(&mut self, page: u64) {
        let first = self.holes.around(page).unwrap_or(page);
        let touched: Vec<u64> =
            self.holes.ranges.range(first..page + self.page_bytes).map(|(&start, _)| start).collect();
        for start in touched {
            if let Some(range) = self.remove_hole(start) {
                self.insert_hole(start, range);
            }
        }
    }

    /// The hole to cut from, with memory or without.
    pub(super) fn best_hole(&self, bytes: u64) -> Option<u64> {
        self.holes.best(bytes)
    }

    /// The hole to cut from among those with memory throughout.
    pub(super) fn best_backed(&self, bytes: u64) -> Option<u64> {
        self.backed.range((bytes, 0, 0)..).next().map(|&(.., address)| address)
    }

    /// Where a range starts that lies behind all others, if there are addresses for it.
    pub(super) fn behind(&self, bytes: u64) -> Option<u64> {
        self.top.checked_add(bytes).is_some_and(|end| end <= self.end).then_some(self.top)
    }

    /// Where a range could start if what every stream has freed were a hole: first where there is memory.
    pub(super) fn best_of_all(&self, bytes: u64) -> Vec<u64> {
        let mut all = self.clone();
        all.gather(|_| u64::MAX, |_| ());
        let found = [all.best_backed(bytes), all.best_hole(bytes), all.behind(bytes)];
        found.into_iter().flatten().collect()
    }

    /// Makes holes of the parts of what streams have freed that lie in the range.
    pub(super) fn pull(&mut self, address: u64, bytes: u64) {
        let end = address + bytes;
        for place in 0..self.streams.len() {
            let list = &self.streams[place].1;
            let first = list.around(address).unwrap_or(address);
            let touched: Vec<u64> = list.ranges.range(first..end).map(|(&start, _)| start).collect();
            for start in touched {
                let Some(range) = self.streams[place].1.remove(start) else { continue };
                let (from, until) = (start.max(address), end.min(start + range.bytes));
                for (at, part) in [(start, from - start), (until, start + range.bytes - until)] {
                    if part > 0 {
                        self.streams[place].1.insert(at, FreeRange { bytes: part, ..range.clone() });
                    }
                }
                self.add_hole(from, FreeRange { bytes: until - from, ..range });
            }
        }
    }

    /// Cuts a range out of a hole, or out of what is behind all others, or both. It has memory.
    pub(super) fn claim(&mut self, address: u64, bytes: u64) -> LaneClock {
        let end = address + bytes;
        let mut after = LaneClock::default();
        if let Some(start) = self.holes.around(address)
            && let Some(hole) = self.remove_hole(start)
        {
            let until = start + hole.bytes;
            if start < address {
                self.insert_hole(start, FreeRange { bytes: address - start, ..hole.clone() });
            }
            if until > end {
                let age = self.next_age();
                self.insert_hole(end, FreeRange { bytes: until - end, age, ..hole.clone() });
            }
            after = hole.after;
        }
        if self.is_reserved() && end > self.top {
            self.top = end;
            after.join(&self.above);
        }
        after
    }

    /// The pages of a range that have no memory.
    pub(super) fn missing(&self, address: u64, bytes: u64) -> impl Iterator<Item = u64> + '_ {
        let first = address - (address - self.start) % self.page_bytes;
        let pages = (first..address + bytes).step_by(usize::try_from(self.page_bytes).unwrap_or(usize::MAX));
        pages.filter(|page| self.is_reserved() && !self.pages.contains_key(page))
    }

    /// Pages that nothing lies in, and that are not in the range `but`: those behind all others, then the highest in holes.
    pub(super) fn spare(&self, but: core::ops::Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        let top = self.top;
        let behind = self.pages.range(top.max(1)..).filter(move |_| self.is_reserved());
        let holes = self.holes.ranges.iter().rev();
        let inside = holes.flat_map(|(&start, hole)| {
            let end = start + hole.bytes;
            self.pages.range(start..end).rev().filter(move |&(&page, &bytes)| page + bytes <= end)
        });
        let pages = behind.chain(inside).map(|(&page, &bytes)| (page, bytes));
        pages.filter(move |&(page, bytes)| page >= but.end || page + bytes <= but.start)
    }

    /// The same, where all that they come after `is_over`.
    pub(super) fn idle(&self, is_over: impl Fn(&LaneClock) -> bool) -> impl Iterator<Item = (u64, u64)> {
        self.spare(0..0).filter(move |&(page, _)| {
            let hole = self.holes.around(page).map(|start| &self.holes.ranges[&start].after);
            is_over(hole.unwrap_or(&self.above))
        })
    }

    pub(super) fn add_page(&mut self, page: u64) {
        self.pages.insert(page, self.page_bytes);
        self.look_again(page);
    }

    pub(super) fn remove_page(&mut self, page: u64) {
        self.pages.remove(&page);
        if self.is_reserved() {
            self.look_again(page);
        } else {
            self.remove_hole(page);
        }
    }

    /// The operations that come before all that is free.
    pub(super) fn before_all(&self) -> LaneClock {
        let mut clock = self.above.clone();
        let lists = self.streams.iter().map(|(_, list)| list).chain([&self.holes]);
        lists.flat_map(|list| list.ranges.values()).for_each(|range| clock.join(&range.after));
        clock
    }
}

fn merge(range: &mut FreeRange, other: &FreeRange) {
    range.bytes += other.bytes;
    range.freed = range.freed.max(other.freed);
    range.after.join(&other.after);
}
