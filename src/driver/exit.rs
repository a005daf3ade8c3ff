//! Whether this process is exiting.
//!
//! libcuda shuts itself down in an exit handler, and so do the runtime libraries. After that, most functions return
//! [`Code::DEINITIALIZED`](super::Code); some crash on some versions. Containers in statics and threads that outlive `main` still free
//! memory at that time, so a driver stops calling its library before that handler runs, and returns the same code.
//! The code proves nothing about the devices: copies go on until the process has ended.

#![cfg_attr(unix, expect(unsafe_code, reason = "registers an exit handler with the C library"))]

use std::sync::atomic::{AtomicBool, Ordering};

static EXITING: AtomicBool = AtomicBool::new(false);

#[cfg(unix)]
extern "C" fn at_exit() {
    // Relaxed: the flag guards no data. A thread that sees it late makes a call that the library answers.
    EXITING.store(true, Ordering::Relaxed);
}

/// Registers the exit handler. To be called when a library has started, each time: handlers run in reverse order, so that this one runs
/// before the library's.
pub(super) fn watch_for_exit() {
    // SAFETY: `at_exit` does not unwind and stores to an atomic. Failure (no memory) leaves the flag false: calls then still reach the
    // library.
    #[cfg(unix)]
    unsafe {
        libc::atexit(at_exit)
    };
}

/// Returns `true` once the process has begun to exit.
pub(super) fn is_exiting() -> bool {
    EXITING.load(Ordering::Relaxed)
}
