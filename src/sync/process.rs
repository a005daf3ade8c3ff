//! In which process a thing was made.
//!
//! A child made by `fork` inherits the memory of its parent, and of its threads only the one that forked. A lock that another thread
//! held at that moment is never given back. So what the child asks of a thing that a parent has made is refused or leaked, before a
//! lock is waited for: each lock knows where it was made.
//!
//! What a child makes itself is its own, and works.

#![expect(
    unsafe_code,
    reason = "registers a fork handler with the C library, and writes what ends the process"
)]
#![allow(clippy::disallowed_types, reason = "they change in a fork handler; no model has one")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// How many forks lie between this process and the one that first asked to be told of them.
static FORKS: AtomicU32 = AtomicU32::new(0);
static IS_TOLD: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    // Relaxed: the child has one thread, and it is this one.
    FORKS.store(forks().wrapping_add(1), Ordering::Relaxed);
}

/// Has `handler` called in each child of a fork from now on, while the child has one thread. It stores to atomics or tries locks,
/// and does not unwind.
pub(super) fn call_in_children(handler: extern "C" fn()) {
    #[cfg(unix)]
    // SAFETY: `pthread_atfork` takes three optional functions; `handler` does not unwind and does what is permitted between fork
    // and exec, as is asked above. Failure (no memory) leaves the handlers as they are: a child then does not know that it is one.
    unsafe {
        libc::pthread_atfork(None, None, Some(handler))
    };
    #[cfg(not(unix))]
    let _ = handler;
}

/// Asks to be told of forks from now on.
fn be_told_of_forks() {
    // Relaxed: of two threads that come at once both register, and a fork counts twice. It only has to count.
    if !IS_TOLD.load(Ordering::Relaxed) {
        call_in_children(in_child);
        IS_TOLD.store(true, Ordering::Relaxed);
    }
}

/// What was made when this was another number belongs to a parent of this process.
#[inline]
fn forks() -> u32 {
    // Relaxed: it changes while the process has one thread.
    FORKS.load(Ordering::Relaxed)
}

/// The process that a thing was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MadeIn(u32);

impl MadeIn {
    /// The first process, which was not forked from one that knew of this crate.
    pub(crate) const FIRST: Self = Self(0);

    /// This process, which is told of forks from now on.
    #[inline]
    pub(crate) fn this_process() -> Self {
        be_told_of_forks();
        Self(forks())
    }

    /// A process that is not this one.
    #[cfg(all(test, not(loom)))]
    pub(super) fn another() -> Self {
        Self(forks().wrapping_sub(1))
    }

    /// How many forks lie between the first process and this one.
    #[cfg(any(not(loom), feature = "cuda"))]
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns `true` in a child of the process that the thing was made in.
    #[inline]
    pub(crate) fn is_parent(self) -> bool {
        self.0 != forks()
    }
}

impl Default for MadeIn {
    fn default() -> Self {
        Self::this_process()
    }
}

/// Ends the process: it waits for a lock that a thread of its parent had at the fork, which nobody will give back.
///
/// Whatever is asked of a parent's things is refused before it comes to this. Where the crate has forgotten to, an end is better
/// seen than a wait.
#[cold]
pub(crate) fn lost_lock() -> ! {
    #[cfg(unix)]
    {
        let words = "alluvion: a child of a fork waits for a lock that another thread of its parent held\n";
        // Not by `std`, whose own lock another thread of the parent may have held too.
        // SAFETY: the bytes are a live string's, and as many as are said.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    }
    std::process::abort()
}
