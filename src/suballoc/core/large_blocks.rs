//! `LargeBlocks`: the large blocks of a cache, by their exact sizes.

use core::mem::offset_of;

use super::cache::Spilled;
use crate::stream::Epoch;
use crate::suballoc::debugger::Plan;
use crate::sync::Apart;

/// The size selects the set, and any way of it may hold the block. Programs use a few dozen large sizes at a time. Under loom one set,
/// because a thread of a model has 32 KiB of stack.
const SETS: usize = if cfg!(loom) { 1 } else { 16 };
const WAYS: usize = 4;
const LARGE: usize = SETS * WAYS;
const _: () = assert!(LARGE <= u64::BITS as usize);

#[derive(Clone, Copy, Debug, Default)]
struct Large {
    units: u32,
    address: u64,
    epoch: u64,
}

/// A block that the core would cut again where it lies, as of a count of locks: see [`LargeBlocks::put_in_place`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct InPlace {
    address: u64,
    units: u32,
    locks: usize,
}

/// A debugger finds the blocks at its address.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct LargeTable {
    blocks: [Large; LARGE],
    in_place: InPlace,
}

/// A table of blocks.
#[derive(Debug, Default)]
pub(super) struct LargeBlocks {
    /// Which ways of the table are full, a bit each.
    full: u64,
    units: u64,
    /// Made when the first block comes: 1.5 KiB, which most streams never need.
    table: Option<Box<Apart<LargeTable>>>,
}

impl LargeBlocks {
    /// How many blocks of one size there may be.
    #[cfg(all(test, not(loom)))]
    pub(super) const WAYS: usize = WAYS;

    pub(super) fn units(&self) -> u64 {
        self.units
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.full == 0
    }

    #[inline]
    pub(super) fn take(&mut self, units: u32) -> Option<u64> {
        let first = first_way_of(units);
        let table = self.table.as_deref()?;
        let way = (first..first + WAYS)
            .find(|&way| table.blocks[way].units == units && self.full & (1 << way) != 0)?;
        self.full &= !(1 << way);
        self.units -= u64::from(units);
        Some(table.blocks[way].address)
    }

    /// Returns `false` if there is no room, or if the block is there.
    #[inline]
    pub(super) fn put(&mut self, units: u32, address: u64, epoch: Epoch) -> bool {
        let first = first_way_of(units);
        let empty = (!self.full >> first & ((1 << WAYS) - 1)).trailing_zeros() as usize;
        if empty >= WAYS || self.has(units, address) {
            return false;
        }
        self.table_mut().blocks[first + empty] = Large { units, address, epoch: epoch.0 };
        self.full |= 1 << (first + empty);
        self.units += u64::from(units);
        true
    }

    /// Puts a block in, if it is the one that was [noted](Self::note_in_place) at the same count of locks, and there is no other.
    #[inline]
    pub(super) fn put_in_place(&mut self, units: u32, address: u64, epoch: Epoch, locks: usize) -> bool {
        self.table.as_ref().is_some_and(|table| table.in_place == InPlace { address, units, locks })
            && self.is_empty()
            && self.put(units, address, epoch)
    }

    /// Notes that the core would cut this block again where it lies.
    pub(super) fn note_in_place(&mut self, units: u32, address: u64, locks: usize) {
        self.table_mut().in_place = InPlace { address, units, locks };
    }

    pub(super) fn has(&self, units: u32, address: u64) -> bool {
        let first = first_way_of(units);
        // Most often the set is empty.
        let full = self.full >> first & ((1 << WAYS) - 1);
        let Some(table) = self.table.as_deref().filter(|_| full != 0) else { return false };
        (0..WAYS).any(|way| table.blocks[first + way].address == address && full & (1 << way) != 0)
    }

    /// Spills one block of the set of that size, another one each turn.
    pub(super) fn make_room(&mut self, units: u32, turn: u8, mut spill: impl FnMut(Spilled)) {
        let way = first_way_of(units) + turn as usize % WAYS;
        if self.full & (1 << way) != 0 {
            self.spill_way(way, &mut spill);
        }
    }

    /// Empties it. Returns the number of blocks.
    #[inline]
    pub(super) fn spill(&mut self, mut spill: impl FnMut(Spilled)) -> usize {
        let mut spilled = 0;
        while self.full != 0 {
            self.spill_way(self.full.trailing_zeros() as usize, &mut spill);
            spilled += 1;
        }
        spilled
    }

    fn spill_way(&mut self, way: usize, spill: &mut impl FnMut(Spilled)) {
        self.full &= !(1 << way);
        let Some(Large { units, address, epoch }) = self.table.as_ref().map(|table| table.blocks[way]) else {
            return;
        };
        self.units -= u64::from(units);
        spill(Spilled { address, epoch: Epoch(epoch) });
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Spilled> + '_ {
        let all = self.table.iter().flat_map(|table| table.blocks.iter().enumerate());
        let full = all.filter(|(way, _)| self.full & (1 << way) != 0);
        full.map(|(_, block)| Spilled { address: block.address, epoch: Epoch(block.epoch) })
    }

    /// The host memory that it takes beside the cache, in bytes.
    pub(super) fn table_bytes(&self) -> usize {
        self.table.as_ref().map_or(0, |table| size_of_val(&**table))
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn table(&self) -> Option<&[Apart<LargeTable>]> {
        self.table.as_deref().map(core::slice::from_ref)
    }

    #[inline]
    fn table_mut(&mut self) -> &mut LargeTable {
        self.table.get_or_insert_with(no_large_blocks)
    }

    /// The same plan, with the places of the fields, where it lies so far within a cache.
    pub(super) const fn plan(plan: Plan, within: usize) -> Plan {
        Plan {
            cache_large: (within + offset_of!(Self, table)) as u32,
            cache_large_full: (within + offset_of!(Self, full)) as u32,
            large_bytes: size_of::<Large>() as u32,
            large_address: offset_of!(Large, address) as u32,
            large_epoch: offset_of!(Large, epoch) as u32,
            ..plan
        }
    }
}

/// Out of line, because it is needed once.
#[cold]
#[inline(never)]
fn no_large_blocks() -> Box<Apart<LargeTable>> {
    Box::new(Apart(LargeTable { blocks: [Large::default(); LARGE], in_place: InPlace::default() }))
}

/// Where the set of a size begins. Sizes of one program often differ by powers of two, so all bits have their say.
#[inline]
fn first_way_of(units: u32) -> usize {
    (units.wrapping_mul(0x9E37_79B1) >> 28) as usize % SETS * WAYS
}
