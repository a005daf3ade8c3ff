//! `Blocks`: what every version of `Allocator` asks for, written once.

#![expect(unsafe_code, reason = "copies and zeroes blocks")]

use core::alloc::Layout;
use core::ptr::{self, NonNull};

/// What the versions of `Allocator` have in common, without their error type.
///
/// # Safety
///
/// The contract of `Allocator`, which is one in all versions: a block that is not `None` is memory that the host may read
/// and write, as long and as aligned as asked for, until it is given back or the allocator and all that are equal to it are
/// gone. To move an allocator invalidates nothing; a clone is the same allocator. Nothing unwinds. What returns `None` has
/// changed nothing.
pub(super) unsafe trait Blocks {
    /// A block of exactly `layout.size()` bytes; for zero bytes an aligned address without memory.
    fn allocate_block(&self, layout: Layout) -> Option<NonNull<[u8]>>;

    /// Gives a block back. Zero bytes are nothing.
    ///
    /// # Safety
    ///
    /// `block` came from this allocator with this layout, and is used no more.
    unsafe fn deallocate_block(&self, block: NonNull<u8>, layout: Layout);

    fn allocate_zeroed_block(&self, layout: Layout) -> Option<NonNull<[u8]>> {
        let block = self.allocate_block(layout)?;
        // SAFETY: the block is new and as long as the layout.
        unsafe { zero_from(block, 0) };
        Some(block)
    }

    /// Moves what a block holds into a new one, as far as both reach, and gives the old one back.
    ///
    /// # Safety
    ///
    /// `block` came from this allocator with the layout `old`, and is used no more if this succeeds.
    unsafe fn move_block(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<[u8]>> {
        let moved = self.allocate_block(new)?;
        let bytes = old.size().min(new.size());
        // SAFETY:
        // - `block` is readable for `old.size()` bytes: it was allocated with this layout.
        // - `moved` is writable for `new.size()` bytes, and bytes have no alignment.
        // - they do not overlap: both are live.
        unsafe { ptr::copy_nonoverlapping(block.as_ptr(), moved.as_ptr().cast::<u8>(), bytes) };
        // SAFETY: the caller's promise.
        unsafe { self.deallocate_block(block, old) };
        Some(moved)
    }

    /// Grows or shrinks a block. A resource takes back a block with the layout that it was allocated with, so it moves.
    ///
    /// # Safety
    ///
    /// As for `move_block`.
    unsafe fn resize_block(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Option<NonNull<[u8]>> {
        // SAFETY: the caller's promise.
        unsafe { self.move_block(block, old, new) }
    }

    /// As `resize_block`; what is new is zero.
    ///
    /// # Safety
    ///
    /// As for `resize_block`, and `new.size() >= old.size()`.
    unsafe fn grow_zeroed_block(
        &self,
        block: NonNull<u8>,
        old: Layout,
        new: Layout,
    ) -> Option<NonNull<[u8]>> {
        // SAFETY: the caller's promise.
        let moved = unsafe { self.resize_block(block, old, new) }?;
        // SAFETY: the block is writable and at least as long as the old one.
        unsafe { zero_from(moved, old.size()) };
        Some(moved)
    }
}

/// Zero bytes: aligned, not null, not memory.
pub(super) fn nothing(layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(layout.dangling_ptr(), 0)
}

/// Zeroes a block from `start` to its end.
///
/// # Safety
///
/// The block is writable and has at least `start` bytes.
unsafe fn zero_from(block: NonNull<[u8]>, start: usize) {
    // SAFETY: `start` is not behind the end, as the caller promises.
    let first = unsafe { block.cast::<u8>().add(start) };
    // SAFETY: what is left of the block from there on is writable.
    unsafe { first.write_bytes(0, block.len() - start) };
}
