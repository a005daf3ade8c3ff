//! A block that is freed on another thread: on the stream that it was taken on, or on another one. Whoever has it next comes after
//! its last use, wherever that was.

use std::sync::Arc;

use alluvion::suballoc::Growth;
use alluvion::{DeviceVec, Frontier, PoolConfig, Stream};
use loom::sync::Mutex;
use loom_tests::{Plot, Rig, Seen, Site, Work, explore, spawn};

const USE: Work = Work(0);
const NEXT: Work = Work(1);
const MORE: Work = Work(2);

/// Long enough that a request comes from the core alone, and not with others.
const LONG: usize = 64 << 10;

/// One block, and room for another.
fn site() -> (Site, Plot, Stream, Stream) {
    let config = PoolConfig::default().initial(LONG).maximum(2 * LONG).growth(Growth::Exact);
    let site = Site::new(2 * LONG, config);
    let (home, other) = (site.rig.stream(), site.rig.stream());
    let plot = site.take(home.as_ref(), LONG).expect("there is room");
    site.rig.mock.keep_busy();
    (site, plot, home, other)
}

#[test]
fn on_the_stream_that_it_was_taken_on() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let (site, plot, home, _) = site();
        let first = plot.address();
        let freeing = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || {
                site.use_on(home.as_ref(), &plot, USE);
                site.give(home.as_ref(), plot);
            })
        };
        let plot = site.take(home.as_ref(), LONG).expect("there is room for two");
        SEEN[usize::from(plot.address() == first)].note(true);
        site.use_on(home.as_ref(), &plot, NEXT);
        freeing.join().unwrap();
        let more = site.take(home.as_ref(), LONG).expect("there is room for two");
        site.use_on(home.as_ref(), &more, MORE);
        site.give(home.as_ref(), plot);
        site.give(home.as_ref(), more);
        drop(home);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// Growing keeps the streams apart: what the other one freed is taken when there is no room left.
#[test]
fn on_another_stream() {
    static STOLEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let (site, plot, home, other) = site();
        let first = plot.address();
        let freeing = {
            let (site, other) = (site.clone(), other.clone());
            spawn(move || {
                site.use_on(other.as_ref(), &plot, USE);
                site.give(other.as_ref(), plot);
            })
        };
        let plot = site.take(home.as_ref(), LONG).expect("there is room for two");
        assert_ne!(plot.address(), first, "a wait comes last");
        let stolen = site.take(home.as_ref(), LONG);
        STOLEN[usize::from(stolen.is_some())].note(true);
        if let Some(plot) = stolen {
            assert_eq!(plot.address(), first);
            site.use_on(home.as_ref(), &plot, NEXT);
            site.give(home.as_ref(), plot);
        }
        freeing.join().unwrap();
        site.give(home.as_ref(), plot);
        drop((home, other));
        site.end();
    });
    assert!(STOLEN.iter().all(|stolen| stolen.times() > 0), "{STOLEN:?}");
}

/// Two threads free on one stream at once: neither block is lost, whoever finds the cache taken.
#[test]
fn two_at_once() {
    explore(|| {
        let (site, plot, home, _) = site();
        let more = site.take(home.as_ref(), LONG).expect("there is room for two");
        let freeing = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || {
                site.use_on(home.as_ref(), &plot, USE);
                site.give(home.as_ref(), plot);
            })
        };
        site.use_on(home.as_ref(), &more, MORE);
        site.give(home.as_ref(), more);
        freeing.join().unwrap();
        let status = site.pool.status();
        assert_eq!((status.live_blocks, status.live_bytes), (0, 0));
        assert_eq!((status.cached_bytes + status.free_bytes, status.reserved_bytes), (2 * LONG, 2 * LONG));
        let plots: Vec<_> =
            (0..2).map(|_| site.take(home.as_ref(), LONG).expect("there is room for two")).collect();
        for plot in plots {
            site.use_on(home.as_ref(), &plot, NEXT);
            site.give(home.as_ref(), plot);
        }
        drop(home);
        site.end();
    });
}

/// Two threads free the same block: one of them is told so.
#[test]
fn one_block_twice_at_once() {
    static FIRST: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let (site, plot, home, other) = site();
        let plot = Arc::new(plot);
        let freeing = {
            let (site, plot, other) = (site.clone(), Arc::clone(&plot), other.clone());
            spawn(move || site.try_to_give(other.as_ref(), &plot))
        };
        let is_mine = site.try_to_give(home.as_ref(), &plot);
        assert_ne!(freeing.join().unwrap(), is_mine, "one of the two");
        FIRST[usize::from(is_mine)].note(true);
        let status = site.pool.status();
        assert_eq!((status.live_blocks, status.cached_bytes + status.free_bytes), (0, LONG));
        drop((home, other));
        site.end();
    });
    assert!(FIRST.iter().all(|first| first.times() > 0), "{FIRST:?}");
}

/// A container that another thread drops, behind a use on a stream of that thread's.
#[test]
fn a_container_that_another_thread_drops() {
    static STOLEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let config = PoolConfig::default().initial(LONG).maximum(LONG).growth(Growth::Exact);
        let site = Site::new(LONG, config);
        let (home, other) = (site.rig.stream(), site.rig.stream());
        let vector = DeviceVec::<u8, _>::uninit_in(LONG, home.as_ref(), Arc::clone(&site.pool));
        let vector = vector.expect("there is room");
        site.rig.mock.keep_busy();
        let dropping = {
            let rig = site.rig.clone();
            spawn(move || {
                let guard = vector.read_on(other.as_ref()).expect("nothing fails");
                rig.submit(other.as_ref(), USE);
                drop(guard);
                drop(vector);
                other
            })
        };
        let plot = site.take(home.as_ref(), LONG);
        STOLEN[usize::from(plot.is_some())].note(true);
        if let Some(plot) = plot {
            site.rig.submit_after(home.as_ref(), NEXT, USE);
            site.give(home.as_ref(), plot);
        }
        drop(dropping.join().unwrap());
        drop(home);
        site.end();
    });
    assert!(STOLEN.iter().all(|stolen| stolen.times() > 0), "{STOLEN:?}");
}

/// The protocol written down once more: a block belongs to the stream that it was freed on, and not to the one that it was taken
/// on.
fn freed_by_hand(on_the_stream_of_the_use: bool) {
    explore(move || {
        let rig = Rig::new();
        let (home, other) = (rig.stream(), rig.stream());
        let free = Arc::new(Mutex::new(None));
        let freeing = {
            let (rig, home, other, free) = (rig.clone(), home.clone(), other.clone(), Arc::clone(&free));
            spawn(move || {
                rig.submit(other.as_ref(), USE);
                let freed_on = if on_the_stream_of_the_use { other } else { home };
                *free.lock().unwrap() = Some(Frontier::of(freed_on.as_ref().release()));
            })
        };
        let taken = free.lock().unwrap().take();
        if let Some(frontier) = taken {
            home.as_ref().wait_for(&frontier).expect("nothing fails");
            rig.submit_after(home.as_ref(), NEXT, USE);
        }
        freeing.join().unwrap();
        rig.mock.assert_no_mistakes();
    });
}

#[test]
fn the_stream_of_the_free_is_enough() {
    freed_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "Work(1) may overtake Work(0)")]
fn the_stream_of_the_allocation_is_caught() {
    freed_by_hand(false);
}
