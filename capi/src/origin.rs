//! Which process made this?
//!
//! A child of a fork has one thread. A lock that another thread held at the fork stays held there for good, so that a child waits
//! for no lock which a thread of its parent may have had.

#![expect(unsafe_code, reason = "registers a handler of forks")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);
static IS_TOLD: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    // Relaxed: the child has one thread, which is this one.
    FORKS.store(FORKS.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// The number of forks between this process and the first one that asked. It costs no system call.
pub(crate) fn forks() -> u32 {
    // Relaxed, all: the number changes while the process has one thread. If two threads come at once, both register, and a fork
    // counts twice: the number only has to change.
    if !IS_TOLD.load(Ordering::Relaxed) && !IS_TOLD.swap(true, Ordering::Relaxed) {
        // SAFETY: three optional functions; the one that is given stores to an atomic, and does not unwind. If it fails, for want
        // of memory, a child does not know that it is one.
        let _told = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
    FORKS.load(Ordering::Relaxed)
}

/// More forks than there are.
const NOBODY: u32 = u32::MAX;

/// The process that came first.
#[derive(Debug)]
pub(crate) struct Origin(AtomicU32);

impl Origin {
    /// That of nobody yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(NOBODY))
    }

    /// Whether this process is the one that asked first.
    pub(crate) fn is_here(&self) -> bool {
        let this = forks();
        // Relaxed: a child sees what its parent had at the fork, and threads of one process write the same.
        let first = match self.0.load(Ordering::Relaxed) {
            NOBODY => self
                .0
                .compare_exchange(NOBODY, this, Ordering::Relaxed, Ordering::Relaxed)
                .unwrap_or_else(|other| other),
            first => first,
        };
        first == this || first == NOBODY
    }
}
