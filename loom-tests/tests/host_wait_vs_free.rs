//! A wait of the host against free: the epoch is advanced before the host waits or asks, so whoever read the old epoch had
//! submitted before.

use alluvion::{Frontier, Stream};
use loom::thread;
use loom_tests::{Rig, Seen, Work, explore, explore_bounded};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

/// One thread uses a block and frees it, another waits in one way or another. If the block is then said to be over, it is.
fn over_means_over(wait: fn(&Rig, &Stream), seen: &'static [Seen; 2]) {
    explore(move || {
        let rig = Rig::new();
        let (home, other) = (rig.stream(), rig.stream());
        let waiting = {
            let (rig, home) = (rig.clone(), home.clone());
            thread::spawn(move || wait(&rig, &home))
        };
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        let may = other.as_ref().may_reuse(&free);
        if may {
            rig.submit_after(other.as_ref(), NEXT, USE);
        }
        waiting.join().unwrap();
        let may_then = other.as_ref().may_reuse(&free);
        assert!(may_then || !may, "what is over stays so");
        if may_then {
            rig.submit_after(other.as_ref(), NEXT, USE);
        }
        seen[usize::from(may_then)].note(true);
        rig.mock.assert_no_mistakes();
    });
    assert!(seen.iter().all(|seen| seen.times() > 0), "{seen:?}");
}

#[test]
fn for_a_stream() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    over_means_over(|_, home| home.synchronize().expect("nothing fails"), &SEEN);
}

#[test]
fn by_asking_a_stream() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    over_means_over(|_, home| assert!(home.is_idle().expect("nothing fails")), &SEEN);
}

#[test]
fn for_the_device() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    over_means_over(|rig, _| rig.device.synchronize().expect("nothing fails"), &SEEN);
}

#[test]
fn for_an_event() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    let wait = |_: &Rig, home: &Stream| {
        let event = home.record().expect("nothing fails");
        event.synchronize().expect("nothing fails");
    };
    over_means_over(wait, &SEEN);
}

/// Two threads ask whether a block is quiescent, and one of them may be told by what the other one has found. Whoever is told so
/// knows that the use is over.
#[test]
fn by_what_another_thread_was_told() {
    static TOLD: [Seen; 2] = [Seen::never(), Seen::never()];
    // All schedules would take half a minute.
    explore_bounded(Some(3), || {
        let rig = Rig::new();
        let home = rig.stream();
        rig.submit(home.as_ref(), USE);
        let free = Frontier::of(home.as_ref().release());
        drop(home.record().expect("nothing fails"));
        let ask = |rig: &Rig, free: &Frontier| {
            assert!(rig.machine.is_quiescent(free).expect("nothing fails"));
            assert!(rig.mock.over().contains(USE), "the host may overtake the use");
        };
        let asking = {
            let (rig, free) = (rig.clone(), free.clone());
            thread::spawn(move || ask(&rig, &free))
        };
        ask(&rig, &free);
        asking.join().unwrap();
        TOLD[usize::from(rig.mock.queries() == 1)].note(true);
        rig.mock.assert_no_mistakes();
    });
    assert!(TOLD.iter().all(|told| told.times() > 0), "one asks, or both: {TOLD:?}");
}
