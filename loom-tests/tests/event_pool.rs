//! The event pool: an event goes back, and is recorded anew, only when nobody can wait for it any more.

use loom::thread;
use loom_tests::{Rig, Work, explore};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

/// One thread waits for an event and lets go of it. Another ends the stream that it was recorded on, and records on a new
/// one: on an event from the pool.
#[test]
fn an_event_that_is_held_is_not_recorded_anew() {
    explore(|| {
        let rig = Rig::new();
        let (home, taking, other) = (rig.stream(), rig.stream(), rig.stream());
        rig.submit(home.as_ref(), USE);
        let event = home.record().expect("nothing fails");
        let recording = thread::spawn(move || {
            drop(home);
            drop(other.record().expect("nothing fails"));
            other
        });
        taking.wait_event(&event).expect("nothing fails");
        drop(event);
        rig.submit_after(taking.as_ref(), NEXT, USE);
        drop(recording.join().unwrap());
        rig.mock.assert_no_mistakes();
    });
}

/// Both threads record and let go: the pool hands each event to one of them at a time.
#[test]
fn an_event_is_lent_once() {
    explore(|| {
        let rig = Rig::new();
        let (first, second, taking) = (rig.stream(), rig.stream(), rig.stream());
        // Leaves spare events behind.
        drop(rig.stream());
        drop(rig.stream());
        let recording = {
            let (rig, first) = (rig.clone(), first.clone());
            thread::spawn(move || {
                rig.submit(first.as_ref(), USE);
                first.record().expect("nothing fails")
            })
        };
        rig.submit(second.as_ref(), NEXT);
        let of_second = second.record().expect("nothing fails");
        let of_first = recording.join().unwrap();
        taking.wait_event(&of_first).expect("nothing fails");
        rig.submit_after(taking.as_ref(), Work(2), USE);
        taking.wait_event(&of_second).expect("nothing fails");
        rig.submit_after(taking.as_ref(), Work(3), NEXT);
        rig.mock.assert_no_mistakes();
    });
}
