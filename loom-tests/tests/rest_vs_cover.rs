//! Rest against cover: the last lease of a stream that came by its handle covers what was handed out, goes to rest, and waits for
//! whoever is recording. So its owner may end the stream then, and nobody uses the handle.

#![cfg(loom)]

use alluvion::Frontier;
use loom::thread;
use loom_tests::{Rig, Work, explore, explore_bounded};

const USE: Work = Work(0);
const NEXT: Work = Work(1);
const LATER: Work = Work(2);

/// The record at the free fails, so that the waiter has to record while the lease ends, or finds what its end has recorded.
#[test]
fn a_stream_is_left_alone_once_it_rests() {
    explore(|| {
        let rig = Rig::new();
        let (raw, taking) = (rig.bare(), rig.stream());
        let home = rig.lent(raw);
        rig.submit(home.as_ref(), USE);
        rig.mock.fail_records(1);
        let free = Frontier::of(home.as_ref().release());
        let ending = {
            let rig = rig.clone();
            thread::spawn(move || {
                drop(home);
                rig.mock.end(raw);
            })
        };
        taking.as_ref().wait_for(&free).expect("it is covered before it rests");
        rig.submit_after(taking.as_ref(), NEXT, USE);
        ending.join().unwrap();
        rig.mock.assert_no_mistakes();
    });
}

/// Two threads come with one handle, for the first time or not, and each frees behind a use of its own; the first free cannot
/// record. Whoever ends last covers both.
#[test]
fn the_last_of_two_leases_covers_both() {
    explore_bounded(Some(2), || {
        let rig = Rig::new();
        let (raw, taking) = (rig.bare(), rig.stream());
        rig.make_table(raw);
        rig.mock.fail_records(1);
        let free_after = move |rig: &Rig, work| {
            let home = rig.lent(raw);
            rig.submit(home.as_ref(), work);
            Frontier::of(home.as_ref().release())
        };
        let other = {
            let rig = rig.clone();
            thread::spawn(move || free_after(&rig, USE))
        };
        let mine = free_after(&rig, NEXT);
        let theirs = other.join().unwrap();
        rig.mock.end(raw);
        taking.as_ref().wait_for(&mine).expect("it is covered");
        taking.as_ref().wait_for(&theirs).expect("it is covered");
        rig.submit_after(taking.as_ref(), LATER, USE);
        rig.mock.assert_no_mistakes();
    });
}
