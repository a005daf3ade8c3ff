//! `ExpandableSegments`: a model of PyTorch's expandable segments, to hold a footprint against where PyTorch is not there.
//!
//! The model follows what PyTorch 2.11 documents and does with `expandable_segments:True`. Sizes are rounded to 512 bytes. Each stream has
//! a segment for requests of up to 1 MiB, backed by pages of 2 MiB, and one for larger requests, backed by pages of 20 MiB. A
//! segment is one range of addresses that grows at its end. A request takes the smallest free block of its segment that fits; the
//! block at the end counts as large as it can become, and so comes last. What is left of a block stays free, neighbours are joined
//! at once, and a block goes back to the stream that it was allocated on. On the traces in `tests/traces` it takes what PyTorch was
//! measured to take.

use std::collections::{BTreeMap, BTreeSet};

use super::free_list::FreeList;

const UNIT: u64 = 512;

/// Requests above it are large ones.
const SMALL: u64 = 1 << 20;

const SMALL_PAGE: u64 = 2 << 20;
const LARGE_PAGE: u64 = 20 << 20;

/// One range of addresses, from 0 on.
#[derive(Debug, Default)]
struct Segment {
    free: FreeList,
    /// Where its memory ends.
    end: u64,
}

/// A block of the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ModelBlock {
    stream: u32,
    address: u64,
    bytes: u64,
}

/// What PyTorch would have of the device.
#[derive(Debug, Default)]
pub(super) struct ExpandableSegments {
    segments: BTreeMap<(u32, bool), Segment>,
}

impl Segment {
    fn allocate(&mut self, bytes: u64, page: u64) -> u64 {
        // The free block at the end of the memory.
        let tail = self.free.last().filter(|(bytes, address)| address + bytes == self.end);
        let fitting = self.free.fitting(bytes).find(|block| Some(*block) != tail);
        if let Some((whole, address)) = fitting {
            self.free.cut(whole, address, bytes);
            return address;
        }
        let (free, address) = tail.unwrap_or((0, self.end));
        self.free.remove(address, free);
        if free < bytes {
            self.end = (address + bytes).next_multiple_of(page);
        }
        if self.end - address > bytes {
            self.free.add(address + bytes, self.end - address - bytes);
        }
        address
    }
}

impl ExpandableSegments {
    /// The bytes that are mapped. The model never gives any back where memory does not run out.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.end).sum()
    }

    pub(super) fn allocate(&mut self, bytes: u64, stream: u32) -> ModelBlock {
        // Zero bytes have no block.
        let bytes = bytes.next_multiple_of(UNIT);
        if bytes == 0 {
            return ModelBlock::default();
        }
        let is_small = bytes <= SMALL;
        let segment = self.segments.entry((stream, is_small)).or_default();
        let address = segment.allocate(bytes, if is_small { SMALL_PAGE } else { LARGE_PAGE });
        ModelBlock { stream, address, bytes }
    }

    pub(super) fn free(&mut self, block: ModelBlock) {
        let ModelBlock { stream, address, bytes } = block;
        if let Some(segment) = self.segments.get_mut(&(stream, bytes <= SMALL)) {
            segment.free.insert(address, bytes, &BTreeSet::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn small_and_large_requests_have_segments_of_their_own() {
        let mut model = ExpandableSegments::default();
        model.allocate(1, 0);
        assert_eq!(model.mapped_bytes(), 2 * MIB);
        model.allocate(MIB, 0);
        assert_eq!(model.mapped_bytes(), 2 * MIB, "up to 1 MiB is small");
        model.allocate(MIB + 1, 0);
        assert_eq!(model.mapped_bytes(), 22 * MIB);
        model.allocate(MIB, 1);
        assert_eq!(model.mapped_bytes(), 24 * MIB, "a stream has segments of its own");
    }

    #[test]
    fn a_segment_grows_at_its_end_by_what_its_free_end_lacks() {
        let mut model = ExpandableSegments::default();
        model.allocate(15 * MIB, 0);
        let next = model.allocate(25 * MIB, 0);
        assert_eq!((next.address, model.mapped_bytes()), (15 * MIB, 40 * MIB));
        model.allocate(1 + MIB, 0);
        assert_eq!(model.mapped_bytes(), 60 * MIB);
    }

    #[test]
    fn neighbours_are_joined_and_the_end_comes_last() {
        let mut model = ExpandableSegments::default();
        let all = [4, 2, 6, 3].map(|mib| model.allocate(mib * MIB, 0));
        // 5 MiB are left at the end.
        model.free(all[2]);
        assert_eq!(
            model.allocate(5 * MIB, 0).address,
            6 * MIB,
            "6 MiB inside, though 5 at the end fit better"
        );
        model.free(all[0]);
        model.free(all[1]);
        assert_eq!(model.allocate(6 * MIB, 0).address, 0);
        assert_eq!(model.mapped_bytes(), 20 * MIB);
    }

    #[test]
    fn a_block_of_no_bytes_takes_nothing() {
        let mut model = ExpandableSegments::default();
        let block = model.allocate(0, 3);
        model.free(block);
        assert_eq!(model.mapped_bytes(), 0);
    }

    #[test]
    fn a_block_goes_back_to_its_stream() {
        let mut model = ExpandableSegments::default();
        let block = model.allocate(20 * MIB, 0);
        model.free(block);
        model.allocate(20 * MIB, 1);
        assert_eq!(model.mapped_bytes(), 40 * MIB);
        assert_eq!(model.allocate(20 * MIB, 0), block);
    }
}
