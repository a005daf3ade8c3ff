//! `Global`: a mutex in a static, which works in a child of a fork.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::process::call_in_children;

/// Data that all threads of the process share. A child of a fork keeps it, unless another thread held the lock at the fork: then
/// the data is lost in the child, for ever.
///
/// Not part of the facade over loom: no model uses it, and data in a static would outlive one run of a model.
pub(crate) struct Global<T> {
    data: Mutex<T>,
    is_lost: AtomicBool,
    is_looked_after: AtomicBool,
    in_child: extern "C" fn(),
}

impl<T> Global<T> {
    /// `in_child` calls [`look_after_fork`](Self::look_after_fork) of the static that this is for, and does nothing else.
    pub(crate) const fn new(data: T, in_child: extern "C" fn()) -> Self {
        let [is_lost, is_looked_after] = [const { AtomicBool::new(false) }; 2];
        Self { data: Mutex::new(data), is_lost, is_looked_after, in_child }
    }

    /// The data; `None` if it is lost. No code of the user's runs while it is locked, so it is whole, also if a thread panics.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, T>> {
        // Before the lock is held for the first time. Relaxed: two threads that come at once may both register `in_child`, and its
        // second call after a fork changes nothing.
        if !self.is_looked_after.load(Ordering::Relaxed) {
            call_in_children(self.in_child);
            self.is_looked_after.store(true, Ordering::Relaxed);
        }
        // Relaxed: it changes while the process has one thread.
        if self.is_lost.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.data.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// To be called by `in_child`, while the child has one thread. If the lock is held now, its holder is a thread that the child
    /// does not have.
    pub(crate) fn look_after_fork(&self) {
        if matches!(self.data.try_lock(), Err(TryLockError::WouldBlock)) {
            // Relaxed: as above.
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    extern "C" fn nothing() {}

    #[test]
    fn only_data_that_is_locked_at_a_fork_is_lost() {
        let global = Global::new(1, nothing);
        global.look_after_fork();
        let had = global.lock().expect("it is not locked");
        global.look_after_fork();
        drop(had);
        assert!(global.lock().is_none());
        let poisoned = Global::new(2, nothing);
        std::thread::scope(|scope| {
            let thrown = scope.spawn(|| {
                let _guard = poisoned.lock();
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            assert!(thrown.join().is_err());
        });
        poisoned.look_after_fork();
        assert_eq!(poisoned.lock().as_deref(), Some(&2));
    }
}
