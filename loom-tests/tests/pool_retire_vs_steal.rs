//! Retire against steal: what a stream that is gone has freed is taken by another stream, while a third one is given the place
//! of the first, in the machine's table and in the pool. Who looked at the place before has looked at the first.

use std::sync::Arc;

use alluvion::suballoc::Growth;
use alluvion::{Frontier, PoolConfig, Stream};
use loom::sync::Mutex;
use loom_tests::{Rig, Seen, Site, Work, explore, explore_bounded, spawn};

const USE: Work = Work(0);
const NEXT: Work = Work(1);
const OTHER: Work = Work(2);

/// How often a thread is preempted: with six there are up to 21,000 schedules of a model, and all would take hours.
const PREEMPTIONS: Option<usize> = Some(6);

/// Long enough that a request comes from the core alone, and not with others.
const UNIT: usize = 64 << 10;

fn site(units: usize) -> Site {
    let all = units * UNIT;
    Site::new(all, PoolConfig::default().initial(all).maximum(all).growth(Growth::Exact))
}

/// The stream ends while its memory is taken: which is never refused, for nothing is live.
fn left_behind(busy: bool) {
    static WAITED: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, move || {
        let site = site(1);
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), UNIT).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.give(home.as_ref(), plot);
        if busy {
            site.rig.mock.keep_busy();
        }
        let ending = spawn(move || drop(home));
        let plot = site.take(taking.as_ref(), UNIT).expect("nothing is live");
        site.use_on(taking.as_ref(), &plot, NEXT);
        ending.join().unwrap();
        let waits = site.pool.status().waits;
        assert_eq!(waits, u64::from(busy), "the device waits where it must, and nowhere else");
        WAITED[usize::from(busy)].note(true);
        site.give(taking.as_ref(), plot);
        site.end();
    });
    assert!(WAITED[usize::from(busy)].times() > 0);
}

#[test]
fn what_a_stream_leaves_behind_is_taken_when_it_is_over() {
    left_behind(false);
}

#[test]
fn what_a_stream_leaves_behind_is_waited_for() {
    left_behind(true);
}

/// A stream of somebody else's, who ends it as soon as the last handle is gone: the pool, too, leaves it alone from there on.
#[test]
fn a_foreign_stream_is_left_alone() {
    static STOLEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let site = site(1);
        let taking = site.rig.stream();
        let (home, raw) = site.rig.foreign();
        let plot = site.take(home.as_ref(), UNIT).expect("there is room");
        site.rig.mock.keep_busy();
        // The record at the free fails, so whoever steals has to record, or the last handle.
        site.rig.mock.fail_records(1);
        let ending = {
            let site = site.clone();
            spawn(move || {
                site.use_on(home.as_ref(), &plot, USE);
                site.give(home.as_ref(), plot);
                drop(home);
                site.rig.mock.end(raw);
            })
        };
        let plot = site.take(taking.as_ref(), UNIT);
        STOLEN[usize::from(plot.is_some())].note(true);
        plot.iter().for_each(|plot| site.use_on(taking.as_ref(), plot, NEXT));
        ending.join().unwrap();
        plot.into_iter().for_each(|plot| site.give(taking.as_ref(), plot));
        drop(taking);
        site.end();
    });
    assert!(STOLEN.iter().all(|stolen| stolen.times() > 0), "{STOLEN:?}");
}

/// A site of two units, all of it free in the core, the last thing that a stream did which is over by now; the stream in its place;
/// and a third one. From here on the device is busy.
fn site_with_newcomer() -> (Site, Stream, Stream) {
    let site = site(2);
    let (home, taking) = (site.rig.stream(), site.rig.stream());
    let place = home.id();
    let plot = site.take(home.as_ref(), 2 * UNIT).expect("there is room");
    site.use_on(home.as_ref(), &plot, USE);
    site.give(home.as_ref(), plot);
    // While the device is busy the memory stays the stream's.
    site.rig.mock.keep_busy();
    site.pool.defragment().expect("nothing fails");
    site.rig.mock.get_going();
    drop(home);
    let newcomer = site.rig.stream();
    assert_eq!(newcomer.id().to_string(), format!("{place}.1"), "the next one in the same place");
    site.rig.mock.keep_busy();
    (site, newcomer, taking)
}

#[test]
fn a_newcomer_is_not_the_one_that_is_over() {
    static TAKEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let (site, newcomer, taking) = site_with_newcomer();
        let working = {
            let site = site.clone();
            spawn(move || {
                // All of it, used, and cut in two: half of it is free, behind that work.
                if let Some(plot) = site.take(newcomer.as_ref(), 2 * UNIT) {
                    site.use_on(newcomer.as_ref(), &plot, OTHER);
                    site.give(newcomer.as_ref(), plot);
                    let half = site.take(newcomer.as_ref(), UNIT);
                    TAKEN[0].note(half.is_some());
                    half.into_iter().for_each(|plot| site.give(newcomer.as_ref(), plot));
                }
                newcomer
            })
        };
        if let Some(plot) = site.take(taking.as_ref(), UNIT) {
            site.use_on(taking.as_ref(), &plot, NEXT);
            TAKEN[1].note(true);
            site.give(taking.as_ref(), plot);
        }
        drop(working.join().unwrap());
        site.end();
    });
    assert!(TAKEN.iter().all(|taken| taken.times() > 0), "{TAKEN:?}");
}

/// The same, where what is asked of the driver about one stream must not be believed of the other.
#[test]
fn what_is_over_is_not_the_newcomers() {
    static TAKEN: Seen = Seen::never();
    explore_bounded(PREEMPTIONS, || {
        let (site, newcomer, taking) = site_with_newcomer();
        let asking = {
            let site = site.clone();
            spawn(move || site.pool.defragment().expect("nothing fails"))
        };
        let plot = site.take(newcomer.as_ref(), 2 * UNIT).expect("nothing is live");
        site.use_on(newcomer.as_ref(), &plot, OTHER);
        site.give(newcomer.as_ref(), plot);
        let half = site.take(newcomer.as_ref(), UNIT).expect("nothing is live");
        asking.join().unwrap();
        let other_half = site.take(taking.as_ref(), UNIT).expect("half of it is live");
        site.use_on(taking.as_ref(), &other_half, NEXT);
        TAKEN.note(true);
        site.give(newcomer.as_ref(), half);
        site.give(taking.as_ref(), other_half);
        drop((newcomer, taking));
        site.end();
    });
    assert!(TAKEN.times() > 0);
}

/// The protocol written down once more. A block is behind a point; who takes it looks at the point, waits, and takes: if it
/// `compares`, only what is still behind that point.
fn taken_by_hand(compares: bool) {
    explore(move || {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        rig.submit(home.as_ref(), USE);
        let place = Arc::new(Mutex::new(Some(home.as_ref().release())));
        let newcomer = rig.stream();
        newcomer.wait_for_stream(&home).expect("nothing fails");
        let working = {
            let (rig, place) = (rig.clone(), Arc::clone(&place));
            spawn(move || {
                if place.lock().unwrap().take().is_some() {
                    rig.submit(newcomer.as_ref(), OTHER);
                    *place.lock().unwrap() = Some(newcomer.as_ref().release());
                }
                newcomer
            })
        };
        let seen = *place.lock().unwrap();
        if let Some(seen) = seen {
            taking.as_ref().wait_for(&Frontier::of(seen)).expect("nothing fails");
            let mut place = place.lock().unwrap();
            if *place == Some(seen) || (place.is_some() && !compares) {
                let taken = place.take();
                rig.submit_after(taking.as_ref(), NEXT, if taken == Some(seen) { USE } else { OTHER });
            }
        }
        drop(working.join().unwrap());
        rig.mock.assert_no_mistakes();
    });
}

#[test]
fn looking_again_is_enough() {
    taken_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "Work(1) may overtake Work(2)")]
fn believing_the_first_look_is_caught() {
    taken_by_hand(false);
}
