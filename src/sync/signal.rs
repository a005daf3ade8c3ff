//! `Signal`: what a thread sleeps on until another one calls it.

use core::time::Duration;

use super::{Condvar, Mutex};

/// Wakes one thread: the one that waits, or the next that does.
///
/// Why not `park` and `unpark`: a call of those is kept for a thread, whatever it waits for. Code that is not the crate's, and runs
/// on that thread, parks it too, as channels do, and takes a call that was meant for the crate.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub(crate) fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    /// Waits until it is set, and unsets it.
    pub(crate) fn wait(&self) {
        let mut is_set = self.is_set.lock();
        while !*is_set {
            is_set = self.changed.wait(is_set);
        }
        *is_set = false;
    }

    /// As [`wait`](Self::wait), for about so long at most. In a model, where there is no time, until other threads have run.
    pub(crate) fn wait_for(&self, patience: Duration) {
        let mut is_set = self.is_set.lock();
        if !*is_set {
            #[cfg(not(loom))]
            {
                is_set = self.changed.wait_timeout(is_set, patience);
            }
            #[cfg(loom)]
            {
                drop((is_set, patience));
                super::yield_now();
                is_set = self.is_set.lock();
            }
        }
        *is_set = false;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_comes_first_is_kept_and_counts_once() {
        let signal = Signal::default();
        signal.set();
        signal.set();
        signal.wait();
        signal.wait_for(Duration::ZERO);
        assert!(!*signal.is_set.lock());
    }

    #[test]
    fn who_waits_is_woken_whatever_else_parks_the_thread() {
        let signal = Signal::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                std::thread::park_timeout(Duration::ZERO);
                signal.wait();
            });
            signal.set();
            waiting.join().expect("it does not panic");
        });
    }
}
