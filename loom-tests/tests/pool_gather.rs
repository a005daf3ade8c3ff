//! Gathering: what several streams have freed, side by side, becomes one block of a stream that waits for all of them first. Who
//! takes it from that stream comes after all of them, too.

use std::sync::Arc;

use alluvion::suballoc::Growth;
use alluvion::{Frontier, PoolConfig, Stream};
use loom::sync::Mutex;
use loom_tests::{Plot, Rig, Seen, Site, Work, explore, explore_bounded, spawn};

const USES: [Work; 2] = [Work(0), Work(1)];
const NEXT: Work = Work(2);
const LAST: Work = Work(3);

/// How often a thread is preempted. With three there are 120,000 schedules where two threads take the slow path, and all would take hours.
const PREEMPTIONS: Option<usize> = Some(2);

/// Long enough that a request comes from the core alone, and not with others.
const LONG: usize = 64 << 10;

/// Two halves, each of a stream of its own, and two more streams. The device gets nothing done.
fn site() -> (Site, [(Stream, Plot); 2], [Stream; 2]) {
    let all = 2 * LONG;
    let site = Site::new(all, PoolConfig::default().initial(all).maximum(all).growth(Growth::Exact));
    let halves = [(); 2].map(|()| {
        let stream = site.rig.stream();
        let plot = site.take(stream.as_ref(), LONG).expect("there is room");
        (stream, plot)
    });
    let others = [(); 2].map(|()| site.rig.stream());
    site.rig.mock.keep_busy();
    (site, halves, others)
}

/// One half is free, the other one is being freed.
fn gathered(merges: bool, seen: &'static [Seen; 2]) {
    explore_bounded(PREEMPTIONS, move || {
        let (site, [(one, of_one), (other, of_other)], [gathering, last]) = site();
        site.use_on(one.as_ref(), &of_one, USES[0]);
        site.give(one.as_ref(), of_one);
        let freeing = {
            let site = site.clone();
            spawn(move || {
                site.use_on(other.as_ref(), &of_other, USES[1]);
                site.give(other.as_ref(), of_other);
                other
            })
        };
        if merges {
            site.pool.merge(gathering.as_ref()).expect("nothing fails");
        }
        let whole = site.take(gathering.as_ref(), 2 * LONG);
        seen[usize::from(whole.is_some())].note(true);
        if let Some(plot) = whole {
            site.use_on(gathering.as_ref(), &plot, NEXT);
            site.give(gathering.as_ref(), plot);
        }
        drop(freeing.join().unwrap());
        // Half of it, for another one: whoever has it now, that one's work comes after what used it.
        let half = site.take(last.as_ref(), LONG).expect("nothing is live");
        site.use_on(last.as_ref(), &half, LAST);
        site.give(last.as_ref(), half);
        drop((one, gathering, last));
        site.end();
    });
    assert!(seen.iter().all(|seen| seen.times() > 0), "{seen:?}");
}

#[test]
fn what_is_wanted_whole_is_gathered() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    gathered(false, &SEEN);
}

#[test]
fn what_is_merged_is_gathered() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    gathered(true, &SEEN);
}

/// One stream gathers while another one takes a half.
#[test]
fn a_half_is_taken_or_gathered() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let (site, halves, [gathering, last]) = site();
        let streams: Vec<Stream> = halves
            .into_iter()
            .zip(USES)
            .map(|((stream, plot), work)| {
                site.use_on(stream.as_ref(), &plot, work);
                site.give(stream.as_ref(), plot);
                stream
            })
            .collect();
        let taking = {
            let site = site.clone();
            spawn(move || {
                let half = site.take(last.as_ref(), LONG);
                half.iter().for_each(|half| site.use_on(last.as_ref(), half, LAST));
                (half, last)
            })
        };
        let whole = site.take(gathering.as_ref(), 2 * LONG);
        whole.iter().for_each(|whole| site.use_on(gathering.as_ref(), whole, NEXT));
        let (half, last) = taking.join().unwrap();
        assert_ne!(whole.is_some(), half.is_some(), "nothing else is live");
        SEEN[usize::from(whole.is_some())].note(true);
        whole.into_iter().for_each(|plot| site.give(gathering.as_ref(), plot));
        half.into_iter().for_each(|plot| site.give(last.as_ref(), plot));
        drop((streams, gathering, last));
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// One stream gathers, and leaves what it has gathered free. Who takes a part of that waits for it.
#[test]
fn what_is_gathered_is_of_who_has_waited() {
    explore_bounded(PREEMPTIONS, || {
        let (site, halves, [gathering, last]) = site();
        let streams: Vec<Stream> = halves
            .into_iter()
            .zip(USES)
            .map(|((stream, plot), work)| {
                site.use_on(stream.as_ref(), &plot, work);
                site.give(stream.as_ref(), plot);
                stream
            })
            .collect();
        let merging = {
            let site = site.clone();
            spawn(move || {
                site.pool.merge(gathering.as_ref()).expect("nothing fails");
                gathering
            })
        };
        let half = site.take(last.as_ref(), LONG).expect("nothing is live");
        site.use_on(last.as_ref(), &half, LAST);
        let other = site.take(last.as_ref(), LONG).expect("so much is left");
        site.use_on(last.as_ref(), &other, LAST);
        site.give(last.as_ref(), half);
        site.give(last.as_ref(), other);
        drop((streams, merging.join().unwrap(), last));
        site.end();
    });
}

/// The protocol written down once more: two pieces, of two streams, become one of a third.
fn gathered_by_hand(waits_for_both: bool) {
    explore(move || {
        let rig = Rig::new();
        let [one, other, gathering, last] = [(); 4].map(|()| rig.stream());
        rig.submit(one.as_ref(), USES[0]);
        let of_one = one.as_ref().release();
        let free = Arc::new(Mutex::new(None));
        let freeing = {
            let (rig, free) = (rig.clone(), Arc::clone(&free));
            spawn(move || {
                rig.submit(other.as_ref(), USES[1]);
                *free.lock().unwrap() = Some(other.as_ref().release());
                other
            })
        };
        let of_other = free.lock().unwrap().take();
        if let Some(of_other) = of_other {
            let waits = [Some(of_one), waits_for_both.then_some(of_other)];
            for stamp in waits.into_iter().flatten() {
                gathering.as_ref().wait_for(&Frontier::of(stamp)).expect("nothing fails");
            }
            let gathered = gathering.as_ref().release();
            last.as_ref().wait_for(&Frontier::of(gathered)).expect("nothing fails");
            rig.submit_after(last.as_ref(), LAST, USES[0]);
            rig.submit_after(last.as_ref(), LAST, USES[1]);
        }
        drop(freeing.join().unwrap());
        rig.mock.assert_no_mistakes();
    });
}

#[test]
fn waiting_for_both_is_enough() {
    gathered_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for: the one with which merging two lists lost a dependency.
#[test]
#[should_panic(expected = "Work(3) may overtake Work(1)")]
fn waiting_for_one_is_caught() {
    gathered_by_hand(false);
}
