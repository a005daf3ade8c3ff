//! `Cache`: free blocks of one stream, kept for its next requests.
//!
//! Small and medium blocks are in a stack for each size class, large ones in a table of exact sizes. The block that was
//! put last is taken first: it is the likeliest to be in the caches of the hardware. Blocks in a cache count as out in
//! the core.

use core::mem::offset_of;

use super::large_blocks::LargeBlocks;
use super::recent::Recent;
use super::size_class::{CLASSES, Want};
use super::{Owner, UNIT};
use crate::resource::Layout;
use crate::stream::{Epoch, StreamId};
use crate::suballoc::debugger::{Plan, Record, ShownCache};
use crate::sync::Apart;

/// The most small and medium blocks that a cache holds. A thousand absorb the swings of a hundred classes; at 16 bytes
/// each they take a third of a first-level cache.
const MOST_ENTRIES: usize = 1024;

/// The number of entries at first, so that a stream of few allocations takes little memory.
const FIRST_ENTRIES: usize = 8;

/// The unused entries at either end. They may share a cache line, or a pair of lines, with another cache's data; the
/// heap aligns to 16 bytes at least.
const EDGE: usize = align_of::<Apart<u8>>() / size_of::<CacheEntry>() - 1;

/// The most units in the stacks: 256 MiB.
const MOST_UNITS: u32 = 1 << 20;

/// Longer blocks are worth merging before another block is cut: in a cache they keep their free neighbours apart. From
/// 4 KiB to 64 KiB the footprint is above that of RMM's pool on as many of a hundred made-up workloads, to one.
pub(crate) const LONG_UNITS: u32 = 256;

/// The first class of long blocks.
const LONG_CLASS: u8 = 48;

/// Small blocks come from the core in runs: at most `RUN_BLOCKS` blocks of at most `RUN_UNITS` units (64 KiB) together.
const RUN_UNITS: u32 = 256;
const RUN_BLOCKS: u32 = if cfg!(loom) { 2 } else { 16 };

/// The first run has 2 to this power blocks. In the models the first one has several already.
const FIRST_RUN: u8 = if cfg!(loom) { 1 } else { 0 };

/// The classes whose blocks fit in a run twice.
const RUN_CLASSES: usize = 40;

const _: () = assert!(RUN_CLASSES < CLASSES);

/// A later epoch does not fit beside a link. At one driver call for each epoch that takes years.
const EPOCH_LIMIT: u64 = 1 << 48;

/// The stacks: one for each class, and one for suballocators of one block size.
const STACKS: usize = CLASSES + 1;

/// The room for them: a power of two, so that an index modulo it needs no check.
const HEADS: usize = 128;
const _: () = assert!(STACKS <= HEADS);
const _: () = assert!(MOST_ENTRIES + 2 * EDGE < NONE as usize);

/// The end of a stack.
const NONE: u16 = u16::MAX;

/// A block in a stack: its address, the epoch of its free in the upper 48 bits, the link to the next entry in the lower
/// 16.
#[derive(Clone, Copy, Debug)]
struct CacheEntry {
    address: u64,
    epoch_and_next: u64,
}

impl CacheEntry {
    #[inline]
    fn new(address: u64, epoch: u64, next: u16) -> Self {
        Self { address, epoch_and_next: epoch << 16 | u64::from(next) }
    }

    #[inline]
    fn next(self) -> u16 {
        self.epoch_and_next as u16
    }

    fn epoch(self) -> Epoch {
        Epoch(self.epoch_and_next >> 16)
    }
}

/// A block on its way from a cache to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spilled {
    pub(crate) address: u64,
    pub(crate) epoch: Epoch,
}

#[derive(Debug)]
pub(crate) struct Cache {
    stream: Option<StreamId>,
    owner: Owner,
    vacant: u16,
    turn: u8,
    /// It was emptied for another requester, and has not missed since.
    was_emptied: bool,
    /// The length of the blocks in the last stack, which are all of one size.
    only_units: u32,
    /// With an [`EDGE`] in front and behind.
    entries: Vec<CacheEntry>,
    stacked_units: u32,
    /// The long block that the core has cut last for this stream, over pages: the lower bits of its unit, 0 for none.
    last_cut: u32,
    hits: u64,
    misses: u64,
    /// The sum of `hits` and `misses` at the last call of [`is_idle`](Self::is_idle).
    looked_at: u64,
    heads: [u16; HEADS],
    recent: Recent,
    /// The next run of each class, and of blocks of one size, has 2 to this power blocks.
    runs: [u8; RUN_CLASSES + 1],
    large: LargeBlocks,
    shown: ShownCache,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            stream: None,
            owner: Owner::UNOWNED,
            vacant: NONE,
            turn: 0,
            was_emptied: false,
            only_units: 0,
            entries: Vec::new(),
            stacked_units: 0,
            last_cut: 0,
            hits: 0,
            misses: 0,
            looked_at: 0,
            heads: [NONE; HEADS],
            recent: Recent::NONE,
            runs: [FIRST_RUN; RUN_CLASSES + 1],
            large: LargeBlocks::default(),
            shown: ShownCache::default(),
        }
    }
}

impl Cache {
    /// The stream whose blocks it holds; `None` for synchronous calls.
    pub(crate) fn stream(&self) -> Option<StreamId> {
        self.stream
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    #[inline]
    pub(crate) fn is_of(&self, stream: StreamId) -> bool {
        self.stream == Some(stream)
    }

    /// Makes it the cache of this stream. It is empty: the blocks of the former stream were spilled.
    pub(crate) fn hand_over(&mut self, stream: StreamId, owner: Owner) {
        debug_assert_eq!(self.units(), 0);
        (self.stream, self.owner) = (Some(stream), owner);
        self.shown.stream = stream.number();
    }

    /// Has a debugger find it, where it stays, and from here the caches that it finds so far. Called once, under the mutex.
    pub(in crate::suballoc) fn show(&mut self, record: &Record) {
        self.shown.next = record.first_cache();
        record.begin_with(&self.shown);
    }

    /// The units in it.
    pub(crate) fn units(&self) -> u64 {
        u64::from(self.stacked_units) + self.large.units()
    }

    /// Takes a block out.
    #[inline]
    pub(crate) fn take(&mut self, want: Want) -> Option<u64> {
        let address = match want.stack() {
            Some(stack) => self.pop(stack, want.units())?.address,
            None => self.large.take(want.units())?,
        };
        self.hits += 1;
        Some(address)
    }

    /// Puts a free block in. Returns `false` if there is no room, or if it [is there](Self::holds).
    #[inline]
    pub(crate) fn put(&mut self, want: Want, address: u64, epoch: Epoch) -> bool {
        match want.stack() {
            Some(stack) => self.push(stack, want.units(), address, epoch),
            None => self.large.put(want.units(), address, epoch),
        }
    }

    /// Puts a large block in where large blocks are not cached, if it is the one that was [noted](Self::note_in_place), and the mutex of the
    /// core was not taken since. Then the next request of that size has it, as it would have had it of the core, and any other request
    /// of this stream that is long [gives it back](Self::spill_large) first. So the core decides where blocks lie, as if it were asked.
    #[inline]
    pub(crate) fn put_in_place(&mut self, want: Want, address: u64, epoch: Epoch, locks: usize) -> bool {
        self.large.put_in_place(want.units(), address, epoch, locks)
    }

    /// Notes the long block that the core has cut last for this stream.
    #[inline]
    pub(crate) fn note_cut(&mut self, address: u64) {
        self.last_cut = low_bits(address);
    }

    /// Returns `true` if it is that block, or one that lies a multiple of a TiB from it. A program that frees it before it asks for another
    /// long one is likely to ask for the same size again. Of other blocks the core would seldom cut the next one [where they
    /// lie](Self::put_in_place), and to ask it takes 400 instructions.
    #[inline]
    pub(crate) fn was_cut_last(&self, address: u64) -> bool {
        self.last_cut == low_bits(address)
    }

    /// Notes that the core would cut this block again where it lies.
    pub(crate) fn note_in_place(&mut self, want: Want, address: u64, locks: usize) {
        self.large.note_in_place(want.units(), address, locks);
    }

    /// Returns `true` if the block is known to be here: if it is large, or one of those that were put last.
    #[cold]
    pub(crate) fn holds(&self, want: Want, address: u64) -> bool {
        match want.stack() {
            Some(_) => self.recent.has(address),
            None => self.large.has(want.units(), address),
        }
    }

    /// The number of allocations served so far.
    pub(crate) fn hits(&self) -> u64 {
        self.hits
    }

    /// How many blocks the core gives for a request that missed: one, or a run of small ones, of which the rest is put
    /// here. No more than the misses of the class, so that a cache holds no more than its stream uses, for any number
    /// of streams.
    pub(crate) fn run(&self, want: Want) -> u32 {
        run_of(want).map_or(1, |(class, most)| most.min(1 << self.runs[class]))
    }

    /// Notes a miss, which the core has served. Returns `true` if it is the first one since the cache was [emptied for
    /// another requester](Self::spill_for_other).
    pub(crate) fn miss(&mut self, want: Want) -> bool {
        self.misses += 1;
        if let Some((class, most)) = run_of(want)
            && 1 << self.runs[class] < most
        {
            self.runs[class] += 1;
        }
        core::mem::take(&mut self.was_emptied)
    }

    /// Returns `true` if no allocation came here since the last call.
    pub(crate) fn is_idle(&mut self) -> bool {
        let now = self.hits + self.misses;
        core::mem::replace(&mut self.looked_at, now) == now
    }

    /// Empties it for another requester. Returns the number of blocks.
    pub(crate) fn spill_for_other(&mut self, spill: impl FnMut(Spilled)) -> usize {
        let spilled = self.spill(spill);
        self.was_emptied |= spilled > 0;
        spilled
    }

    #[inline]
    fn pop(&mut self, stack: u8, units: u32) -> Option<CacheEntry> {
        let head = self.heads[stack as usize % HEADS];
        let entry = self.entries.get_mut(head as usize)?;
        let taken = *entry;
        *entry = CacheEntry::new(0, 0, self.vacant);
        self.recent.forget(taken.address);
        self.vacant = head;
        self.heads[stack as usize % HEADS] = taken.next();
        self.stacked_units -= units;
        Some(taken)
    }

    #[inline]
    fn push(&mut self, stack: u8, units: u32, address: u64, epoch: Epoch) -> bool {
        if self.vacant == NONE && !self.extend(stack, units) {
            return false;
        }
        // Where all blocks have one size, that may be 2^32 units.
        let stacked_units = self.stacked_units.saturating_add(units);
        if stacked_units > MOST_UNITS || epoch.0 >= EPOCH_LIMIT || !self.recent.note(address) {
            return false;
        }
        let at = self.vacant;
        let entry = &mut self.entries[at as usize];
        self.vacant = entry.next();
        *entry = CacheEntry::new(address, epoch.0, self.heads[stack as usize % HEADS]);
        self.heads[stack as usize % HEADS] = at;
        self.stacked_units = stacked_units;
        true
    }

    /// Makes more entries, up to [`MOST_ENTRIES`].
    #[cold]
    #[inline(never)]
    fn extend(&mut self, stack: u8, units: u32) -> bool {
        if stack as usize == CLASSES {
            self.only_units = units;
        }
        let old = self.entries.len().saturating_sub(2 * EDGE);
        let new = (old * 4).clamp(FIRST_ENTRIES, MOST_ENTRIES);
        if old >= new {
            return false;
        }
        let (first, end) = (EDGE + old, EDGE + new);
        let mut longer = Vec::with_capacity(end + EDGE);
        longer.append(&mut self.entries);
        longer.resize(end + EDGE, CacheEntry::new(0, 0, NONE));
        // Before the old ones go, for a debugger.
        self.shown.entries.lead_to(longer.as_ptr());
        self.entries = longer;
        for at in first..end {
            self.entries[at] = CacheEntry::new(0, 0, if at + 1 < end { at as u16 + 1 } else { NONE });
        }
        self.vacant = first as u16;
        true
    }

    /// Makes room for one more such block. From a full set it takes one block; from full stacks a quarter of all
    /// entries, those of the same class first.
    pub(crate) fn make_room(&mut self, want: Want, mut spill: impl FnMut(Spilled)) {
        let Some(first) = want.stack() else {
            self.turn = self.turn.wrapping_add(1);
            return self.large.make_room(want.units(), self.turn, spill);
        };
        let mut spilled = 0;
        for turn in 0..STACKS {
            if spilled >= MOST_ENTRIES / 4 {
                break;
            }
            spilled +=
                self.spill_stack(((first as usize + turn) % STACKS) as u8, MOST_ENTRIES / 4, &mut spill);
        }
    }

    /// Empties it. Returns the number of blocks.
    pub(crate) fn spill(&mut self, mut spill: impl FnMut(Spilled)) -> usize {
        if self.units() == 0 {
            return 0;
        }
        let mut spilled = self.large.spill(&mut spill);
        for stack in 0..STACKS as u8 {
            spilled += self.spill_stack(stack, usize::MAX, &mut spill);
        }
        // Memory is short: the next runs are half as long.
        self.runs.iter_mut().for_each(|run| *run = run.saturating_sub(1));
        spilled
    }

    /// Returns `true` if it has a block that is longer than [`LONG_UNITS`]. An empty stack is all ones, so that the stacks are compared
    /// together, sixteen at a time.
    #[inline]
    pub(crate) fn has_long(&self) -> bool {
        let stacks = &self.heads[usize::from(LONG_CLASS)..CLASSES];
        !self.large.is_empty() || stacks.iter().fold(NONE, |all, head| all & head) != NONE
    }

    /// Spills the blocks that are longer than [`LONG_UNITS`]. Returns the number of blocks.
    pub(crate) fn spill_long(&mut self, mut spill: impl FnMut(Spilled)) -> usize {
        if !self.has_long() {
            return 0;
        }
        let mut spilled = self.large.spill(&mut spill);
        for class in LONG_CLASS..CLASSES as u8 {
            if self.heads[class as usize] != NONE {
                spilled += self.spill_stack(class, usize::MAX, &mut spill);
            }
        }
        spilled
    }

    /// Spills the large blocks. Returns the number of blocks.
    #[inline]
    pub(crate) fn spill_large(&mut self, spill: impl FnMut(Spilled)) -> usize {
        self.large.spill(spill)
    }

    /// Takes up to `most` blocks off a stack.
    fn spill_stack(&mut self, stack: u8, most: usize, spill: &mut impl FnMut(Spilled)) -> usize {
        let units = if stack as usize == CLASSES { self.only_units } else { Want::class(stack).units() };
        for spilled in 0..most {
            let Some(entry) = self.pop(stack, units) else { return spilled };
            spill(Spilled { address: entry.address, epoch: entry.epoch() });
        }
        most
    }

    /// Every block in it.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Spilled> + '_ {
        let stacks = self.heads.iter().flat_map(move |head| {
            let mut at = *head;
            core::iter::from_fn(move || {
                let entry = self.entries.get(at as usize)?;
                at = entry.next();
                Some(Spilled { address: entry.address, epoch: entry.epoch() })
            })
        });
        self.large.iter().chain(stacks)
    }

    /// The newest epoch of its blocks.
    pub(crate) fn newest(&self) -> Option<Epoch> {
        self.blocks().map(|block| block.epoch).max()
    }

    /// The same plan, with the places of the fields of caches.
    pub(super) const fn plan(plan: Plan) -> Plan {
        Plan {
            cache_shown: offset_of!(Self, shown) as u32,
            cache_heads: offset_of!(Self, heads) as u32,
            cache_stacks: STACKS as u32,
            cache_hits: offset_of!(Self, hits) as u32,
            cache_misses: offset_of!(Self, misses) as u32,
            entry_bytes: size_of::<CacheEntry>() as u32,
            entry_address: offset_of!(CacheEntry, address) as u32,
            entry_link: offset_of!(CacheEntry, epoch_and_next) as u32,
            ..LargeBlocks::plan(plan, offset_of!(Self, large))
        }
    }

    /// The host memory that it takes, in bytes.
    pub(crate) fn metadata_bytes(&self) -> usize {
        size_of::<Self>() + self.entries.capacity() * size_of::<CacheEntry>() + self.large.table_bytes()
    }
}

#[inline]
fn low_bits(address: u64) -> u32 {
    (address / UNIT) as u32
}

/// Which of the `runs` is that of a request, and the longest, if it may have one at all.
fn run_of(want: Want) -> Option<(usize, u32)> {
    let most = (RUN_UNITS / want.units()).min(RUN_BLOCKS);
    let stack = want.stack().filter(|_| most > 1)?;
    Some(((stack as usize).min(RUN_CLASSES), most))
}

const _: () = assert!(Layout::MIN_ALIGN == 256);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_long_class_is_the_first_that_is_long() {
        assert!(Want::class(LONG_CLASS).units() > LONG_UNITS);
        assert_eq!(Want::class(LONG_CLASS - 1).units(), LONG_UNITS);
    }

    /// A cache holds what was put in, gives it out last in first out, and says what it holds.
    #[test]
    fn a_cache_is_a_stack_for_each_class() {
        let mut cache = Cache::default();
        let wants = [1, 17, 300, 4096, 5000, 1 << 20].map(|units| Want::of_units(units).expect("not zero"));
        for (at, want) in wants.into_iter().enumerate() {
            let at = at as u64 * 1000;
            assert_eq!(cache.take(want), None);
            assert!(cache.put(want, at + 256, Epoch(at + 1)) && cache.put(want, at + 512, Epoch(at + 2)));
        }
        assert_eq!(cache.blocks().count(), 12);
        assert_eq!(cache.units(), wants.iter().map(|want| 2 * u64::from(want.units())).sum::<u64>());
        assert_eq!(cache.newest(), Some(Epoch(5002)));
        let mut spilled = Vec::new();
        cache.spill_long(|block| spilled.push(block.address));
        spilled.sort_unstable();
        assert_eq!(spilled, [2256, 2512, 3256, 3512, 4256, 4512, 5256, 5512]);
        for (at, want) in wants.into_iter().enumerate().take(2) {
            let at = at as u64 * 1000;
            assert_eq!(
                (cache.take(want), cache.take(want), cache.take(want)),
                (Some(at + 512), Some(at + 256), None)
            );
        }
        assert_eq!((cache.units(), cache.hits(), cache.blocks().count()), (0, 4, 0));
    }

    #[test]
    fn a_full_cache_takes_no_more_until_room_is_made() {
        let (mut cache, small) = (Cache::default(), Want::of_units(1).expect("not zero"));
        let held = (0..).take_while(|at| cache.put(small, at * 256 + 256, Epoch(1))).count();
        assert_eq!(held, MOST_ENTRIES);
        let mut spilled = 0;
        cache.make_room(small, |_| spilled += 1);
        assert_eq!(spilled, MOST_ENTRIES / 4);
        assert!(cache.put(small, 1 << 40, Epoch(1)));
        assert_eq!(cache.blocks().count(), held - spilled + 1);

        let large = Want::of_units(9999).expect("not zero");
        let held = (0..).take_while(|at| cache.put(large, (1 << 50) + at * 256, Epoch(1))).count();
        assert_eq!(held, LargeBlocks::WAYS);
        let mut spilled = 0;
        cache.make_room(large, |_| spilled += 1);
        assert!(spilled == 1 && cache.put(large, 1 << 51, Epoch(1)));
    }

    /// The pairs of cache lines that the data lies in.
    fn lines_of<T>(data: &[T]) -> std::ops::Range<usize> {
        let pair = align_of::<Apart<u8>>();
        let first = data.as_ptr() as usize;
        first / pair..(first + size_of_val(data)).div_ceil(pair)
    }

    /// Caches that one thread makes and others use share no cache line: a hit of one does not slow down another.
    #[test]
    fn caches_share_no_line() {
        let mut caches: Vec<_> = (0..20).map(|_| Box::new(Apart(Cache::default()))).collect();
        let [small, large] = [1, 5000].map(|units| Want::of_units(units).expect("not zero"));
        for cache in &mut caches {
            assert!(cache.put(large, 1 << 40, Epoch(1)));
        }
        for at in 1..20 {
            caches.iter_mut().for_each(|cache| assert!(cache.put(small, at * 256, Epoch(1))));
        }
        let mut lines = std::collections::HashSet::new();
        for cache in &caches {
            let own = [
                lines_of(core::slice::from_ref(&**cache)),
                lines_of(&cache.entries[EDGE..cache.entries.len() - EDGE]),
                cache.large.table().map(lines_of).expect("a large block is in it"),
            ];
            let shared = own.into_iter().flatten().find(|line| !lines.insert(*line));
            assert_eq!(shared, None, "a pair of lines has data of two caches");
        }
    }

    #[test]
    fn bytes_and_epochs_have_bounds() {
        let (mut cache, medium) = (Cache::default(), Want::of_units(4096).expect("not zero"));
        let held = (0..).take_while(|at| cache.put(medium, (at << 20) + 256, Epoch(1))).count() as u64;
        assert_eq!(held * 4096, u64::from(MOST_UNITS));
        let mut cache = Cache::default();
        assert!(!cache.put(medium, 256, Epoch(EPOCH_LIMIT)), "the epoch would run into the link");
        assert!(cache.put(medium, 256, Epoch(EPOCH_LIMIT - 1)));
        assert_eq!(cache.newest(), Some(Epoch(EPOCH_LIMIT - 1)));
    }
}
