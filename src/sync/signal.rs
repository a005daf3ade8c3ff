//! `Signal`: lets a thread sleep until another one wakes it.

use core::time::Duration;

use super::{Condvar, Mutex};

/// Wakes one thread: the one that waits, or the next one to wait.
///
/// Why not `park` and `unpark`: an `unpark` is kept for the thread, not for a purpose. Foreign code on that thread, such as a
/// channel, parks too, and would consume a wake-up that was meant for the crate.
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

    /// Waits until it is set, and clears it.
    pub(crate) fn wait(&self) {
        let mut is_set = self.is_set.lock();
        while !*is_set {
            is_set = self.changed.wait(is_set);
        }
        *is_set = false;
    }

    /// As [`wait`](Self::wait), for about `patience` at most. Under loom, where there is no time, until other threads have run.
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
    fn a_set_before_the_wait_is_kept_and_counts_once() {
        let signal = Signal::default();
        signal.set();
        signal.set();
        signal.wait();
        signal.wait_for(Duration::ZERO);
        assert!(!*signal.is_set.lock());
    }

    #[test]
    fn a_wait_is_woken_though_other_code_parks_the_thread() {
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
