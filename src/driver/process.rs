//! Calls that fail in a child of a fork: on objects of its parent, and on a vendor's library that its parent loaded.
//!
//! The child recognises the objects of its parent by [`MadeIn`]. A driver has neither its threads nor its connection there:
//! calling it hangs or fails. So each call fails as if the driver were never initialised, before a driver is called or a lock is
//! waited for.

#[cfg(any(feature = "cuda", feature = "runtime"))]
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::{Call, Code, DriverError, DriverResult};
use crate::sync::{MadeIn, Mutex, Token};

impl MadeIn {
    #[inline]
    pub(crate) fn require(self) -> DriverResult<()> {
        if self.is_parent() { Err(of_parent()) } else { Ok(()) }
    }
}

impl<T> Mutex<T> {
    pub(crate) fn require_same_process(&self) -> DriverResult<()> {
        self.made_in().require()
    }
}

impl<T> Token<T> {
    pub(crate) fn require_same_process(&self) -> DriverResult<()> {
        self.made_in().require()
    }
}

#[cold]
fn of_parent() -> DriverError {
    DriverError::new(Call::Init, Code::NOT_INITIALIZED)
}

/// The process that has loaded a vendor's library, or was about to.
#[cfg(any(feature = "cuda", feature = "runtime"))]
#[derive(Debug)]
pub(super) struct LoadedIn(AtomicU32);

#[cfg(any(feature = "cuda", feature = "runtime"))]
impl LoadedIn {
    const NO_PROCESS: u32 = u32::MAX;

    pub(super) const fn no_process() -> Self {
        Self(AtomicU32::new(Self::NO_PROCESS))
    }

    /// Notes that this process loads the library. To be called before any code of it runs: a later fork must be noticed.
    pub(super) fn note(&self) {
        let here = MadeIn::this_process().number();
        // Relaxed: the thread that forks is this one, or is ordered after it.
        let _ = self.0.compare_exchange(Self::NO_PROCESS, here, Relaxed, Relaxed);
    }

    /// Returns `true` in a child of a process that had loaded the library before it forked.
    pub(super) fn is_parent(&self) -> bool {
        // Relaxed: as above.
        let loaded_in = self.0.load(Relaxed);
        loaded_in != Self::NO_PROCESS && loaded_in != MadeIn::this_process().number()
    }
}
