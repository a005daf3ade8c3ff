//! Pages: two threads that grow in place, growth against a trim, and growth by a move against a free. No page is mapped over another
//! or unmapped under work, and what one thread maps is no other's before it is there.

use alluvion::suballoc::{Growth, Reuse};
use alluvion::{PoolConfig, Resource};
use loom_tests::{Seen, Site, Work, explore_bounded, spawn};

const FIRST: Work = Work(0);
const SECOND: Work = Work(1);

/// How often a thread is preempted. With more, one thread's patience with the call of another runs out in some schedules, and it is
/// refused, as it would be in the end.
const PREEMPTIONS: Option<usize> = Some(3);

/// Long enough that a request comes from the core alone, and not with others.
const PAGE: usize = 64 << 10;

fn config() -> PoolConfig {
    PoolConfig::default().growth(Growth::Exact).reuse(Reuse::Wait)
}

#[test]
fn two_threads_grow_side_by_side() {
    explore_bounded(PREEMPTIONS, || {
        let site = Site::in_pages(2 * PAGE, PAGE, config());
        assert_eq!(site.take_on_two_threads(PAGE), [true, true]);
        assert_eq!((site.ground.taken(), site.ground.refused()), (2, 0));
        assert_eq!(site.pool.status().pages, 2);
        site.end();
    });
}

/// A block and a half each: pages lie beside each other, or half of one is free between the blocks.
#[test]
fn two_threads_grow_by_parts_of_pages() {
    explore_bounded(PREEMPTIONS, || {
        let site = Site::in_pages(4 * PAGE, PAGE, config());
        assert_eq!(site.take_on_two_threads(PAGE + PAGE / 2), [true, true]);
        assert!(site.ground.most_out_bytes() <= 4 * PAGE);
        site.end();
    });
}

#[test]
fn a_maximum_of_pages_admits_one() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let site = Site::in_pages(8 * PAGE, PAGE, config().maximum(2 * PAGE));
        let had = site.take_on_two_threads(2 * PAGE);
        assert!(had[0] != had[1], "{had:?}");
        assert!(site.ground.most_out_bytes() <= 2 * PAGE);
        SEEN[usize::from(had[0])].note(true);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// The maximum, or the source, has one page: which is on its way back while it is asked for.
#[test]
fn growth_meets_a_trim() {
    for maximum in [PAGE, usize::MAX] {
        static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
        explore_bounded(PREEMPTIONS, move || {
            let site = Site::in_pages(PAGE, PAGE, config().initial(PAGE).maximum(maximum));
            let home = site.rig.stream();
            let trimming = {
                let site = site.clone();
                spawn(move || site.pool.trim(0).expect("nothing fails"))
            };
            let plot = site.take(home.as_ref(), PAGE).expect("nothing is live");
            site.use_on(home.as_ref(), &plot, FIRST);
            SEEN[usize::from(trimming.join().unwrap() > 0)].note(true);
            site.give(home.as_ref(), plot);
            drop(home);
            site.end();
        });
        assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
    }
}

/// Three pages, and no more: two are free, and one of them moves beside the other. The second one is being freed meanwhile.
#[test]
fn growth_by_a_move_meets_a_free() {
    for site in [Site::in_pages, Site::in_pages_with_aliases] {
        static SEEN: [Seen; 3] = [const { Seen::never() }; 3];
        explore_bounded(PREEMPTIONS, move || {
            let site = site(3 * PAGE, PAGE, config());
            let (home, other) = (site.rig.stream(), site.rig.stream());
            let [first, middle, last] =
                [(); 3].map(|()| site.take(home.as_ref(), PAGE).expect("there is room"));
            site.give(home.as_ref(), first);
            let freeing = {
                let (site, home) = (site.clone(), home.clone());
                spawn(move || {
                    site.use_on(home.as_ref(), &last, FIRST);
                    site.give(home.as_ref(), last);
                })
            };
            let long = site.take(other.as_ref(), 2 * PAGE);
            let moves = site.pool.status().moves;
            SEEN[if long.is_some() { moves.min(1) as usize } else { 2 }].note(true);
            long.iter().for_each(|plot| site.use_on(other.as_ref(), plot, SECOND));
            freeing.join().unwrap();
            assert!(site.ground.most_out_bytes() <= 3 * PAGE);
            long.into_iter().for_each(|plot| site.give(other.as_ref(), plot));
            site.give(home.as_ref(), middle);
            drop((home, other));
            site.end();
        });
        assert!(SEEN[1].times() > 0 && SEEN[2].times() > 0, "{SEEN:?}");
    }
}

/// Three pages, of which one has moved and is mapped where it was, too. It is free, and so is another one: a block of that length returns there,
/// while a trim gives both back.
#[test]
fn a_return_meets_a_trim() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    explore_bounded(PREEMPTIONS, || {
        let site = Site::in_pages_with_aliases(3 * PAGE, PAGE, config());
        let home = site.rig.stream();
        let [first, middle, last] = [(); 3].map(|()| site.take(home.as_ref(), PAGE).expect("there is room"));
        site.give(home.as_ref(), first);
        site.give(home.as_ref(), last);
        let long = site.take(home.as_ref(), 2 * PAGE).expect("two are free");
        assert_eq!(site.pool.status().moves, 1);
        site.use_on(home.as_ref(), &long, FIRST);
        site.give(home.as_ref(), long);
        site.give(home.as_ref(), middle);
        let trimming = {
            let site = site.clone();
            spawn(move || site.pool.trim(0).expect("nothing fails"))
        };
        let all = site.take(home.as_ref(), 3 * PAGE);
        SEEN[usize::from(all.is_some())].note(true);
        all.iter().for_each(|plot| site.use_on(home.as_ref(), plot, SECOND));
        trimming.join().unwrap();
        all.into_iter().for_each(|plot| site.give(home.as_ref(), plot));
        drop(home);
        site.end();
    });
    assert!(SEEN[1].times() > 0, "{SEEN:?}");
}
