//! Segments that stay what they are, and the hooks that are told of them.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

mod ends;
mod hooks;
mod lent;
mod refusals;
mod staying;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use alluvion::suballoc::{SegmentHooks, SegmentView};
use alluvion::{Error, PoolConfig, Sim, Stream};

use crate::paged::PAGE;

const SEGMENT: usize = 4 * PAGE;

fn registered() -> PoolConfig {
    PoolConfig::default().registered(SEGMENT)
}

/// What hooks have heard: the segments that are registered, by address; each comes once, and goes once.
#[derive(Debug, Default)]
struct Registry {
    segments: Mutex<BTreeMap<u64, usize>>,
    added: AtomicUsize,
    dropped: AtomicUsize,
    refuses_to_add: AtomicBool,
    refuses_to_drop: AtomicBool,
}

impl Registry {
    fn hooks(self: &Arc<Self>) -> SegmentHooks {
        let (adding, dropping) = (Arc::clone(self), Arc::clone(self));
        SegmentHooks::default()
            .on_added(move |segment| adding.add(segment))
            .on_dropped(move |segment| dropping.take_back(segment))
    }

    fn add(&self, segment: SegmentView) -> Result<(), Error> {
        self.added.fetch_add(1, SeqCst);
        if self.refuses_to_add.load(SeqCst) {
            return Err(Error::foreign("no more can be registered"));
        }
        let before = self.segments.lock().expect("no panic").insert(segment.address.address(), segment.bytes);
        assert_eq!(before, None, "registered twice");
        Ok(())
    }

    fn take_back(&self, segment: SegmentView) -> Result<(), Error> {
        self.dropped.fetch_add(1, SeqCst);
        if self.refuses_to_drop.load(SeqCst) {
            return Err(Error::foreign("it is in use"));
        }
        let known = self.segments.lock().expect("no panic").remove(&segment.address.address());
        assert_eq!(known, Some(segment.bytes), "taken back, and was not there");
        Ok(())
    }

    fn known(&self) -> Vec<(u64, usize)> {
        self.segments.lock().expect("no panic").iter().map(|(&address, &bytes)| (address, bytes)).collect()
    }

    fn counts(&self) -> (usize, usize) {
        (self.added.load(SeqCst), self.dropped.load(SeqCst))
    }
}

fn of(segments: &[SegmentView]) -> Vec<(u64, usize)> {
    segments.iter().map(|segment| (segment.address.address(), segment.bytes)).collect()
}

fn stream(sim: &Sim) -> Stream {
    sim.device(0).stream().expect("there are numbers left")
}
