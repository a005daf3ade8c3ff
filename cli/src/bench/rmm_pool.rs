//! `RmmPool`: a model of RMM's pool, to hold a footprint against where RMM is not there.
//!
//! It follows what RMM 26.08 does: free lists per stream, best fit in each, neighbours joined at once unless the second begins a
//! block of the upstream; where a stream finds nothing it looks into the others' lists, then takes these over one after the
//! other, and then the pool doubles. On the traces in `tests/traces` it takes what RMM's own was measured to take.

use std::collections::{BTreeMap, BTreeSet};

use super::free_list::FreeList;

const UNIT: u64 = 256;

/// A device has its memory in pages of 2 MiB, and gives no less for a segment.
const PAGE: u64 = 2 << 20;

/// The front of the smallest block that fits.
fn take(list: &mut FreeList, bytes: u64) -> Option<u64> {
    let (whole, address) = list.fitting(bytes).next()?;
    list.cut(whole, address, bytes);
    Some(address)
}

/// What RMM's pool would have of its upstream.
#[derive(Debug, Default)]
pub(super) struct RmmPool {
    lists: BTreeMap<u32, FreeList>,
    /// Where blocks of the upstream begin.
    heads: BTreeSet<u64>,
    reserved: u64,
    /// The same, each segment in whole pages.
    paged: u64,
}

impl RmmPool {
    /// What it has asked its upstream for.
    #[cfg(test)]
    pub(super) fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    /// What the device has given for it.
    pub(super) fn paged_bytes(&self) -> u64 {
        self.paged
    }

    pub(super) fn allocate(&mut self, bytes: u64, stream: u32) -> u64 {
        let bytes = bytes.next_multiple_of(UNIT);
        let own = self.lists.entry(stream).or_default();
        if let Some(address) = take(own, bytes) {
            return address;
        }
        // What is behind a block of another stream stays with that stream.
        let others = self.lists.iter_mut().filter(|(other, _)| **other != stream);
        if let Some(address) = others.into_iter().find_map(|(_, list)| take(list, bytes)) {
            return address;
        }
        let mut own = self.lists.remove(&stream).unwrap_or_default();
        let mut found = None;
        while found.is_none()
            && let Some((_, list)) = self.lists.pop_first()
        {
            for (address, bytes) in list.into_blocks() {
                own.insert(address, bytes, &self.heads);
            }
            found = take(&mut own, bytes);
        }
        let address = found.unwrap_or_else(|| {
            let segment = bytes.max(self.reserved);
            // One after the other: the next begins a block of its own.
            let address = self.reserved;
            self.heads.insert(address);
            self.reserved += segment;
            self.paged += segment.next_multiple_of(PAGE);
            if segment > bytes {
                own.insert(address + bytes, segment - bytes, &self.heads);
            }
            address
        });
        self.lists.insert(stream, own);
        address
    }

    pub(super) fn free(&mut self, address: u64, bytes: u64, stream: u32) {
        let list = self.lists.entry(stream).or_default();
        list.insert(address, bytes.next_multiple_of(UNIT), &self.heads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn it_doubles_or_takes_what_is_asked_for() {
        let mut pool = RmmPool::default();
        pool.allocate(100 * KIB, 0);
        assert_eq!(pool.reserved_bytes(), 100 * KIB);
        pool.allocate(1, 0);
        assert_eq!(pool.reserved_bytes(), 200 * KIB);
        pool.allocate(300 * KIB, 0);
        assert_eq!(pool.reserved_bytes(), 500 * KIB);
    }

    #[test]
    fn neighbours_are_joined_but_not_over_the_edge_of_a_segment() {
        let mut pool = RmmPool::default();
        let all = [0, 1].map(|_| pool.allocate(64 * KIB, 0));
        assert_eq!(pool.reserved_bytes(), 128 * KIB);
        all.into_iter().for_each(|address| pool.free(address, 64 * KIB, 0));
        pool.allocate(65 * KIB, 0);
        assert_eq!(pool.reserved_bytes(), 256 * KIB, "the second was a segment");

        let mut pool = RmmPool::default();
        let first = pool.allocate(128 * KIB, 0);
        pool.free(first, 128 * KIB, 0);
        let parts = [0, 1, 2].map(|_| pool.allocate(32 * KIB, 0));
        parts.into_iter().for_each(|address| pool.free(address, 32 * KIB, 0));
        assert_eq!(pool.allocate(128 * KIB, 0), first);
        assert_eq!(pool.reserved_bytes(), 128 * KIB);
    }

    #[test]
    fn the_smallest_that_fits_is_taken_and_then_the_lowest() {
        let mut pool = RmmPool::default();
        let whole = pool.allocate(KIB * 64, 0);
        pool.free(whole, 64 * KIB, 0);
        let all = [8, 1, 4, 1, 4, 1].map(|kib| (pool.allocate(kib * KIB, 0), kib * KIB));
        [0, 4, 2].into_iter().for_each(|at: usize| pool.free(all[at].0, all[at].1, 0));
        assert_eq!(pool.allocate(3 * KIB, 0), all[2].0);
        assert_eq!(pool.allocate(4 * KIB, 0), all[4].0);
        assert_eq!(pool.allocate(4 * KIB, 0), all[0].0);
    }

    #[test]
    fn another_stream_s_block_is_taken_and_its_rest_stays_there() {
        let mut pool = RmmPool::default();
        let first = pool.allocate(64 * KIB, 0);
        pool.free(first, 64 * KIB, 0);
        assert_eq!(pool.allocate(16 * KIB, 1), first);
        assert_eq!(pool.allocate(16 * KIB, 0), first + 16 * KIB);
        assert_eq!(pool.reserved_bytes(), 64 * KIB);
        // Halves of two streams: the list of the other is taken over, and they are one block.
        pool.free(first, 16 * KIB, 1);
        pool.free(first + 16 * KIB, 16 * KIB, 0);
        assert_eq!(pool.allocate(64 * KIB, 2), first);
        assert_eq!(pool.reserved_bytes(), 64 * KIB);
    }
}
