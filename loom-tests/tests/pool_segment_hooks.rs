//! Hooks of segments that are set while another thread takes a segment and gives it back: of each segment they are told once, or have it
//! in their list; and once of its end.

#![allow(clippy::disallowed_types, reason = "held by one thread at a time, and across no step of a model")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use alluvion::suballoc::{Growth, Reuse, SegmentHooks, SegmentView};
use alluvion::{Error, PoolConfig, Resource as _};
use loom_tests::{Seen, Site, explore_bounded, spawn};

/// How often a thread is preempted: see `pool_pages.rs`.
const PREEMPTIONS: Option<usize> = Some(3);

const BYTES: usize = 64 << 10;

/// How often each segment has come, less how often it has gone.
#[derive(Debug, Default)]
struct Heard(Mutex<BTreeMap<u64, i32>>);

impl Heard {
    fn hooks(self: &Arc<Self>) -> SegmentHooks {
        let (coming, going) = (Arc::clone(self), Arc::clone(self));
        SegmentHooks::default()
            .on_added(move |segment| coming.count(segment, 1))
            .on_dropped(move |segment| going.count(segment, -1))
    }

    #[expect(clippy::unnecessary_wraps, reason = "what a hook answers")]
    fn count(&self, segment: SegmentView, change: i32) -> Result<(), Error> {
        *self.0.lock().expect("no panic").entry(segment.address.address()).or_default() += change;
        Ok(())
    }

    fn counts(&self) -> Vec<i32> {
        self.0.lock().expect("no panic").values().copied().collect()
    }
}

#[test]
fn hooks_meet_a_segment_that_comes_and_goes() {
    // In the list; told of; never heard of.
    static SEEN: [Seen; 3] = [const { Seen::never() }; 3];
    explore_bounded(PREEMPTIONS, || {
        let config = PoolConfig::default().growth(Growth::Exact).reuse(Reuse::Wait);
        let (early, late) = (Arc::new(Heard::default()), Arc::new(Heard::default()));
        let site = Site::new(BYTES, config.segment_hooks(early.hooks()));
        let working = {
            let site = site.clone();
            spawn(move || {
                let plot = site.take_for_host(BYTES).expect("there is memory");
                site.give_by_host(plot);
                site.pool.trim(0).expect("nothing fails")
            })
        };
        let there = site.pool.set_segment_hooks(late.hooks()).expect("its segments stay");
        let is_listed = !there.is_empty();
        there.into_iter().for_each(|segment| late.count(segment, 1).expect("it refuses none"));
        assert_eq!(working.join().unwrap(), BYTES);
        // It has come and gone, for whoever has heard of it.
        assert!(late.counts().iter().all(|count| *count == 0), "{late:?}");
        assert!(early.counts().iter().all(|count| matches!(count, 0 | 1)), "{early:?}");
        let place = if is_listed { 0 } else { 1 + usize::from(late.counts().is_empty()) };
        SEEN[place].note(true);
        site.end();
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}
