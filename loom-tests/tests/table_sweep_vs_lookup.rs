//! Sweep against look-up: what is not in the table is over, also while a stream that is gone is being forgotten and its
//! place given to another.

use alluvion::Frontier;
use loom::thread;
use loom_tests::{Rig, Seen, Work, explore};

const USE: Work = Work(0);
const NEXT: Work = Work(1);
const OTHER: Work = Work(2);

static OVER: Seen = Seen::never();
static NOT_OVER: Seen = Seen::never();

#[test]
fn a_block_of_a_stream_that_is_forgotten_is_over() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        drop(home);
        // Making a stream sweeps the table, and may take the place of the one that is gone.
        let making = {
            let rig = rig.clone();
            thread::spawn(move || {
                let made = rig.stream();
                rig.submit(made.as_ref(), OTHER);
                let freed = Frontier::of(made.as_ref().release());
                (made, freed)
            })
        };
        let over = taking.as_ref().may_reuse(&free);
        if !over {
            taking.as_ref().wait_for(&free).expect("nothing fails");
        }
        rig.submit_after(taking.as_ref(), NEXT, USE);
        OVER.note(over);
        NOT_OVER.note(!over);
        let (made, freed) = making.join().unwrap();
        assert!(made.as_ref().may_reuse(&freed));
        assert!(!taking.as_ref().may_reuse(&freed), "the newcomer is not the one that is over");
        taking.as_ref().wait_for(&freed).expect("nothing fails");
        rig.submit_after(taking.as_ref(), NEXT, OTHER);
        rig.mock.assert_no_mistakes();
    });
    assert!(OVER.times() > 0 && NOT_OVER.times() > 0);
}

/// The stream ends while the table is swept: it must not be forgotten before its last cover is done.
#[test]
fn a_stream_that_is_ending_is_not_forgotten() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        let ending = thread::spawn(move || drop(home));
        let made = rig.stream();
        taking.as_ref().wait_for(&free).expect("nothing fails");
        rig.submit_after(taking.as_ref(), NEXT, USE);
        ending.join().unwrap();
        drop(made);
        rig.mock.assert_no_mistakes();
    });
}

/// The device is busy: the stream is gone, its work is not.
#[test]
fn a_stream_whose_work_goes_on_is_not_forgotten() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        rig.mock.keep_busy();
        drop(home);
        let making = {
            let rig = rig.clone();
            thread::spawn(move || rig.stream())
        };
        assert!(!taking.as_ref().may_reuse(&free));
        taking.as_ref().wait_for(&free).expect("nothing fails");
        rig.submit_after(taking.as_ref(), NEXT, USE);
        drop(making.join().unwrap());
        rig.mock.assert_no_mistakes();
    });
}
