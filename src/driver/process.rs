//! Whether this process may still talk to a driver.
//!
//! A child made by `fork` inherits the memory of a driver but not its threads, locks or connection: calling it hangs or
//! fails. The child learns here that it is one, and every driver answers it [`Code::NOT_INITIALIZED`](super::Code)
//! before it touches a lock that a thread of the parent may have held.

#![expect(unsafe_code, reason = "registers a fork handler with the C library")]
#![allow(clippy::disallowed_types, reason = "the flag is set in a fork handler; no model has one")]

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static FORKED: AtomicBool = AtomicBool::new(false);
static REGISTER: Once = Once::new();

#[cfg(unix)]
extern "C" fn in_child() {
    // Relaxed: the child has one thread, and it is this one.
    FORKED.store(true, Ordering::Relaxed);
}

/// Asks to be told of forks from now on. Drivers call it when they are made.
pub(crate) fn watch_for_forks() {
    #[cfg(unix)]
    REGISTER.call_once(|| {
        // SAFETY: `pthread_atfork` takes three optional functions; `in_child` does not unwind and stores to an atomic,
        // which is permitted between fork and exec. Failure (no memory) leaves the flag false: no worse than before.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    #[cfg(not(unix))]
    REGISTER.call_once(|| {});
}

/// Returns `true` in a child of a process that had made a driver before it forked.
pub(crate) fn process_is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}
