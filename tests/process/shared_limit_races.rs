//! A limit that processes share, where two come at one moment: to what a dead one had, to a name that is about to be free, and to a fork.

#![expect(unsafe_code, reason = "forks, and registers handlers of forks")]

use std::hint;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use alluvion::adaptor::{Allowance, SharedConfig};
use alluvion::share::lease::Lease;

use crate::child::{done, in_child};
use crate::rerun::is_child;
use crate::shared_directory::SharedDirectory;
use crate::steps::{Process, directory, step};
use crate::wait_for_fork::wait_for_fork;

const UNIT: usize = 1024;

/// A member has died with eight of ten. Two want four each at the same moment, and there are ten.
#[test]
fn two_who_need_what_a_dead_one_had_are_both_served() {
    const TEST: &str = "shared_limit_races::two_who_need_what_a_dead_one_had_are_both_served";
    /// One of some hundred rounds shows the mistake; on a slow machine there are fewer.
    const ROUNDS: usize = 1000;
    const ENOUGH: Duration = Duration::from_secs(10);
    let directory = SharedDirectory::new();
    in_child(TEST, 1, || {
        let config = directory.limit("card", 10 * UNIT);
        let members = [(); 2].map(|()| Allowance::shared(&config).expect("there is room"));
        let begun = Instant::now();
        for round in (0..ROUNDS).take_while(|_| begun.elapsed() < ENOUGH) {
            // SAFETY: no other thread runs now, so nobody has a lock.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "a process can be forked");
            if child == 0 {
                let dies = Allowance::shared(&config).and_then(|own| own.reserve(8 * UNIT));
                // SAFETY: ends the process at once, and gives nothing back.
                unsafe { libc::_exit(i32::from(dies.is_err())) };
            }
            wait_for_fork(child);
            let barrier = Barrier::new(2);
            let take = |member: &Allowance| {
                barrier.wait();
                // Until both have asked.
                let part = member.reserve(4 * UNIT);
                barrier.wait();
                part.map(drop)
            };
            thread::scope(|scope| {
                let other = scope.spawn(|| take(&members[1]));
                let outcomes = [take(&members[0]), other.join().expect("it does not panic")];
                for outcome in outcomes {
                    outcome.unwrap_or_else(|error| panic!("round {round}: {error}"));
                }
            });
        }
        done();
    });
}

/// Whoever starts with another guarantee than the process before waits for the end of that one, as with the same.
#[test]
fn a_guarantee_is_changed_when_the_process_before_has_ended() {
    const TEST: &str = "shared_limit_races::a_guarantee_is_changed_when_the_process_before_has_ended";
    let config = |directory: &std::path::Path, kib| {
        SharedConfig::new("card", 64 * UNIT)
            .directory(directory)
            .guarantee("server", kib * UNIT)
            .member("server")
    };
    if is_child(TEST) {
        let _server = Allowance::shared(&config(&directory(), 8)).expect("there is room");
        step("ready", "");
        return;
    }
    let directory = SharedDirectory::new();
    let mut before = Process::start(TEST, &directory, "");
    before.reach("ready");
    let next = config(directory.path(), 9);
    thread::scope(|scope| {
        let joins = scope.spawn(|| Allowance::shared(&next));
        // Time for a mistake: whoever is slow makes none.
        for _ in 0..50 {
            assert!(!joins.is_finished(), "it does not wait");
            thread::sleep(Duration::from_millis(1));
        }
        before.kill();
        let joined = joins.join().expect("it does not panic");
        // On a machine that took two seconds for the kill it is refused, by the guarantee.
        if let Err(error) = joined {
            assert!(error.to_string().contains("runs with a guarantee of 8 KiB, and not 9 KiB"), "{error}");
        }
    });
    crate::steps::eventually(|| Allowance::shared(&next).is_ok(), "the process before has ended");
}

/// A library that takes its lock in a handler of forks, as the C library does with those of its allocator.
static LOCK: AtomicBool = AtomicBool::new(false);
/// A fork waits for that lock.
static IS_WAITED_FOR: AtomicBool = AtomicBool::new(false);

fn lock() {
    while LOCK.swap(true, Ordering::SeqCst) {
        hint::spin_loop();
        thread::yield_now();
    }
}

extern "C" fn before_fork() {
    IS_WAITED_FOR.store(true, Ordering::SeqCst);
    lock();
}

extern "C" fn behind_fork() {
    LOCK.store(false, Ordering::SeqCst);
}

/// A thread has the lock of such a library, and opens a file of leases; a fork waits for the thread by then.
#[test]
fn a_fork_and_a_thread_that_it_waits_for_both_come_to_their_end() {
    const TEST: &str = "shared_limit_races::a_fork_and_a_thread_that_it_waits_for_both_come_to_their_end";
    let directory = SharedDirectory::new();
    in_child(TEST, 1, || {
        // SAFETY: the handlers wait and change atomics, and do not unwind.
        unsafe { libc::pthread_atfork(Some(before_fork), Some(behind_fork), Some(behind_fork)) };
        // The first file: from here on forks are looked after, before that library is asked.
        drop(Lease::begin(directory.path(), |name| name.0.to_vec()).expect("there is room"));
        lock();
        thread::scope(|scope| {
            let begins = scope.spawn(|| {
                while !IS_WAITED_FOR.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                let lease = Lease::begin(directory.path(), |name| name.0.to_vec());
                behind_fork();
                lease.map(drop)
            });
            // SAFETY: the child ends at once.
            let child = unsafe { libc::fork() };
            assert!(child >= 0, "a process can be forked");
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(0) };
            }
            wait_for_fork(child);
            begins.join().expect("it does not panic").expect("there is room");
        });
        done();
    });
}
