//! What a child of a fork may not ask for: what its parent made, and the CUDA driver that its parent loaded.
//!
//! The child knows a parent's things by [`MadeIn`]. A driver has neither its threads nor its connection there: calling it hangs or
//! fails. So each question is refused, as a driver that was never initialised would refuse it, before a driver is called or a lock is
//! waited for.

use super::{Call, Code, DriverError, DriverResult};
use crate::sync::{MadeIn, Mutex, Token};

impl MadeIn {
    /// # Errors
    ///
    /// [`Code::NOT_INITIALIZED`] in a child of the process that the thing was made in.
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

    /// The process that has loaded libcuda, or was about to. Set before anything of libcuda runs: a fork that happens later must
    /// be noticed.
    static LOADED_IN: AtomicU32 = AtomicU32::new(NOBODY);
    const NOBODY: u32 = u32::MAX;

    /// This process loads libcuda.
    pub(crate) fn note_cuda() {
        let here = MadeIn::this_process().number();
        // Relaxed: who forks is this thread, or one that was told by it.
        let _ = LOADED_IN.compare_exchange(NOBODY, here, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns `true` in a child of a process that had loaded libcuda before it forked.
    pub(crate) fn cuda_is_of_parent() -> bool {
        // Relaxed: as above.
        let loaded_in = LOADED_IN.load(Ordering::Relaxed);
        loaded_in != NOBODY && loaded_in != MadeIn::this_process().number()
    }
}
