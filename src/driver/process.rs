//! In which process a thing was made.
//!
//! A child made by `fork` inherits the memory of its parent, and of its threads only the one that forked. A driver has neither its
//! threads there nor its connection: calling it hangs or fails. A lock that another thread held at that moment is never given back.
//! So what the child asks of a thing that a parent has made is refused or leaked, before a driver is called or a lock is waited for.
//!
//! What a child makes itself is its own, and works. The CUDA driver is the exception: it belongs to the process that loaded it.

#![expect(
    unsafe_code,
    reason = "registers a fork handler with the C library, and writes what ends the process"
)]
#![allow(clippy::disallowed_types, reason = "they change in a fork handler; no model has one")]

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::{Call, Code, DriverError, DriverResult};

/// How many forks lie between this process and the one that first asked to be told of them.
static FORKS: AtomicU32 = AtomicU32::new(0);
static IS_TOLD: AtomicBool = AtomicBool::new(false);

#[cfg(unix)]
extern "C" fn in_child() {
    // Relaxed: the child has one thread, and it is this one.
    FORKS.store(forks().wrapping_add(1), Ordering::Relaxed);
    crate::sync::note_fork();
}

/// Asks to be told of forks from now on.
fn be_told_of_forks() {
    #[cfg(unix)]
    // Relaxed: of two threads that come at once both register, and a fork counts twice. It only has to count.
    if !IS_TOLD.load(Ordering::Relaxed) {
        // SAFETY: `pthread_atfork` takes three optional functions; `in_child` does not unwind, stores to atomics and tries
        // locks, which is permitted between fork and exec. Failure (no memory) leaves them as they are: a child then does not
        // know that it is one.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        IS_TOLD.store(true, Ordering::Relaxed);
    }
    #[cfg(not(unix))]
    IS_TOLD.store(true, Ordering::Relaxed);
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

    /// How many forks lie between the first process and this one.
    #[cfg(not(loom))]
    pub(crate) fn number(self) -> u32 {
        self.0
    }

    /// Returns `true` in a child of the process that the thing was made in.
    #[inline]
    pub(crate) fn is_parent(self) -> bool {
        self.0 != forks()
    }

    /// # Errors
    ///
    /// [`Code::NOT_INITIALIZED`] in a child of the process that the thing was made in.
    #[inline]
    pub(crate) fn require(self) -> DriverResult<()> {
        if self.is_parent() { Err(of_parent()) } else { Ok(()) }
    }
}

impl Default for MadeIn {
    fn default() -> Self {
        Self::this_process()
    }
}

#[cold]
fn of_parent() -> DriverError {
    DriverError::new(Call::Init, Code::NOT_INITIALIZED)
}

/// The process that has loaded libcuda, or was about to. Set before anything of libcuda runs: a fork that happens later must be
/// noticed.
#[cfg(feature = "cuda")]
static LOADED_IN: AtomicU32 = AtomicU32::new(NOBODY);
#[cfg(feature = "cuda")]
const NOBODY: u32 = u32::MAX;

/// This process loads libcuda.
#[cfg(feature = "cuda")]
pub(crate) fn note_cuda() {
    // Relaxed: who forks is this thread, or one that was told by it.
    let _ =
        LOADED_IN.compare_exchange(NOBODY, MadeIn::this_process().0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns `true` in a child of a process that had loaded libcuda before it forked.
#[cfg(feature = "cuda")]
pub(crate) fn cuda_is_of_parent() -> bool {
    // Relaxed: as above.
    let loaded_in = LOADED_IN.load(Ordering::Relaxed);
    loaded_in != NOBODY && MadeIn(loaded_in).is_parent()
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
