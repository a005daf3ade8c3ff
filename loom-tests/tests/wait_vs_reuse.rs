//! Wait against reuse: the driver is made to wait before the clock learns of it, so whoever reads in the clock that the
//! stream has waited submits behind the wait.

use std::sync::Arc;

use alluvion::Frontier;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use loom_tests::{Rig, Seen, Work, explore};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

static REUSED: Seen = Seen::never();
static REFUSED: Seen = Seen::never();

/// Two threads share the stream that takes a block over: one waits, the other takes the block if it may.
#[test]
fn whoever_may_reuse_submits_behind_the_wait() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        let waiting = {
            let (taking, free) = (taking.clone(), free.clone());
            thread::spawn(move || taking.as_ref().wait_for(&free).expect("nothing fails"))
        };
        let may = taking.as_ref().may_reuse(&free);
        if may {
            rig.submit_after(taking.as_ref(), NEXT, USE);
        }
        REUSED.note(may);
        REFUSED.note(!may);
        waiting.join().unwrap();
        assert!(taking.as_ref().may_reuse(&free));
        rig.mock.assert_no_mistakes();
    });
    assert!(REUSED.times() > 0 && REFUSED.times() > 0);
}

/// What a stream has waited for reaches the streams that wait for it, and no more than that.
#[test]
fn what_is_inherited_was_waited_for() {
    explore(|| {
        let rig = Rig::new();
        let (home, between, taking) = (rig.stream(), rig.stream(), rig.stream());
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        let waiting = {
            let (between, free) = (between.clone(), free.clone());
            thread::spawn(move || between.as_ref().wait_for(&free).expect("nothing fails"))
        };
        taking.wait_for_stream(&between).expect("nothing fails");
        if taking.as_ref().may_reuse(&free) {
            rig.submit_after(taking.as_ref(), NEXT, USE);
        }
        waiting.join().unwrap();
        rig.mock.assert_no_mistakes();
    });
}

/// The protocol written down once more, in the wrong order: shows that the model can see the mistake.
#[test]
#[should_panic(expected = "Work(1) may overtake Work(0)")]
fn learning_first_is_caught() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        rig.submit(home.as_ref(), USE);
        let waited = Arc::new(AtomicU64::new(0));
        let waiting = {
            let (home, taking, waited) = (home.clone(), taking.clone(), Arc::clone(&waited));
            thread::spawn(move || {
                waited.store(1, Ordering::Release);
                taking.wait_for_stream(&home).expect("nothing fails");
            })
        };
        if waited.load(Ordering::Acquire) == 1 {
            rig.submit_after(taking.as_ref(), NEXT, USE);
        }
        waiting.join().unwrap();
    });
}
