//! Two covers at once: of one point, and of a point before and one behind a free.

use alluvion::Frontier;
use loom::thread;
use loom_tests::{Rig, Seen, Work, explore};

const USE: Work = Work(0);
const NEXT: Work = Work(1);
const LATER: Work = Work(2);

static SHARED: Seen = Seen::never();
static APART: Seen = Seen::never();

/// Two streams want one block's neighbours at the same time, and each waits for the stream that freed them.
#[test]
fn two_waiters_both_come_after() {
    explore(|| {
        let rig = Rig::new();
        let (home, first, second) = (rig.stream(), rig.stream(), rig.stream());
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        let waiting = {
            let (rig, free) = (rig.clone(), free.clone());
            thread::spawn(move || {
                first.as_ref().wait_for(&free).expect("nothing fails");
                rig.submit_after(first.as_ref(), NEXT, USE);
                first
            })
        };
        second.as_ref().wait_for(&free).expect("nothing fails");
        rig.submit_after(second.as_ref(), LATER, USE);
        drop(waiting.join().unwrap());
        rig.mock.assert_no_mistakes();
    });
}

/// Two threads record on one stream, and one of them frees before: an event that covers the free has the use before it,
/// also where the thread that did not free was given the other's.
#[test]
fn the_one_that_covers_the_free_is_enough() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        let recording = {
            let (rig, home) = (rig.clone(), home.clone());
            thread::spawn(move || {
                rig.submit(home.as_ref(), USE);
                let free = home.as_ref().release();
                (home.record().expect("nothing fails"), free)
            })
        };
        let mine = home.record().expect("nothing fails");
        let (theirs, free) = recording.join().unwrap();
        assert!(theirs.stamp().epoch() >= free.epoch());
        if mine.stamp().epoch() >= free.epoch() {
            let other = rig.stream();
            other.wait_event(&mine).expect("nothing fails");
            rig.submit_after(other.as_ref(), LATER, USE);
        }
        SHARED.note(mine.stamp() == theirs.stamp());
        APART.note(mine.stamp() != theirs.stamp());
        // The one that asks for the least waiting is taken, and it is enough.
        taking.as_ref().wait_for(&Frontier::of(free)).expect("nothing fails");
        rig.submit_after(taking.as_ref(), NEXT, USE);
        rig.mock.assert_no_mistakes();
    });
    assert!(SHARED.times() > 0 && APART.times() > 0);
}
