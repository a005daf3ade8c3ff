//! `ThreadToken`: a number for each thread.

use core::cell::Cell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// A thread's number, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadToken(usize);

#[cfg(not(loom))]
thread_local! {
    // No destructor, so it can be read while the thread's other locals are being dropped.
    static TOKEN: Cell<usize> = const { Cell::new(0) };
}

// To the standard library, all threads of a loom model are one thread.
#[cfg(loom)]
loom::thread_local! {
    static TOKEN: Cell<usize> = Cell::new(0);
}

impl ThreadToken {
    pub(crate) fn current() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        TOKEN.with(|token| {
            if token.get() == 0 {
                // Relaxed: only that the numbers differ matters.
                token.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            Self(token.get())
        })
    }

    /// The number: no other thread has or had it.
    pub(crate) fn number(self) -> usize {
        self.0
    }

    /// Gives the calling thread a new number, which owns nothing yet.
    pub(crate) fn renew() {
        TOKEN.with(|token| token.set(0));
    }
}
