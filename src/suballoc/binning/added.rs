//! `AddedBins`: the bins that came after the first request, and the blocks of theirs that are live.

use super::bin::Bin;
use crate::blocks::BlockTable;
use crate::driver::DriverResult;
use crate::resource::{DevicePtr, Layout, Resource};
use crate::stream::Places;
use crate::sync::{AtomicU64, Ordering};

/// The most bins: what a search steps over is short.
const MOST: u32 = 1 << 16;

pub(super) struct AddedBins<U: Resource, B> {
    /// In the order in which they came.
    bins: Places<Box<Bin<U, B>>>,
    count: AtomicU64,
    /// The number of the bin of each live block, by its address.
    homes: BlockTable<u32>,
}

impl<U: Resource, B> Default for AddedBins<U, B> {
    fn default() -> Self {
        Self { bins: Places::default(), count: AtomicU64::new(0), homes: BlockTable::default() }
    }
}

impl<U: Resource, B: Resource> AddedBins<U, B> {
    #[inline]
    pub(super) fn require_same_process(&self) -> DriverResult<()> {
        self.homes.require_same_process()
    }

    /// Adds a bin, or returns it if there are too many. Calls come one after the other.
    pub(super) fn push(&self, bin: Bin<U, B>) -> Option<Bin<U, B>> {
        // Relaxed: calls come one after the other.
        let count = self.count.load(Ordering::Relaxed) as u32;
        if count == MOST {
            return Some(bin);
        }
        self.bins.get_or_make(count, || Box::new(bin));
        // Release: pairs with the acquire in `iter`; who sees the count finds the bin.
        self.count.store(u64::from(count) + 1, Ordering::Release);
        None
    }

    /// In the order in which they came.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Bin<U, B>> {
        let count = self.count.load(Ordering::Acquire) as u32;
        (0..count).filter_map(|number| self.bins.get(number)).map(|bin| &**bin)
    }

    /// The smallest one that serves this layout and is smaller than `first`, the sealed bin that does, and its number; of equal ones
    /// the first. `None` for zero bytes, which reach nobody.
    #[inline]
    pub(super) fn serving(&self, layout: Layout, first: Option<&Bin<U, B>>) -> Option<(u32, &Bin<U, B>)> {
        let below = first.map_or(usize::MAX, |first| first.bytes);
        let serves = |(_, bin): &(u32, &Bin<U, B>)| bin.bytes < below && bin.serves(layout);
        // The first of equal ones: `min_by_key` says so.
        (0..).zip(self.iter()).filter(serves).min_by_key(|(_, bin)| bin.bytes).filter(|_| !layout.is_empty())
    }

    /// Enters a block of the bin with this number.
    pub(super) fn enter(&self, block: DevicePtr, number: u32) {
        self.homes.insert(block, number);
    }

    /// Removes the entry of a block, if it has one. Returns its bin.
    pub(super) fn leave(&self, block: DevicePtr) -> Option<(u32, &Bin<U, B>)> {
        let number = self.homes.take(block)?;
        Some((number, self.bins.get(number)?))
    }

    /// The bin of a live block, if it is one of these.
    pub(super) fn bin_of(&self, block: DevicePtr) -> Option<&Bin<U, B>> {
        let number = self.homes.get(block)?;
        Some(self.bins.get(number)?)
    }
}
