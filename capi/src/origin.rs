//! Which process made this?
//!
//! A child of a fork has one thread. A lock that another thread held at the fork stays held there for good, so that a child waits for
//! no lock which a thread of its parent may have had.

use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The process that came first.
#[derive(Debug)]
pub(crate) struct Origin(AtomicU32);

impl Origin {
    /// That of nobody yet.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Whether this process is the one that asked first.
    pub(crate) fn is_here(&self) -> bool {
        let this = process::id();
        // Relaxed: a child sees what its parent had at the fork, and threads of one process write the same.
        match self.0.compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(first) => first == this,
        }
    }
}
