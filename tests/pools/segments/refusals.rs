//! Hooks that refuse, and segments that the driver does not let go of.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use alluvion::driver::{Call, Code};
use alluvion::sim::Fault;
use alluvion::source::{Cuda, Mapped};
use alluvion::suballoc::SegmentHooks;
use alluvion::{AnyResource, Error, ErrorKind, Pool, Resource, ResourceExt, Sim};

use super::{Registry, SEGMENT, of, registered, stream};
use crate::paged::{free_all, machine, pool};
use crate::raw_block::{Held, layout_of};

#[test]
fn a_hook_that_refuses_a_segment_fails_the_request_and_nothing_is_lost() {
    for over_pages in [true, false] {
        let sim = machine(64);
        let registry = Arc::new(Registry::default());
        let config = registered().segment_hooks(registry.hooks());
        let device = sim.device(0);
        let pool: Pool = if over_pages {
            AnyResource::new(Mapped::new(&device).unwrap()).pool(config).unwrap()
        } else {
            AnyResource::new(Cuda::new(&device)).pool(config).unwrap()
        };
        let before = sim.live();
        registry.refuses_to_add.store(true, SeqCst);
        let error = pool.allocate_sync(layout_of(100)).unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (ErrorKind::Foreign, "foreign error: no more can be registered")
        );
        assert_eq!((sim.live(), pool.pool_size(), registry.counts()), (before, 0, (1, 0)));
        registry.refuses_to_add.store(false, SeqCst);
        let block = pool.allocate_sync(layout_of(100)).map(|block| Held::adopt(&pool, block, layout_of(100)));
        assert_eq!(registry.known().len(), 1);
        block.unwrap().free_sync();
    }
}

#[test]
fn a_hook_that_does_not_let_go_keeps_its_segment() {
    for over_pages in [true, false] {
        let sim = machine(64);
        let device = sim.device(0);
        let registry = Arc::new(Registry::default());
        let config = registered().maximum(2 * SEGMENT).segment_hooks(registry.hooks());
        let pool: Pool = if over_pages {
            AnyResource::new(Mapped::new(&device).unwrap()).pool(config).unwrap()
        } else {
            AnyResource::new(Cuda::new(&device)).pool(config).unwrap()
        };
        let full = || {
            pool.allocate_sync(layout_of(SEGMENT)).map(|block| Held::adopt(&pool, block, layout_of(SEGMENT)))
        };
        let blocks = [full().unwrap(), full().unwrap()];
        blocks.into_iter().for_each(Held::free_sync);
        registry.refuses_to_drop.store(true, SeqCst);
        assert_eq!(pool.trim(0).unwrap(), 0);
        assert_eq!((registry.counts(), pool.pool_size()), ((2, 2), 2 * SEGMENT), "each was asked once");
        // A request for which both would have to go.
        let refused = pool.allocate_sync(layout_of(2 * SEGMENT)).unwrap_err();
        assert!(refused.is_out_of_memory(), "{refused}");
        // They are as good as before.
        let blocks = [full().unwrap(), full().unwrap()];
        assert_eq!(registry.known(), of(&pool.segments()));
        blocks.into_iter().for_each(Held::free_sync);
        registry.refuses_to_drop.store(false, SeqCst);
        assert_eq!(pool.trim(0).unwrap(), 2 * SEGMENT);
        assert_eq!(registry.known(), []);
    }
}

/// What a hook does not let go of counts to what is kept: others go in its place.
#[test]
fn a_trim_gives_others_back_for_those_that_are_refused() {
    for over_pages in [true, false] {
        let sim = machine(64);
        let device = sim.device(0);
        let stays: Arc<OnceLock<u64>> = Arc::default();
        let refused = Arc::clone(&stays);
        // The segment that is asked for first.
        let hooks = SegmentHooks::default().on_dropped(move |segment| {
            let address = segment.address.address();
            if *refused.get_or_init(|| address) == address {
                Err(Error::foreign("it is in use"))
            } else {
                Ok(())
            }
        });
        let config = registered().segment_hooks(hooks);
        let pool: Pool = if over_pages {
            AnyResource::new(Mapped::new(&device).unwrap()).pool(config).unwrap()
        } else {
            AnyResource::new(Cuda::new(&device)).pool(config).unwrap()
        };
        let full = || {
            pool.allocate_sync(layout_of(SEGMENT)).map(|block| Held::adopt(&pool, block, layout_of(SEGMENT)))
        };
        let blocks = [(); 4].map(|()| full().expect("there is memory"));
        blocks.into_iter().for_each(Held::free_sync);
        assert_eq!(pool.trim(2 * SEGMENT).unwrap(), 2 * SEGMENT, "over pages: {over_pages}");
        let left = pool.segments();
        assert_eq!((pool.pool_size(), left.len()), (2 * SEGMENT, 2));
        assert!(left.iter().any(|segment| Some(&segment.address.address()) == stays.get()));
        assert_eq!(pool.trim(0).unwrap(), SEGMENT);
        // It is as good as before, also to be leaked in the end.
        full().expect("it is free").free_sync();
        assert_eq!(pool.pool_size(), SEGMENT);
        pool.set_segment_hooks(SegmentHooks::default()).expect("its segments stay");
        assert_eq!(pool.trim(0).unwrap(), SEGMENT);
    }
}

#[test]
fn one_segment_that_stays_keeps_no_other_one() {
    let sim = Sim::new();
    let stream = stream(&sim);
    for which in 0..3 {
        let kept = Arc::new(AtomicUsize::new(0));
        let of_hook = Arc::clone(&kept);
        let hooks = SegmentHooks::default().on_dropped(move |segment| {
            let is_kept = segment.address.address() == of_hook.load(SeqCst) as u64;
            if is_kept { Err(Error::foreign("it is in use")) } else { Ok(()) }
        });
        let config = registered().maximum(3 * SEGMENT).segment_hooks(hooks);
        let pool = Cuda::new(&sim.device(0)).pool(config).expect("it is valid");
        free_all((0..3).map(|_| Held::of(&pool, SEGMENT, stream.as_ref())).collect(), &stream);
        stream.synchronize().expect("nothing is lost");
        kept.store(pool.segments()[which].address.address() as usize, SeqCst);
        let two = Held::allocate(&pool, layout_of(2 * SEGMENT), stream.as_ref());
        two.unwrap_or_else(|error| panic!("segment {which} stays, and two others may go: {error}"))
            .free(stream.as_ref());
        kept.store(0, SeqCst);
    }
}

/// The segment was let go of, and stays: its hook is told again.
#[test]
fn a_segment_that_the_driver_does_not_unmap_stays_registered() {
    let sim = machine(64);
    let registry = Arc::new(Registry::default());
    let pool = pool(&sim, registered().initial(SEGMENT).segment_hooks(registry.hooks()));
    sim.inject(Fault::nth(Call::MemoryUnmap, 1, Code::UNKNOWN));
    assert_eq!(pool.trim(0).unwrap(), 0);
    assert_eq!((registry.counts(), registry.known()), ((2, 1), of(&pool.segments())));
    let block = pool.allocate_sync(layout_of(SEGMENT)).unwrap();
    assert_eq!(registry.counts(), (2, 1));
    Held::adopt(&pool, block, layout_of(SEGMENT)).free_sync();
    assert_eq!((pool.trim(0).unwrap(), registry.known()), (SEGMENT, vec![]));
}

#[test]
fn a_hook_that_panics_has_refused() {
    let sim = machine(64);
    let panics = Arc::new(AtomicBool::new(true));
    let [adding, dropping] = [Arc::clone(&panics), Arc::clone(&panics)];
    let throw = |panics: &AtomicBool| {
        if panics.load(SeqCst) {
            resume_unwind(Box::new("on purpose"));
        }
        Ok(())
    };
    let hooks =
        SegmentHooks::default().on_added(move |_| throw(&adding)).on_dropped(move |_| throw(&dropping));
    let pool = pool(&sim, registered().segment_hooks(hooks));
    let before = sim.live();
    let error = pool.allocate_sync(layout_of(100)).unwrap_err();
    assert!(error.is_foreign() && error.to_string().contains("panicked"), "{error}");
    assert_eq!(sim.live(), before);
    panics.store(false, SeqCst);
    let block = pool.allocate_sync(layout_of(100)).unwrap();
    Held::adopt(&pool, block, layout_of(100)).free_sync();
    panics.store(true, SeqCst);
    assert_eq!((pool.trim(0).unwrap(), pool.pool_size()), (0, SEGMENT));
    panics.store(false, SeqCst);
    assert_eq!(pool.trim(0).unwrap(), SEGMENT);
}
