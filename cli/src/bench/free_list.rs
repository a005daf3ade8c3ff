//! `FreeList`: the free blocks of a model, by address and by size.

use std::collections::{BTreeMap, BTreeSet};

/// Free blocks that merge with their neighbours.
#[derive(Debug, Default)]
pub(super) struct FreeList {
    by_address: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl FreeList {
    /// Adds a block, merged with its neighbours. A block that begins at one of `heads` does not merge with what is before it.
    pub(super) fn insert(&mut self, mut address: u64, mut bytes: u64, heads: &BTreeSet<u64>) {
        if !heads.contains(&address)
            && let Some((&before, &length)) = self.by_address.range(..address).next_back()
            && before + length == address
        {
            self.remove(before, length);
            (address, bytes) = (before, length + bytes);
        }
        if let Some(&length) = self.by_address.get(&(address + bytes))
            && !heads.contains(&(address + bytes))
        {
            self.remove(address + bytes, length);
            bytes += length;
        }
        self.add(address, bytes);
    }

    /// Removes a block of that length.
    pub(super) fn remove(&mut self, address: u64, bytes: u64) {
        self.by_address.remove(&address);
        self.by_size.remove(&(bytes, address));
    }

    /// Adds a block that does not merge.
    pub(super) fn add(&mut self, address: u64, bytes: u64) {
        self.by_address.insert(address, bytes);
        self.by_size.insert((bytes, address));
    }

    /// The blocks of at least that length, each with its length first; the smallest one first, and of several the lowest.
    pub(super) fn fitting(&self, bytes: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_size.range((bytes, 0)..).copied()
    }

    /// Takes the front of a block; what is behind stays.
    pub(super) fn cut(&mut self, whole: u64, address: u64, bytes: u64) {
        self.remove(address, whole);
        if whole > bytes {
            self.add(address + bytes, whole - bytes);
        }
    }

    /// The last block: its length and its address.
    pub(super) fn last(&self) -> Option<(u64, u64)> {
        self.by_address.last_key_value().map(|(&address, &bytes)| (bytes, address))
    }

    /// Each block, with its length.
    pub(super) fn into_blocks(self) -> impl Iterator<Item = (u64, u64)> {
        self.by_address.into_iter()
    }
}
