//! The heap of this program, which knows whether a block that a test watches has been given back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

struct Heap;

#[global_allocator]
static HEAP: Heap = Heap;

/// An address in the block that is watched, or 0.
static WATCHED: AtomicUsize = AtomicUsize::new(0);
static IS_FREED: AtomicBool = AtomicBool::new(false);

/// Watches the block that `address` lies in.
pub(crate) fn watch(address: u64) {
    IS_FREED.store(false, SeqCst);
    WATCHED.store(address as usize, SeqCst);
}

/// Whether the block that is watched has been given back since.
pub(crate) fn is_freed() -> bool {
    IS_FREED.load(SeqCst)
}

fn note(block: *mut u8, layout: Layout) {
    let watched = WATCHED.load(SeqCst);
    if (block.addr()..block.addr() + layout.size()).contains(&watched) {
        IS_FREED.store(true, SeqCst);
    }
}

// SAFETY: everything is the system's allocator's.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(block, layout);
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(block, layout);
        // SAFETY: the caller's promises.
        unsafe { System.realloc(block, layout, bytes) }
    }
}
