//! Retire against cover: the last handle covers the stream and publishes the cover before it lets go, and whoever is in the
//! middle of recording holds a pin, so the stream is destroyed once, is not used afterwards, and what was released on it
//! can still be waited for.

use alluvion::Frontier;
use loom::thread;
use loom_tests::{Rig, Work, explore};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

#[test]
fn what_was_released_stays_waitable() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        let raw = home.as_ref().raw();
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        let ending = thread::spawn(move || drop(home));
        taking.as_ref().wait_for(&free).expect("nothing fails");
        rig.submit_after(taking.as_ref(), NEXT, USE);
        ending.join().unwrap();
        assert_eq!(rig.mock.times_destroyed(raw), 1);
        rig.mock.assert_no_mistakes();
    });
}

/// Two handles, dropped by two threads, each behind a use of its own.
#[test]
fn the_last_of_two_handles_ends_the_stream() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        let raw = home.as_ref().raw();
        let ending = {
            let (rig, home) = (rig.clone(), home.clone());
            thread::spawn(move || {
                rig.submit(home.as_ref(), USE);
                let free = Frontier::of(home.as_ref().release());
                drop(home);
                free
            })
        };
        rig.submit(home.as_ref(), NEXT);
        drop(home);
        let free = ending.join().unwrap();
        taking.as_ref().wait_for(&free).expect("nothing fails");
        rig.submit_after(taking.as_ref(), Work(2), USE);
        assert_eq!(rig.mock.times_destroyed(raw), 1);
        rig.mock.assert_no_mistakes();
    });
}

/// A stream of somebody else's: its owner ends it as soon as the last handle is gone. The record at the free fails, so that
/// the waiter has to record while the handle goes.
#[test]
fn a_foreign_stream_is_left_alone_once_its_last_handle_is_gone() {
    explore(|| {
        let rig = Rig::new();
        let taking = rig.stream();
        let (home, raw) = rig.foreign();
        rig.submit(home.as_ref(), USE);
        rig.mock.fail_records(1);
        let free = Frontier::of(home.as_ref().release());
        let ending = {
            let mock = rig.mock.clone();
            thread::spawn(move || {
                drop(home);
                mock.end(raw);
            })
        };
        taking.as_ref().wait_for(&free).expect("nothing fails");
        rig.submit_after(taking.as_ref(), NEXT, USE);
        ending.join().unwrap();
        rig.mock.assert_no_mistakes();
    });
}

/// The last record fails, and so the last handle waits: while another thread looks whether the block is quiescent.
#[test]
fn a_last_record_that_fails_leaves_nothing_uncovered() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        let raw = home.as_ref().raw();
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        rig.mock.fail_records(1);
        let ending = thread::spawn(move || drop(home));
        // The one record that fails may be this thread's.
        let waited = taking.as_ref().wait_for(&free).is_ok();
        if waited {
            rig.submit_after(taking.as_ref(), NEXT, USE);
        }
        ending.join().unwrap();
        taking.as_ref().wait_for(&free).expect("covered, or waited for");
        rig.submit_after(taking.as_ref(), NEXT, USE);
        assert_eq!(rig.mock.times_destroyed(raw), 1);
        rig.mock.assert_no_mistakes();
    });
}
