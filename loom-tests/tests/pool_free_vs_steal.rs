//! Free against steal: what a stream frees and takes again on its fast path is meanwhile wanted by another stream, which gets it
//! behind the work that used it, or not at all.

use std::sync::Arc;

use alluvion::suballoc::{Growth, Reuse};
use alluvion::{Frontier, PoolConfig, Stream};
use loom::sync::Mutex;
use loom_tests::{Plot, Rig, Seen, Site, Work, explore, explore_bounded, spawn};

const USE: Work = Work(0);
const NEXT: Work = Work(1);
const AGAIN: Work = Work(2);

/// Long enough that a request comes from the core alone, and not with others.
const LONG: usize = 64 << 10;
/// Short enough that it comes with another.
const SHORT: usize = 256;

fn site(bytes: usize, reuse: Reuse) -> Site {
    let config = PoolConfig::default().initial(bytes).maximum(bytes).growth(Growth::Exact);
    Site::new(bytes, config.reuse(reuse))
}

/// One block, used and freed on one stream while another one asks for it.
fn stolen(reuse: Reuse, busy: bool, seen: &'static [Seen; 2]) {
    explore(move || {
        let site = site(LONG, reuse);
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        if busy {
            site.rig.mock.keep_busy();
        }
        let freeing = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || {
                site.use_on(home.as_ref(), &plot, USE);
                site.give(home.as_ref(), plot);
            })
        };
        let stolen = site.take(taking.as_ref(), LONG);
        seen[usize::from(stolen.is_some())].note(true);
        if let Some(plot) = stolen {
            site.use_on(taking.as_ref(), &plot, NEXT);
            site.give(taking.as_ref(), plot);
        }
        freeing.join().unwrap();
        drop((home, taking));
        site.end();
    });
    assert!(seen.iter().all(|seen| seen.times() > 0), "{seen:?}");
}

#[test]
fn what_is_over_is_stolen() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    stolen(Reuse::Wait, false, &SEEN);
}

#[test]
fn what_is_not_over_is_stolen_behind_a_wait_on_the_device() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    stolen(Reuse::Wait, true, &SEEN);
}

#[test]
fn what_is_not_over_is_stolen_behind_a_wait_of_the_host() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    stolen(Reuse::Own, true, &SEEN);
}

/// A thread frees the block and takes it again, meanwhile another stream wants it.
fn taken_again_or_stolen(site: &Site, home: &Stream, taking: &Stream, plot: Plot, seen: &'static [Seen; 4]) {
    let freeing = {
        let (site, home) = (site.clone(), home.clone());
        spawn(move || {
            site.give(home.as_ref(), plot);
            let again = site.take(home.as_ref(), LONG);
            let had = again.is_some();
            again.into_iter().for_each(|plot| {
                site.use_on(home.as_ref(), &plot, AGAIN);
                site.give(home.as_ref(), plot);
            });
            had
        })
    };
    let stolen = site.take(taking.as_ref(), LONG);
    let stole = stolen.is_some();
    stolen.into_iter().for_each(|plot| {
        site.use_on(taking.as_ref(), &plot, NEXT);
        site.give(taking.as_ref(), plot);
    });
    let had = freeing.join().unwrap();
    seen[2 * usize::from(had) + usize::from(stole)].note(true);
}

fn assert_all_but_none(seen: &[Seen; 4]) {
    assert_eq!(seen[0].times(), 0, "whoever was refused was so because the other one had it");
    assert!(seen[1..].iter().all(|seen| seen.times() > 0), "{seen:?}");
}

/// One of the two has it at a time, and the one who is second comes after the first.
#[test]
fn a_block_is_taken_again_or_stolen() {
    static SEEN: [Seen; 4] = [const { Seen::never() }; 4];
    explore(|| {
        let site = site(LONG, Reuse::Wait);
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.rig.mock.keep_busy();
        taken_again_or_stolen(&site, &home, &taking, plot, &SEEN);
        drop((home, taking));
        site.end();
    });
    assert_all_but_none(&SEEN);
}

/// A record fails while a block is stolen: then another way is found, and nobody comes too early.
#[test]
fn a_record_that_fails_loses_nothing() {
    static SEEN: [Seen; 4] = [const { Seen::never() }; 4];
    explore(|| {
        let site = site(LONG, Reuse::Wait);
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.rig.mock.keep_busy();
        site.rig.mock.fail_records(1);
        taken_again_or_stolen(&site, &home, &taking, plot, &SEEN);
        drop((home, taking));
        site.end();
    });
    assert_all_but_none(&SEEN);
}

/// Two streams want the one block that a third one has freed: one gets it.
#[test]
fn one_of_two_steals_it() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    // Both go the whole slow path: with four preemptions there are 620,000 schedules.
    explore_bounded(Some(2), || {
        let site = site(LONG, Reuse::Wait);
        let [home, one, other] = [(); 3].map(|()| site.rig.stream());
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.give(home.as_ref(), plot);
        site.rig.mock.keep_busy();
        let stealing = {
            let site = site.clone();
            spawn(move || {
                let plot = site.take(other.as_ref(), LONG);
                plot.iter().for_each(|plot| site.use_on(other.as_ref(), plot, AGAIN));
                (plot, other)
            })
        };
        let plot = site.take(one.as_ref(), LONG);
        plot.iter().for_each(|plot| site.use_on(one.as_ref(), plot, NEXT));
        let (of_other, other) = stealing.join().unwrap();
        assert_ne!(plot.is_some(), of_other.is_some(), "nothing else is live");
        SEEN[usize::from(plot.is_some())].note(true);
        plot.into_iter().for_each(|plot| site.give(one.as_ref(), plot));
        of_other.into_iter().for_each(|plot| site.give(other.as_ref(), plot));
        drop((home, one, other));
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// The host takes what nothing uses any more, as soon as that is so.
#[test]
fn the_host_takes_what_is_over() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let site = site(LONG, Reuse::Wait);
        let home = site.rig.stream();
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.rig.mock.keep_busy();
        let freeing = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || {
                site.use_on(home.as_ref(), &plot, USE);
                site.give(home.as_ref(), plot);
                site.take(home.as_ref(), LONG).into_iter().for_each(|plot| site.give(home.as_ref(), plot));
            })
        };
        let plot = site.take_for_host(LONG);
        SEEN[usize::from(plot.is_some())].note(true);
        plot.into_iter().for_each(|plot| site.give_by_host(plot));
        freeing.join().unwrap();
        drop(home);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// Two threads share the stream. What one frees the other cuts in two: half of it for itself, half for its stream's cache. A
/// third party has waited for the stream, but for less than that.
#[test]
fn what_comes_along_is_as_new_as_what_it_was_cut_from() {
    static STOLEN: Seen = Seen::never();
    explore(|| {
        let site = site(2 * SHORT, Reuse::Wait);
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), 2 * SHORT).expect("there is room");
        site.rig.mock.keep_busy();
        let freeing = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || {
                let before = home.record().expect("nothing fails");
                site.use_on(home.as_ref(), &plot, USE);
                site.give(home.as_ref(), plot);
                before
            })
        };
        let half = site.take(home.as_ref(), SHORT);
        let before = freeing.join().unwrap();
        taking.wait_event(&before).expect("nothing fails");
        if let Some(plot) = half {
            let other_half = site.take(taking.as_ref(), SHORT).expect("half of it is free");
            site.use_on(taking.as_ref(), &other_half, NEXT);
            STOLEN.note(true);
            site.give(taking.as_ref(), other_half);
            site.give(home.as_ref(), plot);
        }
        drop((home, taking, before));
        site.end();
    });
    assert!(STOLEN.times() > 0);
}

/// The protocol written down once more, with either order of its two steps: a block that is put where others see it is behind a
/// point, and that point behind the last use.
fn put_by_hand(submits_first: bool) {
    explore(move || {
        let rig = Rig::new();
        let (home, taking) = (rig.stream(), rig.stream());
        let free = Arc::new(Mutex::new(None));
        let freeing = {
            let (rig, home, free) = (rig.clone(), home.clone(), Arc::clone(&free));
            spawn(move || {
                let now = || home.as_ref().release();
                let put = |stamp| *free.lock().unwrap() = Some(stamp);
                if submits_first {
                    rig.submit(home.as_ref(), USE);
                    put(now());
                } else {
                    put(now());
                    rig.submit(home.as_ref(), USE);
                }
            })
        };
        let stolen = free.lock().unwrap().take();
        if let Some(stamp) = stolen {
            taking.as_ref().wait_for(&Frontier::of(stamp)).expect("nothing fails");
            rig.submit_after(taking.as_ref(), NEXT, USE);
        }
        freeing.join().unwrap();
        rig.mock.assert_no_mistakes();
    });
}

#[test]
fn submitting_first_is_enough() {
    put_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "Work(1) may overtake Work(0)")]
fn putting_first_is_caught() {
    put_by_hand(false);
}
