//! `AlignedBook`: the book of `Aligned`.

use crate::blocks::BlockTable;
use crate::error::Error;
use crate::error::OutOfMemory;
use crate::resource::{DevicePtr, Layout};

/// Alignments up to this one at least are honoured over every upstream, by longer requests: 2 MiB, a page of the
/// device, as in suballocators.
const MAX_ALIGN: usize = 2 << 20;

/// The upstream addresses of the blocks of an [`Aligned`](super::Aligned) that begin elsewhere for their users.
///
/// ```
/// use alluvion::adaptor::Aligned;
/// use alluvion::{AnyResource, Layout, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let resource = AnyResource::new(Cuda::new(&sim.device(0)).aligned(1 << 20)?);
/// let moves = resource.find::<Aligned>().expect("there is an `Aligned` in it");
/// assert_eq!((moves.alignment(), moves.threshold_bytes(), moves.moved_blocks()), (1 << 20, 0, 0));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
pub struct AlignedBook {
    alignment: usize,
    threshold_bytes: usize,
    /// The largest alignment of the upstream. Asked once, because a block must be freed with the layout that it was
    /// allocated with.
    honoured: usize,
    /// From the address for the user to the address for the upstream.
    moved: BlockTable<DevicePtr>,
}

/// The request to the upstream that serves a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UpstreamRequest {
    pub(super) layout: Layout,
    /// The final alignment of the block. If it is more than the layout's, the layout has room for it.
    pub(super) align: usize,
}

impl AlignedBook {
    pub(super) fn new(alignment: usize, threshold_bytes: usize, honoured: usize) -> Result<Self, Error> {
        if !alignment.is_power_of_two() {
            return Err(Error::invalid_alignment(alignment));
        }
        Ok(Self { alignment, threshold_bytes, honoured, moved: BlockTable::default() })
    }

    /// The alignment of blocks of at least [`threshold_bytes`](Self::threshold_bytes).
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// The least length of a block that is aligned.
    #[must_use]
    pub fn threshold_bytes(&self) -> usize {
        self.threshold_bytes
    }

    /// The number of live blocks that begin elsewhere than the upstream's.
    #[must_use]
    pub fn moved_blocks(&self) -> usize {
        self.moved.len()
    }

    /// The address of a live block for the upstream.
    #[must_use]
    pub fn origin(&self, block: DevicePtr) -> DevicePtr {
        self.moved.get(block).unwrap_or(block)
    }

    pub(super) fn max_align(&self) -> usize {
        self.honoured.max(self.alignment).max(MAX_ALIGN)
    }

    pub(super) fn request(&self, layout: Layout) -> Result<UpstreamRequest, Error> {
        self.moved.require_same_process()?;
        layout.require_align(self.max_align())?;
        let too_large = |_| Error::from(OutOfMemory::too_large("Aligned", layout.bytes(), layout.align()));
        let wanted = if layout.bytes() >= self.threshold_bytes { self.alignment } else { 1 };
        let align = layout.align().max(wanted);
        if align <= self.honoured {
            let layout = Layout::new(layout.bytes(), align).map_err(too_large)?;
            return Ok(UpstreamRequest { layout, align: layout.block_align() });
        }
        // The upstream's block begins at a multiple of what it honours, so that the next multiple of more is at most this far.
        let room = if layout.is_empty() { 0 } else { align - self.honoured };
        // A sum that does not fit is no size of a layout either.
        let bytes = layout.bytes().saturating_add(room);
        Ok(UpstreamRequest { layout: Layout::new(bytes, self.honoured).map_err(too_large)?, align })
    }

    /// Moves a block of the upstream to its first aligned address, and records that. What the upstream honours itself stays where it
    /// is. `None` if the block does not begin at a multiple of that: moved, it would end beyond its memory.
    pub(super) fn open(&self, block: DevicePtr, ask: UpstreamRequest) -> Option<DevicePtr> {
        if ask.align <= self.honoured {
            return Some(block);
        }
        if !block.is_aligned_to(self.honoured) {
            return None;
        }
        let ahead = block.address().wrapping_neg() & (ask.align as u64 - 1);
        if ahead == 0 {
            return Some(block);
        }
        let moved = block.offset(ahead as usize);
        self.moved.insert(moved, block);
        Some(moved)
    }

    /// The upstream has refused the free of a block: it is out still.
    #[cold]
    pub(super) fn reopen(&self, moved: DevicePtr, origin: DevicePtr) {
        if moved != origin {
            self.moved.insert(moved, origin);
        }
    }

    /// Removes the record of a block. Returns its address for the upstream.
    pub(super) fn close(&self, block: DevicePtr, ask: UpstreamRequest) -> DevicePtr {
        if ask.align <= self.honoured {
            return block;
        }
        self.moved.take(block).unwrap_or(block)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn layout(bytes: usize, align: usize) -> Layout {
        Layout::new(bytes, align).expect("a small layout")
    }

    fn asked(moves: &AlignedBook, bytes: usize, align: usize) -> (usize, usize, usize) {
        let ask = moves.request(layout(bytes, align)).expect("it is honoured");
        (ask.layout.bytes(), ask.layout.align(), ask.align)
    }

    #[test]
    fn what_the_upstream_honours_is_asked_of_it_and_wastes_nothing() {
        let moves = AlignedBook::new(4096, 0, 1 << 20).expect("a power of two");
        assert_eq!(asked(&moves, 1000, 1), (1000, 4096, 4096));
        assert_eq!(asked(&moves, 1000, 8192), (1000, 8192, 8192), "the larger of both");
        assert_eq!(
            asked(&moves, 1000, 2 << 20),
            (1000 + (1 << 20), 1 << 20, 2 << 20),
            "and more than it honours"
        );
    }

    #[test]
    fn what_it_does_not_honour_gets_room_to_move() {
        let moves = AlignedBook::new(4096, 5000, 256).expect("a power of two");
        assert_eq!(asked(&moves, 5000, 1), (5000 + 4096 - 256, 256, 4096));
        assert_eq!(asked(&moves, 4999, 1), (4999, 1, 256), "below the threshold");
        assert_eq!(asked(&moves, 4999, 512), (4999 + 256, 256, 512), "but the call's own is honoured");
        assert_eq!(asked(&moves, 0, 1 << 20), (0, 256, 1 << 20));
    }

    #[test]
    fn every_address_moves_to_the_next_multiple_within_its_room() {
        let moves = AlignedBook::new(4096, 0, 256).expect("a power of two");
        for units in 1..40_u64 {
            let block = DevicePtr::new(units * 256).expect("not null");
            let ask = moves.request(layout(100, 1)).expect("it is honoured");
            let moved = moves.open(block, ask).expect("it begins at a multiple of 256");
            assert!(moved.is_aligned_to(4096) && moved >= block);
            assert!(moved.address() + 100 <= block.address() + ask.layout.bytes() as u64);
            assert_eq!(
                moves.moved_blocks(),
                usize::from(moved != block),
                "only what has moved is in the book"
            );
            assert_eq!((moves.origin(moved), moves.close(moved, ask)), (block, block));
            assert_eq!(moves.moved_blocks(), 0);
        }
    }

    #[test]
    fn a_block_at_an_odd_address_is_handed_on_and_never_moved() {
        let moves = AlignedBook::new(4096, 1000, 256).expect("a power of two");
        let block = DevicePtr::new(123).expect("not null");
        let small = moves.request(layout(5, 256)).expect("it is honoured");
        assert_eq!((moves.open(block, small), moves.close(block, small)), (Some(block), block));
        let large = moves.request(layout(1000, 1)).expect("it is honoured");
        // The next multiple of 4096 is 3973 bytes on, and there is room for 3840.
        assert_eq!((large.layout.bytes(), moves.open(block, large)), (1000 + 3840, None));
        assert_eq!(moves.moved_blocks(), 0);
    }

    #[test]
    fn the_end_of_all_addresses_is_out_of_memory() {
        let moves = AlignedBook::new(1 << 20, 0, 256).expect("a power of two");
        let largest = isize::MAX as usize - 255;
        assert!(moves.request(layout(largest, 1)).unwrap_err().is_out_of_memory());
        assert!(moves.request(layout(largest - (1 << 20), 1)).is_ok());
        let whole = AlignedBook::new(1 << 63, 0, 256).expect("a power of two");
        assert!(whole.request(layout(1, 1)).unwrap_err().is_out_of_memory());
        assert!(moves.request(layout(1, 4 << 20)).unwrap_err().is_alignment());
    }
}
