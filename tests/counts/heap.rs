//! The heap of a test program, counted.

#![expect(unsafe_code, reason = "counts what the heap is asked for")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Calls of this thread, and the bytes that they took less those that they gave.
    static CALLS: Cell<(u64, i64)> = const { Cell::new((0, 0)) };
}

/// The system's allocator, counted for each thread.
struct Counting;

fn note(calls: u64, bytes: i64) {
    // A thread that ends has no place to count in.
    let _ = CALLS.try_with(|count| count.set((count.get().0 + calls, count.get().1 + bytes)));
}

// SAFETY: everything is the system's allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(1, -(layout.size() as i64));
        // SAFETY: the caller's promises.
        unsafe { System.dealloc(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        note(1, bytes as i64 - layout.size() as i64);
        // SAFETY: the caller's promises.
        unsafe { System.realloc(block, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Calls of the heap that `body` makes on this thread, and the bytes that it keeps.
pub(crate) fn heap_of(body: impl FnOnce()) -> (u64, i64) {
    let before = CALLS.get();
    body();
    let after = CALLS.get();
    (after.0 - before.0, after.1 - before.1)
}
