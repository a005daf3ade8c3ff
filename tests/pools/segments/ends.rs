//! What no segment comes or goes by: a pool that ends, one that is frozen, and one that sleeps.

#![expect(unsafe_code, reason = "puts a pool to sleep, and lends segments")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use alluvion::driver::{Call, Code};
use alluvion::error::Cause;
use alluvion::sim::Fault;
use alluvion::source::Pinned;
use alluvion::suballoc::SegmentHooks;
use alluvion::testing::Bench;
use alluvion::{DeviceVec, Error, ErrorKind, PoolConfig, Resource, Sim, SleepConfig};

use super::{Registry, SEGMENT, registered, stream};
use crate::paged::{PAGE, machine, pool};
use crate::raw_block::{Held, layout_of};

#[test]
fn what_a_hook_does_not_let_go_of_is_leaked_at_the_end() {
    let sim =
        Sim::with_config(Bench::config().devices(1).memory_bytes(64 * PAGE).panic_on_unseen_hazards(false));
    let registry = Arc::new(Registry::default());
    let pool = pool(&sim, registered().initial(SEGMENT).segment_hooks(registry.hooks()));
    registry.refuses_to_drop.store(true, SeqCst);
    drop(pool);
    assert_eq!((sim.live().physical, sim.live().mappings, registry.counts()), (1, 1, (1, 1)));
}

#[test]
fn a_frozen_pool_calls_nobody() {
    for config in [PoolConfig::default(), registered()] {
        let sim = machine(64);
        let registry = Arc::new(Registry::default());
        let is_registered = format!("{config:?}").contains("segment_bytes: Some");
        let config = if is_registered { config.segment_hooks(registry.hooks()) } else { config };
        let pool = pool(&sim, config.initial(2 * SEGMENT));
        pool.freeze();
        let before = (sim.calls(), registry.counts());
        let block = pool.allocate_sync(layout_of(PAGE)).unwrap();
        let error = pool.allocate_sync(layout_of(3 * SEGMENT)).unwrap_err();
        let report = error.out_of_memory_report().expect("a pool says why");
        assert_eq!((error.kind(), report.cause), (ErrorKind::OutOfMemory, Cause::Frozen));
        assert!(error.to_string().contains("it is frozen, and takes no more memory"), "{error}");
        Held::adopt(&pool, block, layout_of(PAGE)).free_sync();
        assert_eq!(pool.trim(0).unwrap(), 0);
        // SAFETY: nothing is live.
        let refused = unsafe { pool.sleep(SleepConfig::default()) }.unwrap_err();
        assert!(refused.is_unsupported(), "{refused}");
        for call in
            [Call::MemoryCreate, Call::MemoryMap, Call::MemoryUnmap, Call::MemoryInfo, Call::VirtualReserve]
        {
            assert_eq!(sim.calls()[call], before.0[call], "{call:?}");
        }
        assert_eq!((registry.counts(), pool.pool_size()), (before.1, 2 * SEGMENT));
    }
}

#[test]
fn sleep_lets_go_before_and_waking_tells_after() {
    let sim = machine(64);
    let (device, stream) = (sim.device(0), stream(&sim));
    let registry = Arc::new(Registry::default());
    let pool = pool(&sim, registered().segment_hooks(registry.hooks()));
    let host = Pinned::new(&device).unwrap();
    let numbers: Vec<u32> = (0..2_000_000).collect();
    let weights = DeviceVec::from_slice_in(&numbers, &stream, &pool).unwrap();
    let known = registry.known();
    assert_eq!((known.len(), registry.counts()), (1, (1, 0)));
    // SAFETY: nothing uses the vector until it is awake.
    let mut sleeper = unsafe { pool.sleep(SleepConfig::default().keep_in(&host)) }.unwrap();
    assert_eq!((registry.known(), registry.counts(), sim.live().mappings), (vec![], (1, 1), 0));
    // A hook that refuses: everything sleeps on.
    registry.refuses_to_add.store(true, SeqCst);
    let error = sleeper.wake().unwrap_err();
    assert!(error.is_foreign(), "{error}");
    assert_eq!((sleeper.is_asleep(), registry.known(), sim.live().mappings), (true, vec![], 0));
    registry.refuses_to_add.store(false, SeqCst);
    // So it does where a call fails.
    for call in [Call::MemoryCreate, Call::MemoryMap, Call::MemorySetAccess] {
        sim.inject(Fault::nth(call, 1, Code::UNKNOWN));
        assert_eq!(sleeper.wake().unwrap_err().code(), Some(Code::UNKNOWN));
        assert_eq!((sleeper.is_asleep(), registry.known(), sim.live().physical), (true, vec![], 0));
    }
    sleeper.wake().unwrap();
    assert_eq!(registry.known(), known, "the addresses stay");
    assert_eq!(weights.to_vec(&stream).unwrap(), numbers);
    drop(sleeper);
    // A hook that does not let go: the segment stays, and the rest of the sleep is as ever.
    registry.refuses_to_drop.store(true, SeqCst);
    // SAFETY: as above.
    let mut sleeper = unsafe { pool.sleep(SleepConfig::default().keep_in(&host)) }.unwrap();
    assert_eq!((registry.known(), sim.live().mappings), (known.clone(), 1));
    registry.refuses_to_drop.store(false, SeqCst);
    sleeper.wake().unwrap();
    assert_eq!((registry.known(), weights.to_vec(&stream).unwrap() == numbers), (known, true));
    drop((sleeper, weights));
    stream.synchronize().unwrap();
    assert_eq!((pool.trim(0).unwrap(), registry.known()), (SEGMENT, vec![]));
}

/// Of two segments, the second is refused while it wakes: the first is let go of again.
#[test]
fn a_wake_that_is_refused_half_way_lets_go_of_the_rest() {
    let sim = machine(64);
    let stream = stream(&sim);
    let (known, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(usize::MAX)));
    let hooks = {
        let [adding, dropping] = [Arc::clone(&known), Arc::clone(&known)];
        let left = Arc::clone(&left);
        SegmentHooks::default()
            .on_added(move |_| {
                if left.fetch_sub(1, SeqCst) == 0 {
                    return Err(Error::foreign("full"));
                }
                adding.fetch_add(1, SeqCst);
                Ok(())
            })
            .on_dropped(move |_| {
                dropping.fetch_sub(1, SeqCst);
                Ok(())
            })
    };
    let pool = pool(&sim, registered().segment_hooks(hooks));
    let vectors = [1, 2].map(|value| DeviceVec::filled_in(SEGMENT, value as u8, &stream, &pool).unwrap());
    // SAFETY: nothing uses the vectors until they are awake.
    let mut sleeper = unsafe { pool.sleep(SleepConfig::default()) }.unwrap();
    left.store(1, SeqCst);
    assert!(sleeper.wake().is_err());
    assert_eq!((known.load(SeqCst), sim.live().mappings, sleeper.is_asleep()), (0, 0, true));
    left.store(usize::MAX, SeqCst);
    sleeper.wake().unwrap();
    assert_eq!(known.load(SeqCst), 2);
    drop((sleeper, vectors));
}
