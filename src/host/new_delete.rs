//! `NewDelete`: the ordinary heap.

#![expect(unsafe_code, reason = "takes memory from the heap, and gives it back")]

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{alloc, alloc_zeroed, dealloc, realloc};

use super::blocks::{Blocks, nothing};

/// The ordinary heap of the process as an allocator: for code that is generic over allocators, when nothing is to be pinned.
///
/// It belongs to no device, so it is no [`Resource`](crate::Resource). A device reaches its memory only by a copy that the
/// driver stages.
///
/// # Thread safety
///
/// Any thread may call it.
///
/// # Examples
///
/// ```
/// use alluvion::host::{Allocator, Vec};
/// use alluvion::{NewDelete, PinnedAlloc, Sim};
///
/// fn squares<A: Allocator>(count: u32, alloc: A) -> Vec<u32, A> {
///     let mut squares = Vec::new_in(alloc);
///     squares.extend((0..count).map(|number| number * number));
///     squares
/// }
///
/// let sim = Sim::new();
/// assert_eq!(squares(4, NewDelete), squares(4, PinnedAlloc::new(&sim.device(0))?));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NewDelete;

static_assertions::assert_impl_all!(NewDelete: Send, Sync, Copy, allocator_api2::alloc::Allocator);

// SAFETY: the heap's own contract; its blocks belong to no value, and every value is the same allocator.
unsafe impl Blocks for NewDelete {
    fn allocate_block(&self, layout: Layout) -> Option<NonNull<[u8]>> {
        if layout.size() == 0 {
            return Some(nothing(layout));
        }
        // SAFETY: the size is not 0: returned above.
        let block = NonNull::new(unsafe { alloc(layout) })?;
        Some(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate_block(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the block came from the heap with this layout, as the caller promises; one of 0 bytes did not.
            unsafe { dealloc(block.as_ptr(), layout) };
        }
    }

    fn allocate_zeroed_block(&self, layout: Layout) -> Option<NonNull<[u8]>> {
        if layout.size() == 0 {
            return Some(nothing(layout));
        }
        // SAFETY: the size is not 0: returned above.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn resize_block(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<[u8]>> {
        if old.align() != new.align() || old.size() == 0 || new.size() == 0 {
            // SAFETY: the caller's promise.
            return unsafe { self.move_block(block, old, new) };
        }
        // SAFETY:
        // - the block came from the heap with the layout `old`, as the caller promises.
        // - the new size is not 0, and does not overflow when rounded up to the alignment, which is that of `new`.
        let block = NonNull::new(unsafe { realloc(block.as_ptr(), old, new.size()) })?;
        Some(NonNull::slice_from_raw_parts(block, new.size()))
    }
}
