//! The end of a pool: whichever thread lets go of it last, every segment comes back once, and nothing is at work on it any more.

use std::sync::Arc;

use alluvion::suballoc::Growth;
use alluvion::{DeviceVec, PoolConfig};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering};
use loom_tests::{Ground, Rig, Seen, Site, Work, explore, spawn};

const USE: Work = Work(0);
const OTHER: Work = Work(1);

/// Long enough that a request comes from the core alone, and not with others.
const LONG: usize = 64 << 10;

/// Two segments, on a device that gets nothing done.
fn site() -> Site {
    let site = Site::new(2 * LONG, PoolConfig::default().growth(Growth::Exact));
    site.rig.mock.keep_busy();
    site
}

/// What is left of a site when the pool is gone, and a count of those who let go. The reference counts of the standard library are
/// invisible to the model; this one stands beside them, so that each order of letting go is looked at.
fn rest(site: &Site) -> (Rig, Ground, Arc<AtomicU64>) {
    (site.rig.clone(), site.ground.clone(), Arc::new(AtomicU64::new(0)))
}

fn let_go<T>(handle: T, gone: &AtomicU64) {
    gone.fetch_add(1, Ordering::AcqRel);
    drop(handle);
}

fn assert_is_over((rig, ground, _): (Rig, Ground, Arc<AtomicU64>), segments: usize) {
    ground.assert_whole();
    assert_eq!(ground.returned(), segments);
    rig.mock.assert_no_mistakes();
}

/// Each of two threads frees a block on a stream of its own and lets go.
#[test]
fn behind_what_each_thread_has_freed() {
    static LAST: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let site = site();
        let rest = rest(&site);
        let (one, other) = (site.rig.stream(), site.rig.stream());
        let plots = [&one, &other].map(|stream| site.take(stream.as_ref(), LONG).expect("there is room"));
        let [plot, of_other] = plots;
        let freeing = {
            let (site, gone) = (site.clone(), Arc::clone(&rest.2));
            spawn(move || {
                site.use_on(other.as_ref(), &of_other, OTHER);
                site.give(other.as_ref(), of_other);
                let ground = site.ground.clone();
                let_go(site, &gone);
                LAST[usize::from(ground.returned() > 0)].note(true);
                other
            })
        };
        site.use_on(one.as_ref(), &plot, USE);
        site.give(one.as_ref(), plot);
        let_go(site, &rest.2);
        drop(freeing.join().unwrap());
        drop(one);
        assert_is_over(rest, 2);
    });
    assert!(LAST.iter().all(|last| last.times() > 0), "{LAST:?}");
}

/// The stream that a block was freed on ends while the pool does.
#[test]
fn while_a_stream_ends() {
    explore(|| {
        let site = site();
        let rest = rest(&site);
        let home = site.rig.stream();
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.give(home.as_ref(), plot);
        let ending = spawn(move || drop(home));
        drop(site);
        ending.join().unwrap();
        assert_is_over(rest, 1);
    });
}

/// A container keeps its pool alive, and another thread drops it.
#[test]
fn with_the_last_container() {
    static LAST: [Seen; 2] = [Seen::never(), Seen::never()];
    explore(|| {
        let site = site();
        let rest = rest(&site);
        let home = site.rig.stream();
        let vector = DeviceVec::<u8, _>::uninit_in(LONG, home.as_ref(), Arc::clone(&site.pool));
        let vector = vector.expect("there is room");
        let dropping = {
            let (rig, ground, gone) = rest.clone();
            spawn(move || {
                rig.submit(home.as_ref(), USE);
                let_go(vector, &gone);
                LAST[usize::from(ground.returned() > 0)].note(true);
                home
            })
        };
        let_go(site, &rest.2);
        drop(dropping.join().unwrap());
        assert_is_over(rest, 1);
    });
    assert!(LAST.iter().all(|last| last.times() > 0), "{LAST:?}");
}

/// A block that nobody frees, used on a stream that ends: the pool cannot know where, and waits for every stream.
#[test]
fn with_a_block_that_is_out() {
    explore(|| {
        let site = site();
        let rest = rest(&site);
        let home = site.rig.stream();
        let plot = site.take(home.as_ref(), LONG).expect("there is room");
        site.use_on(home.as_ref(), &plot, USE);
        site.leak(plot);
        let ending = spawn(move || drop(home));
        drop(site);
        ending.join().unwrap();
        assert!(rest.0.mock.host_waits() > 0);
        assert_is_over(rest, 1);
    });
}

/// The protocol written down once more: who frees lets go behind that, and the last one to let go has everything.
fn ended_by_hand(frees_first: bool) {
    explore(move || {
        let handles = Arc::new(AtomicU64::new(2));
        let free = Arc::new(Mutex::new(0));
        let end = move || {
            let let_go = || {
                if handles.fetch_sub(1, Ordering::AcqRel) == 1 {
                    assert!(*free.lock().unwrap() == 2, "the end misses a block");
                }
            };
            let put = || *free.lock().unwrap() += 1;
            if frees_first {
                put();
                let_go();
            } else {
                let_go();
                put();
            }
        };
        let other = spawn(end.clone());
        end();
        other.join().unwrap();
    });
}

#[test]
fn freeing_first_is_enough() {
    ended_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "the end misses a block")]
fn letting_go_first_is_caught() {
    ended_by_hand(false);
}
