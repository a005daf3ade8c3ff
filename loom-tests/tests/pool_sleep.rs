//! Sleep: what one thread frees, or asks for, while another one wakes the pool. A block that is freed is freed once and its page is
//! nobody's that still sleeps; no block is handed out before all of the pool is awake.

#![expect(unsafe_code, reason = "puts blocks to sleep that nothing uses")]

use std::sync::Arc;

use alluvion::suballoc::{Growth, Reuse};
use alluvion::{ErrorKind, PoolConfig, SleepConfig, Sleeper};
use loom_tests::{Ground, Plot, Seen, Site, Work, explore_bounded, spawn};

const USE: Work = Work(0);
const NEXT: Work = Work(1);

/// How often a thread is preempted: see `pool_pages.rs`.
const PREEMPTIONS: Option<usize> = Some(3);

/// Long enough that a request comes from the core alone, and not with others.
const PAGE: usize = 64 << 10;

/// Two blocks of a page each that sleep. The upstream has one page more.
fn asleep() -> (Site, alluvion::Stream, [Plot; 2], Sleeper<'static, Ground>) {
    let config = PoolConfig::default().growth(Growth::Exact).reuse(Reuse::Wait);
    let site = Site::in_pages(3 * PAGE, PAGE, config);
    let home = site.rig.stream();
    let plots = [(); 2].map(|()| site.take(home.as_ref(), PAGE).expect("there is room"));
    plots.iter().for_each(|plot| site.note_asleep(plot));
    // SAFETY: no work uses the blocks until they are awake, and no other thread has the pool.
    let slept = unsafe { Arc::clone(&site.pool).sleep_owned(SleepConfig::default()) };
    let sleeper = slept.expect("nothing forbids it");
    assert_eq!(site.pool.status().pages, 0);
    (site, home, plots, sleeper)
}

#[test]
fn a_block_is_freed_while_it_is_woken() {
    static PAGES: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let (site, home, [kept, freed], mut sleeper) = asleep();
        let freeing = {
            let (site, home) = (site.clone(), home.clone());
            spawn(move || site.give_asleep(home.as_ref(), freed))
        };
        sleeper.wake().expect("there is memory");
        freeing.join().unwrap();
        let status = site.pool.status();
        assert_eq!((status.live_blocks, status.asleep_bytes), (1, 0));
        // Its page was needed no more, or is there and free.
        PAGES[status.pages - 1].note(true);
        site.note_awake(&kept);
        site.use_on(home.as_ref(), &kept, USE);
        let next = site.take(home.as_ref(), PAGE).expect("there is room");
        site.use_on(home.as_ref(), &next, NEXT);
        for plot in [kept, next] {
            site.give(home.as_ref(), plot);
        }
        drop((home, sleeper));
        site.end();
    });
    assert!(PAGES.iter().all(|seen| seen.times() > 0), "{PAGES:?}");
}

#[test]
fn a_block_is_asked_for_while_the_pool_is_woken() {
    static SERVED: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let (site, home, plots, mut sleeper) = asleep();
        let asking = {
            let (site, other) = (site.clone(), site.rig.stream());
            spawn(move || {
                let taken = site.try_to_take(other.as_ref(), PAGE);
                SERVED[usize::from(taken.is_ok())].note(true);
                match taken {
                    Ok(plot) => {
                        site.use_on(other.as_ref(), &plot, USE);
                        site.give(other.as_ref(), plot);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Asleep, "{error}"),
                }
            })
        };
        sleeper.wake().expect("there is memory");
        asking.join().unwrap();
        for plot in plots {
            site.note_awake(&plot);
            site.use_on(home.as_ref(), &plot, NEXT);
            site.give(home.as_ref(), plot);
        }
        drop((home, sleeper));
        site.end();
    });
    assert!(SERVED.iter().all(|seen| seen.times() > 0), "{SERVED:?}");
}
