//! Sweep against look-up in the table of bare streams: an entry that is taken out because nobody uses it, while a thread comes with
//! its handle again, ends with all that was handed out covered, or goes back.

#![cfg(loom)]

use alluvion::Frontier;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::thread;
use loom_tests::{Rig, Seen, Work, explore_bounded};

const USE: Work = Work(0);
const NEXT: Work = Work(1);
const OTHER: Work = Work(2);
const LATER: Work = Work(3);

static FOUND: Seen = Seen::never();
static ENDED: Seen = Seen::never();

/// One entry is kept in a model, so that each stream which comes for the first time takes the one before out, if that rests.
#[test]
fn a_stream_that_comes_while_it_is_taken_out_is_found_or_is_another() {
    explore_bounded(Some(3), || {
        let rig = Rig::new();
        let (first, second, taking) = (rig.bare(), rig.bare(), rig.stream());
        let home = rig.lent(first);
        let id = home.id();
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        drop(home);
        let has_come = Arc::new(AtomicBool::new(false));
        let entering = {
            let (rig, has_come) = (rig.clone(), Arc::clone(&has_come));
            thread::spawn(move || {
                let other = rig.lent(second);
                has_come.store(true, Relaxed);
                rig.submit(other.as_ref(), OTHER);
                let free = Frontier::of(other.as_ref().release());
                drop(other);
                rig.mock.end(second);
                free
            })
        };
        // A look-up keeps its entry from ending, and the model does not see the count that it does so by.
        let _ = has_come.load(Relaxed);
        // The same stream by one number or by two: then the driver's queue orders them, and the library waits besides.
        let again = rig.lent(first);
        FOUND.note(again.id() == id);
        ENDED.note(again.id() != id);
        again.as_ref().wait_for(&free).expect("what was handed out is covered");
        rig.submit_after(again.as_ref(), NEXT, USE);
        // Its free cannot record, so that who waits for it while the lease lasts has to.
        rig.mock.fail_records(1);
        let freed_again = Frontier::of(again.as_ref().release());
        taking.as_ref().wait_for(&freed_again).expect("the handle is good");
        rig.submit_after(taking.as_ref(), LATER, NEXT);
        drop(again);
        let others = entering.join().unwrap();
        // Nobody holds a lease, so the owner may end the stream. What was freed on it is handed on without its handle.
        rig.mock.end(first);
        for (free, earlier) in [(free, USE), (others, OTHER)] {
            taking.as_ref().wait_for(&free).expect("it is covered");
            rig.submit_after(taking.as_ref(), LATER, earlier);
        }
        rig.mock.assert_no_mistakes();
    });
    assert!(FOUND.times() > 0 && ENDED.times() > 0, "{FOUND:?} {ENDED:?}");
}

/// Two threads come with two streams for the first time, and each may take the other's entry out.
#[test]
fn two_streams_that_come_at_once_do_not_take_each_other_out() {
    explore_bounded(Some(2), || {
        let rig = Rig::new();
        let (first, second, taking) = (rig.bare(), rig.bare(), rig.stream());
        rig.make_table(first);
        let free_after = |rig: &Rig, raw, work| {
            let home = rig.lent(raw);
            rig.submit(home.as_ref(), work);
            let free = Frontier::of(home.as_ref().release());
            drop(home);
            rig.mock.end(raw);
            free
        };
        let other = {
            let rig = rig.clone();
            thread::spawn(move || free_after(&rig, second, OTHER))
        };
        let mine = free_after(&rig, first, USE);
        let theirs = other.join().unwrap();
        for (free, earlier) in [(mine, USE), (theirs, OTHER)] {
            taking.as_ref().wait_for(&free).expect("it is covered");
            rig.submit_after(taking.as_ref(), LATER, earlier);
        }
        rig.mock.assert_no_mistakes();
    });
}
