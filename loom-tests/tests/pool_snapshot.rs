//! Snapshot and status against allocate, free and steal: whenever somebody looks, every block is in one state, and the bytes add up.
//! Who looks holds the core, without which nothing moves between it and a cache, and one cache at a time.

use std::sync::Arc;

use alluvion::PoolConfig;
use alluvion::suballoc::{BlockState, Growth, Snapshot, Status};
use loom::sync::Mutex;
use loom_tests::{Seen, Site, Work, explore, explore_bounded, spawn};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

/// Long enough that a request comes from the core alone, and not with others.
const LONG: usize = 64 << 10;
/// Short enough that it comes with another.
const SHORT: usize = 256;

fn site(bytes: usize) -> Site {
    Site::new(bytes, PoolConfig::default().initial(bytes).maximum(bytes).growth(Growth::Exact))
}

/// How many of these bytes are live, cached, pending, and free for anybody.
fn bytes_of(snapshot: &Snapshot, total: usize) -> [usize; 4] {
    let mut bytes = [0; 4];
    let [segment] = snapshot.segments[..] else { panic!("{snapshot:?}") };
    let mut next = segment.address.address();
    for block in &snapshot.blocks {
        assert_eq!(block.address.address(), next, "blocks tile their segment: {snapshot:?}");
        next += block.bytes as u64;
        let state = match block.state {
            BlockState::Live => 0,
            BlockState::Cached(_) => 1,
            BlockState::Pending(_) => 2,
            BlockState::Free => 3,
            other => panic!("{other:?}"),
        };
        bytes[state] += block.bytes;
    }
    assert_eq!((segment.bytes, bytes.iter().sum::<usize>()), (total, total), "{snapshot:?}");
    bytes
}

fn assert_adds_up(status: &Status, total: usize) {
    assert_eq!(status.reserved_bytes, total, "{status:?}");
    assert_eq!(status.live_bytes + status.cached_bytes + status.free_bytes, total, "{status:?}");
    assert!(status.pending_bytes <= status.cached_bytes + status.free_bytes, "{status:?}");
    assert!(status.largest_free_bytes <= status.free_bytes, "{status:?}");
    assert_eq!(status.live_bytes == 0, status.live_blocks == 0, "{status:?}");
}

/// A block goes out and comes back on the fast path, which takes no lock but that of a cache.
#[test]
fn against_the_fast_path() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let site = site(2 * LONG);
        let home = site.rig.stream();
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.give(home.as_ref(), plot);
        let working = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || {
                let plot = site.take(home.as_ref(), LONG).expect("it is in the cache");
                site.use_on(home.as_ref(), &plot, USE);
                site.give(home.as_ref(), plot);
            })
        };
        let [live, cached, pending, free] = bytes_of(&site.pool.snapshot(), 2 * LONG);
        SEEN[usize::from(live > 0)].note(true);
        assert_eq!((live + cached + pending + free, live % LONG), (2 * LONG, 0));
        let status = site.pool.status();
        assert_adds_up(&status, 2 * LONG);
        working.join().unwrap();
        drop(home);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// A block comes from the core with another, which goes to the cache: nobody sees that one out.
#[test]
fn against_the_core() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let site = site(4 * SHORT);
        let home = site.rig.stream();
        let working = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || {
                let plot = site.take(home.as_ref(), SHORT).expect("there is room");
                site.use_on(home.as_ref(), &plot, USE);
                plot
            })
        };
        let states = bytes_of(&site.pool.snapshot(), 4 * SHORT);
        let is_out = states != [0, 0, 0, 4 * SHORT];
        assert!(!is_out || states == [SHORT, SHORT, 0, 2 * SHORT], "{states:?}");
        SEEN[usize::from(is_out)].note(true);
        assert_adds_up(&site.pool.status(), 4 * SHORT);
        let plot = working.join().unwrap();
        let status = site.pool.status();
        assert_eq!((status.live_bytes, status.live_blocks, status.cached_bytes), (SHORT, 1, SHORT));
        site.give(home.as_ref(), plot);
        drop(home);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// A block goes from the cache of one stream through the core to another stream.
#[test]
fn against_a_steal() {
    static SEEN: [Seen; 3] = [const { Seen::never() }; 3];
    // All schedules would take minutes.
    explore_bounded(Some(3), || {
        let site = site(LONG);
        let (home, taking) = (site.rig.stream(), site.rig.stream());
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.give(home.as_ref(), plot);
        site.rig.mock.keep_busy();
        let stealing = {
            let site = site.clone();
            spawn(move || {
                let plot = site.take(taking.as_ref(), LONG).expect("nothing is live");
                site.use_on(taking.as_ref(), &plot, NEXT);
                site.give(taking.as_ref(), plot);
                taking
            })
        };
        let [live, cached, pending, free] = bytes_of(&site.pool.snapshot(), LONG);
        assert_eq!(free, 0, "its work is not over");
        [live, cached, pending].iter().zip(&SEEN).for_each(|(bytes, seen)| seen.note(*bytes == LONG));
        let status = site.pool.status();
        assert_adds_up(&status, LONG);
        assert_eq!(status.pending_bytes, LONG - status.live_bytes);
        drop(stealing.join().unwrap());
        drop(home);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// A block is taken out of the cache of one stream and put into that of another, with no lock but those of the caches: whoever
/// looks at one after the other may see it in both, or in neither, and the bytes add up all the same.
#[test]
fn against_a_block_that_changes_hands() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let site = site(2 * LONG);
        let (home, other) = (site.rig.stream(), site.rig.stream());
        // Each has its cache.
        for stream in [&home, &other] {
            let plot = site.take(stream.as_ref(), LONG).expect("there is room");
            site.give(stream.as_ref(), plot);
        }
        let working = {
            let (site, home, other) = (site.clone(), home.clone(), other.clone());
            spawn(move || {
                let plot = site.take(home.as_ref(), LONG).expect("it is in the cache");
                site.give(other.as_ref(), plot);
            })
        };
        let status = site.pool.status();
        assert_adds_up(&status, 2 * LONG);
        SEEN[usize::from(status.live_bytes > 0)].note(true);
        bytes_of(&site.pool.snapshot(), 2 * LONG);
        working.join().unwrap();
        drop((home, other));
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// The protocol written down once more: what moves from one place to another is counted with both held.
fn count_by_hand(holds_both: bool) {
    explore(move || {
        let places = Arc::new([Mutex::new(1), Mutex::new(0)]);
        let moving = {
            let places = Arc::clone(&places);
            spawn(move || {
                let (mut from, mut to) = (places[0].lock().unwrap(), places[1].lock().unwrap());
                *to += core::mem::take(&mut *from);
            })
        };
        let count = if holds_both {
            let (one, other) = (places[0].lock().unwrap(), places[1].lock().unwrap());
            *one + *other
        } else {
            let one = *places[0].lock().unwrap();
            one + *places[1].lock().unwrap()
        };
        assert!(count == 1, "a block is {count} times there");
        moving.join().unwrap();
    });
}

#[test]
fn holding_both_is_enough() {
    count_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "a block is 2 times there")]
fn looking_at_one_after_the_other_is_caught() {
    count_by_hand(false);
}
