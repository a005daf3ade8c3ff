//! `Cache`: the blocks that one stream has freed and will want again.
//!
//! For small and medium blocks a stack for each class, for large ones a table of exact sizes. What is taken is what was put
//! in last: it is the warmest. Blocks in a cache count as out in the core.

use super::Owner;
use super::size_class::{CLASSES, Want};
use crate::resource::Layout;
use crate::stream::{Epoch, StreamId};

/// The most small and medium blocks that a cache holds. A thousand keep the swings of a hundred classes out of the core; at
/// 16 bytes each they take a third of a first-level cache.
const MOST_ENTRIES: usize = 1024;

/// How many it starts with, so that a stream that does little takes little.
const FIRST_ENTRIES: usize = 64;

/// The most that the stacks hold, in units: 256 MiB.
const MOST_UNITS: u64 = 1 << 20;

/// Blocks from here on are worth merging before another is cut: a cache that holds on to them keeps holes apart. With 64 KiB
/// a pool stays below the footprint of RMM's on each of seven traces of PyTorch jobs; with 1 MiB, or none, it does not.
pub(crate) const LONG_UNITS: u32 = 256;

/// The table of large blocks: sets by size, ways by chance. Programs have a few dozen large sizes at a
/// time. Under loom one set, because a thread of a model has 32 KiB of stack.
const SETS: usize = if cfg!(loom) { 1 } else { 16 };
const WAYS: usize = 4;
const LARGE: usize = SETS * WAYS;
const _: () = assert!(LARGE <= u64::BITS as usize);

/// An epoch beyond this does not fit beside a link. At one driver call an epoch it is years away.
const EPOCH_LIMIT: u64 = 1 << 48;

/// The stacks: one a class, and one for blocks that are all of one size.
const STACKS: usize = CLASSES + 1;

/// The end of a stack.
const NONE: u16 = u16::MAX;

/// A block in a stack: its address, and the epoch of its free above the link to the next.
#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    epoch_and_next: u64,
}

impl Entry {
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

/// A large block.
#[derive(Clone, Copy, Debug, Default)]
struct Large {
    units: u32,
    address: u64,
    epoch: u64,
}

/// A block on its way from a cache to the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spilled {
    pub(crate) address: u64,
    pub(crate) epoch: Epoch,
}

/// What a cache has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Allocations that it served.
    pub(crate) hits: u64,
    /// Units that went out through this cache's stream, less those that came back through it: the sum over all caches is
    /// what is live.
    pub(crate) live_units: i64,
    pub(crate) live_blocks: i64,
}

#[derive(Debug)]
pub(crate) struct Cache {
    stream: Option<StreamId>,
    owner: Owner,
    vacant: u16,
    turn: u8,
    /// The length of the blocks in the last stack.
    only_units: u32,
    /// How many blocks in the stacks are longer than [`LONG_UNITS`].
    long_stacked: u32,
    /// Which ways of the table are full, a bit each.
    large_full: u64,
    entries: Vec<Entry>,
    stacked_units: u64,
    large_units: u64,
    pub(crate) seen: Seen,
    heads: [u16; STACKS],
    large: [Large; LARGE],
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            stream: None,
            owner: Owner::NOBODY,
            vacant: NONE,
            turn: 0,
            only_units: 0,
            long_stacked: 0,
            large_full: 0,
            entries: Vec::new(),
            stacked_units: 0,
            large_units: 0,
            seen: Seen::default(),
            heads: [NONE; STACKS],
            large: [Large::default(); LARGE],
        }
    }
}

impl Cache {
    /// Whose blocks it holds: nobody's if that is no stream's.
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

    /// From here on it holds the blocks of this stream. It is empty: the blocks of another were spilled.
    pub(crate) fn hand_over(&mut self, stream: StreamId, owner: Owner) {
        debug_assert_eq!(self.units(), 0);
        (self.stream, self.owner) = (Some(stream), owner);
    }

    /// What it holds.
    pub(crate) fn units(&self) -> u64 {
        self.stacked_units + self.large_units
    }

    /// A block for the caller, who counts it as live.
    #[inline]
    pub(crate) fn take(&mut self, want: Want) -> Option<u64> {
        let address = match want.stack() {
            Some(stack) => self.pop(stack, want.units())?.address,
            None => self.take_large(want.units())?,
        };
        self.seen.hits += 1;
        self.note_out(want);
        Some(address)
    }

    /// Takes a block that the caller has freed, if there is room.
    #[inline]
    pub(crate) fn put(&mut self, want: Want, address: u64, epoch: Epoch) -> bool {
        let kept = self.stock_up(want, address, epoch);
        if kept {
            self.note_back(want);
        }
        kept
    }

    /// Takes a block that was never out, if there is room: one that came with another from the core.
    #[inline]
    pub(crate) fn stock_up(&mut self, want: Want, address: u64, epoch: Epoch) -> bool {
        match want.stack() {
            Some(stack) => self.push(stack, want.units(), address, epoch),
            None => self.put_large(want.units(), address, epoch),
        }
    }

    /// A block has gone out past the cache.
    #[inline]
    pub(crate) fn note_out(&mut self, want: Want) {
        self.seen.live_units += i64::from(want.units());
        self.seen.live_blocks += 1;
    }

    /// A block has come back past the cache.
    #[inline]
    pub(crate) fn note_back(&mut self, want: Want) {
        self.seen.live_units -= i64::from(want.units());
        self.seen.live_blocks -= 1;
    }

    #[inline]
    fn pop(&mut self, stack: u8, units: u32) -> Option<Entry> {
        let head = self.heads[stack as usize];
        let entry = self.entries.get_mut(head as usize)?;
        let taken = *entry;
        *entry = Entry::new(0, 0, self.vacant);
        self.vacant = head;
        self.heads[stack as usize] = taken.next();
        self.stacked_units -= u64::from(units);
        self.long_stacked -= u32::from(units > LONG_UNITS);
        Some(taken)
    }

    #[inline]
    fn push(&mut self, stack: u8, units: u32, address: u64, epoch: Epoch) -> bool {
        if self.vacant == NONE && !self.extend() {
            return false;
        }
        let stacked_units = self.stacked_units + u64::from(units);
        if stacked_units > MOST_UNITS || epoch.0 >= EPOCH_LIMIT {
            return false;
        }
        let at = self.vacant;
        let entry = &mut self.entries[at as usize];
        self.vacant = entry.next();
        *entry = Entry::new(address, epoch.0, self.heads[stack as usize]);
        self.heads[stack as usize] = at;
        self.stacked_units = stacked_units;
        self.long_stacked += u32::from(units > LONG_UNITS);
        if stack as usize == CLASSES {
            self.only_units = units;
        }
        true
    }

    /// Makes more places, if there may be more.
    #[cold]
    fn extend(&mut self) -> bool {
        let old = self.entries.len();
        let new = (old * 4).clamp(FIRST_ENTRIES, MOST_ENTRIES);
        if old >= new {
            return false;
        }
        self.entries.reserve_exact(new - old);
        for at in old..new {
            self.entries.push(Entry::new(0, 0, if at + 1 < new { at as u16 + 1 } else { NONE }));
        }
        self.vacant = old as u16;
        true
    }

    #[inline]
    fn take_large(&mut self, units: u32) -> Option<u64> {
        let first = first_way_of(units);
        let way = (first..first + WAYS)
            .find(|&way| self.large[way].units == units && self.large_full & (1 << way) != 0)?;
        self.large_full &= !(1 << way);
        self.large_units -= u64::from(units);
        Some(self.large[way].address)
    }

    #[inline]
    fn put_large(&mut self, units: u32, address: u64, epoch: Epoch) -> bool {
        let first = first_way_of(units);
        let empty = (!self.large_full >> first & ((1 << WAYS) - 1)).trailing_zeros() as usize;
        if empty >= WAYS {
            return false;
        }
        self.large_full |= 1 << (first + empty);
        self.large[first + empty] = Large { units, address, epoch: epoch.0 };
        self.large_units += u64::from(units);
        true
    }

    fn large_blocks(&self) -> impl Iterator<Item = Large> + '_ {
        (0..LARGE).filter(|way| self.large_full & (1 << way) != 0).map(|way| self.large[way])
    }

    /// Makes room for one more such block, and some: of a full set one block goes; of full stacks that of the class, and
    /// others until a quarter of the room is free.
    pub(crate) fn make_room(&mut self, want: Want, mut spill: impl FnMut(Spilled)) {
        let Some(first) = want.stack() else {
            self.turn = self.turn.wrapping_add(1);
            let way = first_way_of(want.units()) + self.turn as usize % WAYS;
            if self.large_full & (1 << way) != 0 {
                self.spill_way(way, &mut spill);
            }
            return;
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

    /// Empties it. Returns how many blocks went.
    pub(crate) fn spill(&mut self, mut spill: impl FnMut(Spilled)) -> usize {
        if self.units() == 0 {
            return 0;
        }
        let mut spilled = self.spill_large(&mut spill);
        for stack in 0..STACKS as u8 {
            spilled += self.spill_stack(stack, usize::MAX, &mut spill);
        }
        spilled
    }

    /// Spills the blocks that are longer than [`LONG_UNITS`].
    pub(crate) fn spill_long(&mut self, mut spill: impl FnMut(Spilled)) {
        self.spill_large(&mut spill);
        for class in (0..CLASSES as u8).rev() {
            if self.long_stacked == 0 {
                break;
            }
            self.spill_stack(class, usize::MAX, &mut spill);
        }
    }

    fn spill_large(&mut self, spill: &mut impl FnMut(Spilled)) -> usize {
        let mut spilled = 0;
        while self.large_full != 0 {
            self.spill_way(self.large_full.trailing_zeros() as usize, spill);
            spilled += 1;
        }
        spilled
    }

    fn spill_way(&mut self, way: usize, spill: &mut impl FnMut(Spilled)) {
        let Large { units, address, epoch } = self.large[way];
        self.large_full &= !(1 << way);
        self.large_units -= u64::from(units);
        spill(Spilled { address, epoch: Epoch(epoch) });
    }

    /// Takes up to `most` blocks off a stack.
    fn spill_stack(&mut self, stack: u8, most: usize, spill: &mut impl FnMut(Spilled)) -> usize {
        let units = if stack as usize == CLASSES { self.only_units } else { Want::Class(stack).units() };
        for spilled in 0..most {
            let Some(entry) = self.pop(stack, units) else { return spilled };
            spill(Spilled { address: entry.address, epoch: entry.epoch() });
        }
        most
    }

    /// Every block in it.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Spilled> + '_ {
        let large = self.large_blocks().map(|way| Spilled { address: way.address, epoch: Epoch(way.epoch) });
        let stacks = self.heads.iter().flat_map(move |head| {
            let mut at = *head;
            core::iter::from_fn(move || {
                let entry = self.entries.get(at as usize)?;
                at = entry.next();
                Some(Spilled { address: entry.address, epoch: entry.epoch() })
            })
        });
        large.chain(stacks)
    }

    /// The newest epoch in it.
    pub(crate) fn newest(&self) -> Option<Epoch> {
        self.blocks().map(|block| block.epoch).max()
    }

    /// The bytes that it takes itself.
    pub(crate) fn metadata_bytes(&self) -> usize {
        size_of::<Self>() + self.entries.capacity() * size_of::<Entry>()
    }
}

/// Where the set of a size begins. Sizes of one program often differ by powers of two, so all bits have their say.
#[inline]
fn first_way_of(units: u32) -> usize {
    (units.wrapping_mul(0x9E37_79B1) >> 28) as usize % SETS * WAYS
}

const _: () = assert!(Layout::MIN_ALIGN == 256);
