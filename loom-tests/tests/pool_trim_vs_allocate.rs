//! Trim against allocate: a segment goes back when no block of it is live and all work on it is over, and while it is on its way
//! it still counts as the pool's, so that nobody is refused for want of it.

use std::sync::Arc;

use alluvion::suballoc::{Growth, Reuse};
use alluvion::{Frontier, PoolConfig, Resource};
use loom::sync::Mutex;
use loom_tests::{Rig, Seen, Site, Work, explore, explore_bounded, spawn};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

/// How often a thread is preempted. With more, one thread's patience with what another gives back runs out in some schedules, and
/// it is refused, as it would be in the end.
const PREEMPTIONS: Option<usize> = Some(3);

/// Long enough that a request comes from the core alone, and not with others.
const LONG: usize = 64 << 10;

fn config() -> PoolConfig {
    PoolConfig::default().growth(Growth::Exact).reuse(Reuse::Wait)
}

/// One thread gives all back that it can, while another one frees and takes again.
#[test]
fn a_segment_goes_back_when_its_last_use_is_over() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(PREEMPTIONS, || {
        let site = Site::new(2 * LONG, config().initial(LONG));
        let home = site.rig.stream();
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        let trimming = {
            let site = site.clone();
            spawn(move || site.pool.trim(0).expect("nothing fails"))
        };
        site.use_on(home.as_ref(), &plot, USE);
        site.give(home.as_ref(), plot);
        let again = site.take(home.as_ref(), LONG).expect("nothing is live");
        site.use_on(home.as_ref(), &again, NEXT);
        let gone = trimming.join().unwrap();
        assert_eq!(gone, site.ground.returned() * LONG);
        SEEN[usize::from(gone > 0)].note(true);
        site.give(home.as_ref(), again);
        drop(home);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// The device gets nothing done: what was freed may be taken, behind a wait, but not given back.
#[test]
fn a_segment_that_is_in_use_stays() {
    explore_bounded(PREEMPTIONS, || {
        let site = Site::new(LONG, config().initial(LONG));
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.rig.mock.keep_busy();
        let trimming = {
            let site = site.clone();
            spawn(move || site.pool.trim(0).expect("nothing fails"))
        };
        site.give(home.as_ref(), plot);
        let plot = site.take(taking.as_ref(), LONG).expect("nothing is live");
        site.use_on(taking.as_ref(), &plot, NEXT);
        assert_eq!(trimming.join().unwrap(), 0);
        assert_eq!(site.ground.returned(), 0);
        site.give(taking.as_ref(), plot);
        drop((home, taking));
        site.end();
    });
}

/// Both give back what is more than one segment: of two, one stays.
#[test]
fn two_that_give_back_keep_together_what_each_was_to_keep() {
    explore_bounded(PREEMPTIONS, || {
        let site = Site::new(2 * LONG, config().initial(LONG));
        let home = site.rig.stream();
        let plots = [(); 2].map(|()| site.take(home.as_ref(), LONG).expect("there is room"));
        plots.into_iter().for_each(|plot| site.give(home.as_ref(), plot));
        let trimming = {
            let site = site.clone();
            spawn(move || site.pool.trim(LONG).expect("nothing fails"))
        };
        let gone = site.pool.trim(LONG).expect("nothing fails") + trimming.join().unwrap();
        assert_eq!((gone, site.pool.status().reserved_bytes), (LONG, LONG));
        drop(home);
        site.end();
    });
}

/// The maximum, or the upstream, has room for one segment: which is on its way back while it is asked for.
fn on_its_way(maximum: usize, capacity: usize, seen: &'static [Seen; 2]) {
    explore_bounded(PREEMPTIONS, move || {
        let site = Site::new(capacity, config().initial(LONG).maximum(maximum));
        let home = site.rig.stream();
        let trimming = {
            let site = site.clone();
            spawn(move || site.pool.trim(0).expect("nothing fails"))
        };
        let plot = site.take(home.as_ref(), LONG).expect("nothing is live");
        let gone = trimming.join().unwrap();
        assert!(site.ground.most_out_bytes() <= maximum, "{} bytes", site.ground.most_out_bytes());
        seen[usize::from(gone > 0)].note(true);
        site.give(home.as_ref(), plot);
        drop(home);
        site.end();
    });
    assert!(seen.iter().all(|seen| seen.times() > 0), "{seen:?}");
}

#[test]
fn a_pool_never_has_more_than_its_maximum() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    on_its_way(LONG, 2 * LONG, &SEEN);
}

#[test]
fn nobody_is_refused_for_want_of_what_is_on_its_way() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    on_its_way(usize::MAX, LONG, &SEEN);
}

/// Both threads give back what is there, and one of them asks for it in another size.
#[test]
fn what_others_gave_back_is_asked_for_once_more() {
    static SEEN: Seen = Seen::never();
    explore_bounded(PREEMPTIONS, || {
        // One segment, too small for the request, and not over until somebody asks.
        let site = Site::new(2 * LONG, config().initial(LONG).reuse(Reuse::Own));
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.give(home.as_ref(), plot);
        let trimming = {
            let site = site.clone();
            spawn(move || site.pool.trim(0).expect("nothing fails"))
        };
        let plot = site.take(taking.as_ref(), 2 * LONG).expect("nothing is live");
        site.use_on(taking.as_ref(), &plot, NEXT);
        SEEN.note(trimming.join().unwrap() > 0);
        site.give(taking.as_ref(), plot);
        drop((home, taking));
        site.end();
    });
    assert!(SEEN.times() > 0);
}

/// The protocol written down once more: what may be reused on a stream is not what nothing uses any more.
fn given_back_by_hand(when_over: bool) {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(move || {
        let rig = Rig::new();
        let (home, other) = (rig.stream(), rig.stream());
        let free = Arc::new(Mutex::new(None));
        let freeing = {
            let (rig, home, free) = (rig.clone(), home.clone(), Arc::clone(&free));
            spawn(move || {
                rig.submit(home.as_ref(), USE);
                *free.lock().unwrap() = Some(Frontier::of(home.as_ref().release()));
            })
        };
        other.wait_for_stream(&home).expect("nothing fails");
        let mut gives_back = false;
        if let Some(frontier) = free.lock().unwrap().take() {
            gives_back = match when_over {
                true => rig.device.machine().is_quiescent(&frontier).expect("nothing fails"),
                false => other.as_ref().may_reuse(&frontier),
            };
        }
        if gives_back {
            assert!(rig.mock.over().contains(USE), "given back while it is in use");
        }
        SEEN[usize::from(gives_back)].note(when_over);
        freeing.join().unwrap();
        rig.mock.assert_no_mistakes();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

#[test]
fn asking_whether_it_is_over_is_enough() {
    given_back_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "given back while it is in use")]
fn asking_whether_a_stream_may_reuse_it_is_caught() {
    given_back_by_hand(false);
}
