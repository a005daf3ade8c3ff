//! The one room that knows whether it is being model-checked.
//!
//! Everything else names these types. `Arc` is the standard one in both worlds: reference counts are not our
//! protocols, and loom's `Arc` does not coerce to `Arc<dyn Trait>`.

#![allow(
    clippy::disallowed_types,
    reason = "the facade over the types that the rest of the crate may not name"
)]

mod apart;
mod cell;
mod global;
pub(crate) mod held;
mod process;
mod seat;
mod signal;
mod token;

use core::fmt;
use core::ops::{Deref, DerefMut};
pub(crate) use std::sync::Arc;

pub(crate) use apart::Apart;
pub(crate) use global::Global;
use held::Held;
pub(crate) use held::assert_no_lock_is_held;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
pub(crate) use seat::Seat;
pub(crate) use signal::Signal;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(all(test, feature = "sim", not(loom)))]
pub(crate) use token::tests::when_it_waits;
pub(crate) use token::{Token, TokenGuard};

#[cfg(loom)]
use loom::sync::atomic::AtomicBool;
#[cfg(not(loom))]
use std::sync::atomic::AtomicBool;

#[cfg(loom)]
pub(crate) use loom::thread::{Builder, JoinHandle, ThreadId};
#[cfg(not(loom))]
pub(crate) use std::thread::{Builder, JoinHandle, ThreadId};

#[cfg(loom)]
pub(crate) use loom::thread::yield_now;
#[cfg(not(loom))]
pub(crate) use std::thread::yield_now;

/// The thread that calls.
pub(crate) fn current_thread() -> ThreadId {
    #[cfg(loom)]
    return loom::thread::current().id();
    #[cfg(not(loom))]
    std::thread::current().id()
}

/// Waits for a millisecond. In a model, where there is no time, for other threads.
pub(crate) fn nap() {
    #[cfg(loom)]
    yield_now();
    #[cfg(not(loom))]
    std::thread::sleep(core::time::Duration::from_millis(1));
    #[cfg(all(test, not(loom)))]
    NAPS.with(|naps| naps.fetch_add(1, Ordering::Relaxed));
}

#[cfg(all(test, not(loom)))]
thread_local! {
    /// How often this thread has taken one, for another to see.
    static NAPS: Arc<AtomicU64> = Arc::default();
}

#[cfg(loom)]
use loom::sync as imp;
#[cfg(not(loom))]
use std::sync as imp;
use std::sync::TryLockError;

pub(crate) use process::MadeIn;
use process::lost_lock;

/// A mutex without poisoning: every critical section of this crate leaves its data whole when it unwinds.
///
/// A child of a fork may find it taken by a thread that it does not have. So who may be asked there asks for it by
/// [`lock_here`](Self::lock_here); or is refused before.
#[derive(Default)]
pub(crate) struct Mutex<T> {
    data: imp::Mutex<T>,
    made_in: MadeIn,
}

/// What a [`Mutex`] guards, until it is dropped.
pub(crate) struct MutexGuard<'a, T> {
    guard: imp::MutexGuard<'a, T>,
    _held: Option<Held>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { data: imp::Mutex::new(value), made_in: MadeIn::this_process() }
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
