//! Cover against free: the epoch is advanced before the event is recorded, so whoever read the old epoch had submitted
//! before the record.

use std::sync::Arc;

use alluvion::Frontier;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use loom_tests::{Rig, Seen, Work, explore};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

static COVERED: Seen = Seen::never();
static NOT_COVERED: Seen = Seen::never();

/// One thread uses a block and frees it, another records an event. An event of the epoch that the block was freed in, or of
/// a later one, has the use before it.
#[test]
fn an_event_covers_what_was_released_in_its_epoch() {
    explore(|| {
        let rig = Rig::new();
        let (stream, other) = (rig.stream(), rig.stream());
        let covering = {
            let stream = stream.clone();
            thread::spawn(move || stream.record().expect("nothing fails"))
        };
        rig.submit(stream.as_ref(), USE);
        let freed = stream.as_ref().release();
        let event = covering.join().unwrap();

        other.wait_event(&event).expect("nothing fails");
        let covered = event.stamp().epoch() >= freed.epoch();
        assert_eq!(other.as_ref().may_reuse(&Frontier::of(freed)), covered);
        if covered {
            rig.submit_after(other.as_ref(), NEXT, USE);
        }
        COVERED.note(covered);
        NOT_COVERED.note(!covered);
        rig.mock.assert_no_mistakes();
    });
    assert!(COVERED.times() > 0 && NOT_COVERED.times() > 0);
}

/// The protocol written down once more, with either order of its two steps, with and without the fence of who frees.
fn covered_by_hand(advance_first: bool, fenced: bool) {
    explore(move || {
        let rig = Rig::new();
        let (stream, other) = (rig.stream(), rig.stream());
        let epoch = Arc::new(AtomicU64::new(1));
        let covering = {
            let (rig, stream, other, epoch) =
                (rig.clone(), stream.clone(), other.clone(), Arc::clone(&epoch));
            thread::spawn(move || {
                let advance = || {
                    let ended = epoch.fetch_add(1, Ordering::AcqRel);
                    fence(Ordering::Release);
                    ended
                };
                let record_and_wait = || other.wait_for_stream(&stream).expect("nothing fails");
                if advance_first {
                    let covered = advance();
                    record_and_wait();
                    (covered, rig)
                } else {
                    record_and_wait();
                    (advance(), rig)
                }
            })
        };
        rig.submit(stream.as_ref(), USE);
        if fenced {
            fence(Ordering::Acquire);
        }
        let freed = epoch.load(Ordering::Acquire);
        let (covered, rig) = covering.join().unwrap();
        if covered >= freed {
            rig.submit_after(other.as_ref(), NEXT, USE);
        }
    });
}

#[test]
fn advancing_first_is_enough() {
    covered_by_hand(true, true);
}

/// Shows that the model can see the mistakes that it is there for.
#[test]
#[should_panic(expected = "Work(1) may overtake Work(0)")]
fn recording_first_is_caught() {
    covered_by_hand(false, true);
}

#[test]
#[should_panic(expected = "Work(1) may overtake Work(0)")]
fn reading_before_the_submission_is_caught() {
    covered_by_hand(true, false);
}
