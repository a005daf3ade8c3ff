//! Marks the threads that write logs.

use core::cell::Cell;

#[cfg(not(loom))]
thread_local! {
    static IS_WRITER: Cell<bool> = const { Cell::new(false) };
}

#[cfg(loom)]
loom::thread_local! {
    static IS_WRITER: Cell<bool> = Cell::new(false);
}

/// Returns `true` on a thread that writes a log, this or another. Code on such a thread must not wait for a log.
pub(super) fn is_writer() -> bool {
    IS_WRITER.try_with(Cell::get).unwrap_or(false)
}

/// Marks this thread as one that writes a log.
pub(super) fn mark_as_writer() {
    IS_WRITER.with(|is_writer| is_writer.set(true));
}
