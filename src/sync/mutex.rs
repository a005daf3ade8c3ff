//! `Mutex`: a lock for data that is held for long, or wanted by many threads; and `Condvar` over it.

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
/// In a child of a fork it may be held by a thread that the child does not have. So code that may run in a child locks it by
/// [`lock_unless_forked`](Self::lock_unless_forked), or returns an error before it comes to the lock.
#[derive(Default)]
pub(crate) struct Mutex<T> {
    data: ManuallyDrop<imp::Mutex<T>>,
    made_in: MadeIn,
}

/// Access to the data of a [`Mutex`]. Dropping it unlocks the mutex.
pub(crate) struct MutexGuard<'a, T> {
    guard: imp::MutexGuard<'a, T>,
    _held: Option<Held>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { data: ManuallyDrop::new(imp::Mutex::new(value)), made_in: MadeIn::this_process() }
    }

    /// Returns `true` in a child of the process that it was made in.
    pub(crate) fn is_forked_child(&self) -> bool {
        self.made_in.is_parent()
    }

    /// The data, without locking: `&mut` shows that no other thread has the mutex.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        match self.data.get_mut() {
            Ok(data) => data,
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    pub(crate) fn made_in(&self) -> MadeIn {
        self.made_in
    }

    /// Locks the data. Not for a mutex that a parent of this process has made.
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { guard: self.lock_uncounted(), _held: Some(Held::begin()) }
    }

    /// As [`lock`](Self::lock), for a lock whose purpose is to be held around foreign code.
    pub(crate) fn lock_around_foreign_code(&self) -> MutexGuard<'_, T> {
        MutexGuard { guard: self.lock_uncounted(), _held: None }
    }

    /// The data; `None` in a child of the process that it was made in.
    pub(crate) fn lock_unless_forked(&self) -> Option<MutexGuard<'_, T>> {
        (!self.is_forked_child()).then(|| self.lock())
    }

    fn lock_uncounted(&self) -> imp::MutexGuard<'_, T> {
        if cfg!(loom) {
            // Loom would explore the `try_lock` too, and no model forks.
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
        if self.is_forked_child() {
            lost_lock();
        }
        match self.data.lock() {
            Ok(guard) => guard,
            Err(poisoned) => poisoned.into_inner(),
        }
    }
}

impl<T> Drop for Mutex<T> {
    /// Leaks the data in a child of the process that it was made in: at the fork another thread may have been changing it.
    fn drop(&mut self) {
        if !self.is_forked_child() {
            // SAFETY: the data is dropped here alone, once, and nothing reads it after this.
            unsafe { ManuallyDrop::drop(&mut self.data) };
        }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    /// Without the data: to show that, the lock would be held while a foreign formatter runs.
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
    fn a_child_of_a_fork_leaks_the_data() {
        let data = Arc::new(());
        let mut mutex = Mutex::new(Arc::clone(&data));
        mutex.made_in = MadeIn::another();
        drop(mutex);
        assert_eq!(Arc::strong_count(&data), 2, "it is leaked");
        drop(Mutex::new(Arc::clone(&data)));
        assert_eq!(Arc::strong_count(&data), 2, "this process does not leak it");
    }
}
