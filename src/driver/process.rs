//! Whether this process may still talk to a driver.
//!
//! A child made by `fork` inherits the memory of a driver but not its threads, locks or connection: calling it hangs or
//! fails. The child learns here that it is one, and every driver answers it [`Code::NOT_INITIALIZED`](super::Code)
//! before it touches a lock that a thread of the parent may have held.

#![expect(unsafe_code, reason = "registers a fork handler with the C library")]
#![allow(clippy::disallowed_types, reason = "they change in a fork handler; no model has one")]

use std::sync::Once;
#[cfg(any(feature = "cuda", feature = "sim"))]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many forks lie between this process and the one that first asked to be told of them.
static FORKS: AtomicUsize = AtomicUsize::new(0);
static REGISTER: Once = Once::new();

#[cfg(any(feature = "cuda", feature = "sim"))]
static HAS_DRIVER: AtomicBool = AtomicBool::new(false);
#[cfg(any(feature = "cuda", feature = "sim"))]
static HAS_DRIVER_OF_PARENT: AtomicBool = AtomicBool::new(false);

#[cfg(unix)]
extern "C" fn in_child() {
    // Relaxed, here and below: the child has one thread, and it is this one.
    FORKS.store(forks() + 1, Ordering::Relaxed);
    #[cfg(any(feature = "cuda", feature = "sim"))]
    if HAS_DRIVER.load(Ordering::Relaxed) {
        HAS_DRIVER_OF_PARENT.store(true, Ordering::Relaxed);
    }
}

/// Asks to be told of forks from now on, for who has to know whether a thread of its own is still here.
pub(crate) fn count_forks() {
    #[cfg(unix)]
    REGISTER.call_once(|| {
        // SAFETY: `pthread_atfork` takes three optional functions; `in_child` does not unwind and stores to atomics, which is
        // permitted between fork and exec. Failure (no memory) leaves them as they are: no worse than before.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    #[cfg(not(unix))]
    REGISTER.call_once(|| {});
}

/// What was made when this was another number belongs to a parent of this process.
#[inline]
pub(crate) fn forks() -> usize {
    // Relaxed: it changes while the process has one thread.
    FORKS.load(Ordering::Relaxed)
}

/// Asks to be told of forks from now on. Drivers call it when they are made.
#[cfg(any(feature = "cuda", feature = "sim"))]
pub(crate) fn watch_for_forks() {
    // Relaxed: who forks is this thread, or one that was told by it.
    HAS_DRIVER.store(true, Ordering::Relaxed);
    count_forks();
}

/// Returns `true` in a child of a process that had made a driver before it forked.
#[cfg(any(feature = "cuda", feature = "sim"))]
pub(crate) fn process_is_forked() -> bool {
    HAS_DRIVER_OF_PARENT.load(Ordering::Relaxed)
}
