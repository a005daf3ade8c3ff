//! `Global`: a mutex in a static, which outlives forks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use super::process::call_in_children;

/// What all threads of the process share. A child of a fork goes on with it, unless another thread had it at that moment: then it
/// is lost there, for ever.
///
/// Not of the facade: it is in no protocol of a model, and what is in a static would outlive a run of one.
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
        // Before anybody has it for the first time. Relaxed: of two threads that come at once both ask for the call, and a second
        // look after a fork finds what the first did.
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

    /// What `in_child` is for, while the child has one thread: who has the lock now is a thread that is not here.
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
    fn what_somebody_has_at_a_fork_is_lost_and_nothing_else() {
        let global = Global::new(1, nothing);
        global.look_after_fork();
        let had = global.lock().expect("nobody has it");
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
