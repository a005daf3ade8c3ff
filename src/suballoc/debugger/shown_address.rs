//! `ShownAddress`: an address that a debugger follows.

use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// The address of something that a debugger follows, or 0.
///
/// A debugger stops a thread between any two instructions, as a signal does. So the order of the instructions matters, and not only
/// what they come to.
// Not of `sync`: no protocol depends on it.
#[derive(Debug, Default)]
#[repr(transparent)]
pub(in crate::suballoc) struct ShownAddress(AtomicUsize);

impl ShownAddress {
    pub(super) const fn nowhere() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Leads to what was written before this call. What it led to until now may go after this call.
    #[inline]
    pub(in crate::suballoc) fn lead_to<T>(&self, place: *const T) {
        // Release: what was written comes first.
        self.0.store(place.addr(), Ordering::Release);
        // The release alone would let what follows, such as the end of the old place, come before it.
        compiler_fence(Ordering::SeqCst);
    }

    pub(super) fn address(&self) -> usize {
        // Relaxed: only one thread at a time writes it, and it is the one that asks.
        self.0.load(Ordering::Relaxed)
    }
}
