//! Two threads grow at once: each gets memory while there is some, the pool never has more than its maximum, and what one of
//! them asked for the other does not ask for once more if it is enough for both.

use std::sync::Arc;

use alluvion::PoolConfig;
use alluvion::suballoc::{Growth, Reuse};
use loom::sync::Mutex;
use loom_tests::{Seen, Site, explore, explore_bounded, spawn};

/// How often a thread is preempted. With more, one thread's patience with the growth of another runs out in some schedules, and it is
/// refused, as it would be in the end.
const PREEMPTIONS: Option<usize> = Some(3);

/// Long enough that a request comes from the core alone, and not with others.
const LONG: usize = 64 << 10;

fn config(growth: Growth) -> PoolConfig {
    PoolConfig::default().growth(growth).reuse(Reuse::Wait)
}

#[test]
fn both_get_what_they_need() {
    static SEEN: [Seen; 3] = [const { Seen::never() }; 3];
    explore_bounded(PREEMPTIONS, || {
        let site = Site::new(2 * LONG, config(Growth::Exact));
        assert_eq!(site.take_on_two_threads(LONG), [true, true]);
        SEEN[site.ground.taken()].note(true);
        assert_eq!(site.ground.refused(), 0);
        site.end();
    });
    assert!(SEEN[2].times() > 0 && SEEN[1].times() == 0, "{SEEN:?}");
}

/// The first one asks for enough: the second waits for that rather than asking too.
#[test]
fn one_segment_does_for_both() {
    static SEEN: [Seen; 3] = [const { Seen::never() }; 3];
    explore_bounded(PREEMPTIONS, || {
        let site = Site::new(8 * LONG, config(Growth::Step(2 * LONG)));
        assert_eq!(site.take_on_two_threads(LONG), [true, true]);
        SEEN[site.ground.taken()].note(true);
        site.end();
    });
    assert!(SEEN[1].times() > 0 && SEEN[2].times() == 0, "{SEEN:?}");
}

/// The maximum has room for two blocks, the policy would take all of it at once.
#[test]
fn a_maximum_is_shared() {
    explore_bounded(PREEMPTIONS, || {
        let site = Site::new(8 * LONG, config(Growth::Step(4 * LONG)).maximum(2 * LONG));
        assert_eq!(site.take_on_two_threads(LONG), [true, true]);
        assert!(site.ground.most_out_bytes() <= 2 * LONG);
        site.end();
    });
}

/// There is room for one: under the maximum, or with the upstream.
fn one_of_two(capacity: usize, maximum: usize, seen: &'static [Seen; 2]) {
    explore_bounded(PREEMPTIONS, move || {
        let site = Site::new(capacity, config(Growth::Exact).maximum(maximum));
        let had = site.take_on_two_threads(LONG);
        assert!(had[0] != had[1], "{had:?}");
        assert!(site.ground.most_out_bytes() <= LONG);
        seen[usize::from(had[0])].note(true);
        site.end();
    });
    assert!(seen.iter().all(|seen| seen.times() > 0), "{seen:?}");
}

#[test]
fn a_maximum_admits_one() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    one_of_two(8 * LONG, LONG, &SEEN);
}

#[test]
fn an_upstream_has_enough_for_one() {
    static SEEN: [Seen; 2] = [Seen::never(), Seen::never()];
    one_of_two(LONG, usize::MAX, &SEEN);
}

/// The first one asks for more than there is, and is refused until it asks for less: meanwhile nothing is promised to the second.
#[test]
fn an_upstream_refuses_what_is_too_much() {
    static REFUSED: Seen = Seen::never();
    explore_bounded(PREEMPTIONS, || {
        let site = Site::new(2 * LONG, config(Growth::Step(4 * LONG)));
        assert_eq!(site.take_on_two_threads(LONG), [true, true]);
        REFUSED.note(site.ground.refused() > 0);
        site.end();
    });
    assert!(REFUSED.times() > 0);
}

/// The protocol written down once more: what has been asked for counts as had, from before it is asked.
fn grow_by_hand(pledges: bool) {
    explore(move || {
        const MAXIMUM: u32 = 1;
        #[derive(Default)]
        struct State {
            had: u32,
            pledged: u32,
        }
        let state = Arc::new(Mutex::new(State::default()));
        let grow = {
            let state = Arc::clone(&state);
            move || {
                {
                    let mut state = state.lock().unwrap();
                    if state.had + state.pledged >= MAXIMUM {
                        return;
                    }
                    state.pledged += u32::from(pledges);
                }
                let mut state = state.lock().unwrap();
                state.pledged -= u32::from(pledges);
                state.had += 1;
            }
        };
        let other = spawn(grow.clone());
        grow();
        other.join().unwrap();
        let had = state.lock().unwrap().had;
        assert!(had == MAXIMUM, "more than the maximum");
    });
}

#[test]
fn pledging_is_enough() {
    grow_by_hand(true);
}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "more than the maximum")]
fn counting_what_has_come_is_caught() {
    grow_by_hand(false);
}
