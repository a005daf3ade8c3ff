//! `NoFork`: a time in which this process does not fork.
//!
//! A child of a fork gets the descriptors of its parent, and the mappings that are not kept from it yet; and with them the locks of what
//! they keep open. A child that came while a file is opened would keep its parent's place for as long as the child lives.

#![expect(unsafe_code, reason = "registers fork handlers with the C library")]
#![allow(clippy::disallowed_types, reason = "fork handlers change them; no model has one")]

use core::cell::Cell;
use core::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The number of such times, in all threads.
static TIMES: AtomicU32 = AtomicU32::new(0);
/// The number of forks that are under way, or wait.
static FORKS: AtomicU32 = AtomicU32::new(0);
static IS_TOLD: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Those of this thread. It has no destructor, so it is there at any time.
    static MINE: Cell<u32> = const { Cell::new(0) };
}

/// The longest wait of a fork, and for one. A file is opened and mapped in some 50 µs; on a file system that does not answer, the child
/// may keep a lock. A fork may wait for this very thread: where another library takes a lock in a handler of its own, and this thread has
/// that lock. So a time begins in the end, and the child may keep a lock then, too.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_micros(50);

/// No fork begins while a thread has one of these, and none is made while a fork is under way.
#[derive(Debug)]
pub(crate) struct NoFork {
    /// It is counted for its thread.
    _of_thread: PhantomData<*const ()>,
}

impl NoFork {
    pub(crate) fn begin() -> Self {
        look_after_forks();
        Self::begin_within(PATIENCE)
    }

    fn begin_within(patience: Duration) -> Self {
        let (mine, begun) = (MINE.get(), Instant::now());
        loop {
            // SeqCst, here and in `before_fork`: each side says that it comes, and then looks for the other, so one of the two sees it.
            TIMES.fetch_add(1, Ordering::SeqCst);
            // A fork that waits for this thread is not waited for.
            if mine > 0 || FORKS.load(Ordering::SeqCst) == 0 || begun.elapsed() > patience {
                break;
            }
            TIMES.fetch_sub(1, Ordering::SeqCst);
            thread::sleep(NAP);
        }
        MINE.set(mine + 1);
        Self { _of_thread: PhantomData }
    }
}

impl Drop for NoFork {
    fn drop(&mut self) {
        MINE.set(MINE.get() - 1);
        // Release: what was opened is closed by then.
        TIMES.fetch_sub(1, Ordering::Release);
    }
}

extern "C" fn before_fork() {
    wait_for_others(PATIENCE);
}

fn wait_for_others(patience: Duration) {
    FORKS.fetch_add(1, Ordering::SeqCst);
    let begun = Instant::now();
    // The times of the thread that forks do not end before it has.
    while TIMES.load(Ordering::SeqCst) > MINE.get() && begun.elapsed() < patience {
        thread::sleep(NAP);
    }
}

extern "C" fn in_parent() {
    // Relaxed: it says that something is over. None is left where the handlers were registered in the middle of a fork.
    let _ = FORKS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |forks| forks.checked_sub(1));
}

extern "C" fn in_child() {
    // Relaxed: the child has one thread, which is this one.
    FORKS.store(0, Ordering::Relaxed);
    TIMES.store(MINE.get(), Ordering::Relaxed);
}

fn look_after_forks() {
    // Relaxed: if two threads come at once, both register, and a fork counts twice and is over twice.
    if IS_TOLD.load(Ordering::Relaxed) {
        return;
    }
    // SAFETY: it takes three optional functions; they do not unwind, and do what is permitted in a thread that forks and in its child:
    // they wait, and change atomics. A failure (no memory) leaves forks as they are: a child may keep a lock then.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    IS_TOLD.store(true, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests of this program have such times, too, and come to their end. Nobody else forks.
    const UNTIL_IT_IS_SO: Duration = Duration::MAX;

    #[test]
    fn a_fork_waits_for_such_a_time_and_the_next_one_for_the_fork() {
        let [is_time_over, is_fork_over] = [const { AtomicBool::new(false) }; 2];
        let time = NoFork::begin();
        thread::scope(|scope| {
            let forks = scope.spawn(|| {
                wait_for_others(UNTIL_IT_IS_SO);
                is_time_over.load(Ordering::SeqCst)
            });
            while FORKS.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            // This thread has one, so it gets another one at once.
            drop(NoFork::begin());
            let comes_next = scope.spawn(|| {
                let _time = NoFork::begin_within(UNTIL_IT_IS_SO);
                is_fork_over.load(Ordering::SeqCst)
            });
            is_time_over.store(true, Ordering::SeqCst);
            drop(time);
            assert!(forks.join().expect("it does not panic"), "the fork did not wait");
            is_fork_over.store(true, Ordering::SeqCst);
            in_parent();
            assert!(comes_next.join().expect("it does not panic"), "nobody waited for the fork");
            // A thread that forks in such a time of its own does not wait for itself.
            let time = NoFork::begin();
            wait_for_others(UNTIL_IT_IS_SO);
            drop(time);
            // A fork that comes to no end, because it waits for this very thread, is not waited for without end.
            drop(NoFork::begin_within(Duration::ZERO));
            in_parent();
        });
    }
}
