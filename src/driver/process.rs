//! Calls that fail in a child of a fork: on objects of its parent, and on the CUDA driver that its parent loaded.
//!
//! The child recognises the objects of its parent by [`MadeIn`]. A driver has neither its threads nor its connection there:
//! calling it hangs or fails. So each call fails as if the driver were never initialised, before a driver is called or a lock is
//! waited for.

use super::{Call, Code, DriverError, DriverResult};
use crate::sync::{MadeIn, Mutex, Token};

impl MadeIn {
    /// # Errors
    ///
    /// [`Code::NOT_INITIALIZED`] in a child of the process that made the object.
    #[inline]
    pub(crate) fn require(self) -> DriverResult<()> {
        if self.is_parent() { Err(of_parent()) } else { Ok(()) }
    }
}

impl<T> Mutex<T> {
    /// # Errors
    ///
    /// As [`MadeIn::require`].
    pub(crate) fn require_here(&self) -> DriverResult<()> {
        self.made_in().require()
    }
}

impl<T> Token<T> {
    /// # Errors
    ///
    /// As [`MadeIn::require`].
    pub(crate) fn require_here(&self) -> DriverResult<()> {
        self.made_in().require()
    }
}

#[cold]
fn of_parent() -> DriverError {
    DriverError::new(Call::Init, Code::NOT_INITIALIZED)
}

#[cfg(feature = "cuda")]
pub(crate) use cuda::{cuda_is_of_parent, note_cuda};

#[cfg(feature = "cuda")]
#[allow(clippy::disallowed_types, reason = "a child of a fork reads it; no model has one")]
mod cuda {
    use std::sync::atomic::{AtomicU32, Ordering};

    use crate::sync::MadeIn;

    /// The process that has loaded libcuda, or was about to. Set before any code of libcuda runs: a later fork must be noticed.
    static LOADED_IN: AtomicU32 = AtomicU32::new(NO_PROCESS);
    const NO_PROCESS: u32 = u32::MAX;

    /// Notes that this process loads libcuda.
    pub(crate) fn note_cuda() {
        let here = MadeIn::this_process().number();
        // Relaxed: the thread that forks is this one, or is ordered after it.
        let _ = LOADED_IN.compare_exchange(NO_PROCESS, here, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns `true` in a child of a process that had loaded libcuda before it forked.
    pub(crate) fn cuda_is_of_parent() -> bool {
        // Relaxed: as above.
        let loaded_in = LOADED_IN.load(Ordering::Relaxed);
        loaded_in != NO_PROCESS && loaded_in != MadeIn::this_process().number()
    }
}
