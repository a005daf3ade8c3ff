//! `Mutex`: for what is held for long, or wanted by many; and `Condvar` over it.

#![expect(unsafe_code, reason = "drops what a lock guards, but not in a child of a fork")]
#![allow(clippy::disallowed_types, reason = "of the facade")]

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};
use std::sync::TryLockError;

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;

use super::held::Held;
use super::process::{MadeIn, lost_lock};

/// A mutex without poisoning: every critical section of this crate leaves its data whole when it unwinds.
///
/// A child of a fork may find it taken by a thread that it does not have. So who may be asked there asks for it by
/// [`lock_here`](Self::lock_here); or is refused before.
#[derive(Default)]
pub(crate) struct Mutex<T> {
    data: ManuallyDrop<imp::Mutex<T>>,
    made_in: MadeIn,
}

/// What a [`Mutex`] guards, until it is dropped.
pub(crate) struct MutexGuard<'a, T> {
    guard: imp::MutexGuard<'a, T>,
    _held: Option<Held>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { data: ManuallyDrop::new(imp::Mutex::new(value)), made_in: MadeIn::this_process() }
    }

    /// Returns `true` in a child of the process that it was made in.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.made_in.is_parent()
    }

    /// The data, without locking: nobody else has the mutex.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        match self.data.get_mut() {
            Ok(data) => data,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    pub(crate) fn made_in(&self) -> MadeIn {
        self.made_in
    }

    /// The data. What a parent of this process has made is not to be asked for it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { guard: self.lock_uncounted(), _held: Some(Held::begin()) }
    }

    /// As [`lock`](Self::lock), for who holds the lock around code that is not the crate's, because that is what the lock is for.
    pub(crate) fn lock_around_foreign_code(&self) -> MutexGuard<'_, T> {
        MutexGuard { guard: self.lock_uncounted(), _held: None }
    }

    /// The data; `None` in a child of the process that it was made in.
    pub(crate) fn lock_here(&self) -> Option<MutexGuard<'_, T>> {
        (!self.is_of_parent()).then(|| self.lock())
    }

    fn lock_uncounted(&self) -> imp::MutexGuard<'_, T> {
        if cfg!(loom) {
            // A model would explore a try, too, and nobody forks in one.
            return self.wait();
        }
        match self.data.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> imp::MutexGuard<'_, T> {
        if self.is_of_parent() {
            lost_lock();
        }
        match self.data.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

impl<T> Drop for Mutex<T> {
    /// Leaks the data in a child of the process that it was made in: a thread that is not there may have been changing it.
    fn drop(&mut self) {
        if !self.is_of_parent() {
            // SAFETY: it is dropped here alone, once, and nobody has it after this.
            unsafe { ManuallyDrop::drop(&mut self.data) };
        }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    /// Without what is in it: to show that, the lock would be held while somebody else's formatter runs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A condition variable over [`Mutex`], without poisoning.
#[derive(Debug, Default)]
pub(crate) struct Condvar(imp::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let MutexGuard { guard, _held } = guard;
        let guard = match self.0.wait(guard) {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        };
        MutexGuard { guard, _held }
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: core::time::Duration,
    ) -> MutexGuard<'a, T> {
        let MutexGuard { guard, _held } = guard;
        let guard = match self.0.wait_timeout(guard, timeout) {
            Ok((guard, _)) => guard,
            Err(poisoned) => poisoned.into_inner().0,
        };
        MutexGuard { guard, _held }
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Arc;
    use super::*;

    #[test]
    fn what_a_parent_may_have_been_changing_is_not_dropped() {
        let data = Arc::new(());
        let mut mutex = Mutex::new(Arc::clone(&data));
        mutex.made_in = MadeIn::another();
        drop(mutex);
        assert_eq!(Arc::strong_count(&data), 2, "it is leaked");
        drop(Mutex::new(Arc::clone(&data)));
        assert_eq!(Arc::strong_count(&data), 2, "and of this process it is not");
    }
}
