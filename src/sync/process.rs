//! Which process made an object, and forks.
//!
//! A child made by `fork` inherits the memory of its parent, and of its threads only the one that forked. A lock that another
//! thread held at that moment is never released. So each lock knows which process made it. A call of a child on an object of its
//! parent fails before it waits for a lock, and a destructor leaks the object.
//!
//! Objects that a child makes itself work.

#![expect(
    unsafe_code,
    reason = "registers a fork handler with the C library, and writes a last message to stderr"
)]
#![allow(clippy::disallowed_types, reason = "a fork handler changes them; no model has one")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The number of forks between this process and the one that first registered the handler.
static FORKS: AtomicU32 = AtomicU32::new(0);
static IS_TOLD: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    // Relaxed: the child has one thread, which is this one.
    FORKS.store(forks().wrapping_add(1), Ordering::Relaxed);
}

/// Has `handler` called in each child of a fork from now on, while the child has one thread. The handler stores to atomics or
/// tries locks, and does not unwind.
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

/// Counts forks from now on.
fn count_forks() {
    // Relaxed: if two threads come at once, both register, and a fork counts twice. The number only has to change.
    if !IS_TOLD.load(Ordering::Relaxed) {
        call_in_children(in_child);
        IS_TOLD.store(true, Ordering::Relaxed);
    }
}

/// The number of forks. An object that was made at another number belongs to a parent of this process.
#[inline]
fn forks() -> u32 {
    // Relaxed: the number changes while the process has one thread.
    FORKS.load(Ordering::Relaxed)
}

/// The process that made an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MadeIn(u32);

impl MadeIn {
    /// The first process, which was not forked from one that knew of this crate.
    pub(crate) const FIRST: Self = Self(0);

    /// This process, which counts forks from now on.
    #[inline]
    pub(crate) fn this_process() -> Self {
        count_forks();
        Self(forks())
    }

    /// A process that is not this one.
    #[cfg(all(test, not(loom)))]
    pub(super) fn another() -> Self {
        Self(forks().wrapping_sub(1))
    }

    /// The number of forks between the first process and this one.
    #[cfg(any(not(loom), feature = "cuda", feature = "runtime"))]
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns `true` in a child of the process that made the object.
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

/// Ends the process: it waits for a lock that a thread of its parent held at the fork, which nothing will release.
///
/// Calls on objects of a parent should fail before they come to this. If the crate forgets to check, an end is easier to notice
/// than an endless wait.
#[cold]
pub(crate) fn lost_lock() -> ! {
    #[cfg(unix)]
    {
        let words = "alluvion: a child of a fork waits for a lock that another thread of its parent held\n";
        // Not through `std`, whose own lock another thread of the parent may have held too. SAFETY: the bytes are a live string's,
        // and as many as are said.
        let _ = unsafe { libc::write(libc::STDERR_FILENO, words.as_ptr().cast(), words.len()) };
    }
    std::process::abort()
}
