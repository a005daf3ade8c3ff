//! `StartLine`: where threads wait for each other, without sleeping.

use core::hint;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Where threads wait for each other, as often as they like.
///
/// They spin, because waking sixteen sleeping threads takes 0.1 ms, and what is timed may take 2 ms. After a while they
/// give the processor to others, so that more threads than processors come through too.
pub(crate) struct StartLine {
    threads: usize,
    arrivals: AtomicUsize,
}

/// About 10 µs.
const SPINS: usize = 1000;

impl StartLine {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads, arrivals: AtomicUsize::new(0) }
    }

    /// Returns when every thread has come as often as this one.
    pub(crate) fn wait(&self) {
        // AcqRel, with the Acquire below: what a thread did before it came is visible to all who leave.
        let before = self.arrivals.fetch_add(1, Ordering::AcqRel);
        let all = (before / self.threads + 1) * self.threads;
        for spins in 0_usize.. {
            if self.arrivals.load(Ordering::Acquire) >= all {
                return;
            }
            if spins < SPINS { hint::spin_loop() } else { thread::yield_now() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_leaves_before_everybody_has_come() {
        let (line, come) = (StartLine::new(4), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 1..=100 {
                        come.fetch_add(1, Ordering::Relaxed);
                        line.wait();
                        assert_eq!(come.load(Ordering::Relaxed), 4 * round);
                        line.wait();
                    }
                });
            }
        });
    }
}
