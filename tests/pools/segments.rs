//! Segments that stay what they are, and the hooks that are told of them.

#![expect(unsafe_code, reason = "puts a pool to sleep, and lends segments")]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock, Weak};
use std::thread;

use alluvion::driver::{Call, Code, DeviceAttribute, Driver, ExportedMemory, HandleType};
use alluvion::error::Cause;
use alluvion::resource::ExportWay;
use alluvion::sim::{Fault, SimConfig, SimDriver};
use alluvion::source::{Cuda, Mapped, MappedConfig, Pinned};
use alluvion::suballoc::{FixedSizeConfig, PageBudget, SegmentHooks, SegmentView, SuballocBook};
use alluvion::testing::Bench;
use alluvion::{
    AnyResource, DeviceVec, Error, ErrorKind, Layout, Pool, PoolConfig, Resource, ResourceExt, Sim,
    SleepConfig, Stream,
};

use crate::paged::{MIB, PAGE, free_all, machine, pool};
use crate::raw_block::{Held, layout_of};

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

#[test]
fn each_segment_is_one_page_that_stays() {
    let sim = machine(64);
    let stream = stream(&sim);
    let pool = pool(&sim, registered());
    let mut blocks = Vec::new();
    let mut seen: BTreeMap<u64, usize> = BTreeMap::new();
    for round in 0..60_usize {
        let bytes = 1 + (round * 7919) % (3 * PAGE);
        blocks.push(Held::of(&pool, bytes, stream.as_ref()));
        if round % 3 == 2 {
            blocks.swap_remove((round * 31) % blocks.len()).free(stream.as_ref());
        }
        if blocks.len() > 20 {
            free_all(blocks.drain(..12).collect(), &stream);
        }
        let segments = of(&pool.segments());
        for &(address, bytes) in &segments {
            assert!(bytes.is_multiple_of(SEGMENT));
            assert_eq!(*seen.entry(address).or_insert(bytes), bytes, "it has changed");
            let range = sim.sim_driver().address_range(address).ok().flatten().expect("it is mapped");
            assert_eq!((range.start, range.bytes), (address, bytes), "one page");
        }
        assert!(blocks.iter().all(|block| {
            let (first, end) = block.range();
            segments.iter().any(|&(start, bytes)| start <= first && end <= start + bytes as u64)
        }));
    }
    let calls = sim.calls();
    assert_eq!(calls[Call::MemoryUnmap], 0, "nothing moves");
    assert_eq!(calls[Call::MemoryCreate], calls[Call::MemoryMap]);
    free_all(blocks, &stream);
    stream.synchronize().expect("the work is sound");
    let size = pool.pool_size();
    // Half a segment cannot go.
    assert_eq!(pool.trim(size - SEGMENT / 2).expect("it can be trimmed"), 0);
    assert_eq!(pool.trim(SEGMENT).expect("it can be trimmed"), size - SEGMENT);
    assert_eq!((pool.pool_size(), pool.segments().len()), (SEGMENT, 1));
    let live = sim.live();
    assert_eq!((live.physical, live.mappings, live.reservations), (1, 1, 1), "the addresses go, too");
    drop(pool);
    assert!(sim.live().physical + sim.live().reservations == 0);
}

#[test]
fn hooks_hear_of_a_segment_while_it_is_mapped_and_of_each_once() {
    let sim = machine(64);
    let stream = stream(&sim);
    let registry = Arc::new(Registry::default());
    let config = registered().initial(PAGE).segment_hooks(registry.hooks());
    let pool = pool(&sim, config);
    assert_eq!(registry.counts(), (1, 0));
    let block = Held::of(&pool, 3 * PAGE, stream.as_ref());
    assert_eq!(registry.known(), of(&pool.segments()));
    assert_eq!(pool.segments().iter().map(|segment| segment.bytes).sum::<usize>(), PAGE + SEGMENT);
    block.free(stream.as_ref());
    stream.synchronize().expect("the work is sound");
    assert_eq!(pool.trim(0).expect("it can be trimmed"), PAGE + SEGMENT);
    assert_eq!((registry.counts(), registry.known()), ((2, 2), vec![]));
    // At the end, too.
    let block = Held::of(&pool, PAGE, stream.as_ref());
    block.free(stream.as_ref());
    drop(pool);
    assert_eq!((registry.counts(), registry.known()), ((3, 3), vec![]));
}

/// In both hooks the memory is there: it is written to.
#[test]
fn a_segment_can_be_used_in_its_hooks() {
    let sim = machine(64);
    let driver = Arc::clone(sim.sim_driver());
    let looks = move |driver: &Arc<SimDriver>, segment: SegmentView| {
        let range = driver.address_range(segment.address.address()).ok().flatten().expect("it is mapped");
        assert_eq!(range.bytes, segment.bytes);
        assert_eq!(driver.is_rdma_capable(segment.address.address()), Ok(Some(true)));
        Ok(())
    };
    let other = Arc::clone(&driver);
    let hooks = SegmentHooks::default()
        .on_added(move |segment| looks(&driver, segment))
        .on_dropped(move |segment| looks(&other, segment));
    let pool = pool(&sim, registered().segment_hooks(hooks));
    pool.allocate_sync(layout_of(100))
        .map(|block| Held::adopt(&pool, block, layout_of(100)).free_sync())
        .unwrap();
    assert_eq!(pool.trim(0).unwrap(), SEGMENT);
}

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

#[test]
fn a_hook_may_use_its_pool_but_for_segments() {
    let sim = machine(64);
    let pool: Arc<OnceLock<Weak<Pool<Mapped>>>> = Arc::default();
    let (known, said) = (Arc::clone(&pool), Arc::new(Mutex::new(Vec::new())));
    let tell = Arc::clone(&said);
    let hook = move |_: SegmentView| {
        let Some(pool) = known.get().and_then(Weak::upgrade) else { return Ok(()) };
        // Served from what there is.
        let small = pool.allocate_sync(layout_of(1000));
        small.map(|block| Held::adopt(&*pool, block, layout_of(1000)).free_sync())?;
        let more = pool.allocate_sync(layout_of(SEGMENT)).map(drop);
        let mut told = tell.lock().expect("no panic");
        told.push(more.unwrap_err().kind());
        assert_eq!(pool.trim(0)?, 0, "nothing goes within a hook");
        assert!(pool.status().live_blocks < 3);
        Ok(())
    };
    let hooks = SegmentHooks::default().on_added(hook.clone()).on_dropped(hook);
    let made = Arc::new(
        Mapped::new(&sim.device(0))
            .unwrap()
            .pool(registered().initial(SEGMENT).segment_hooks(hooks))
            .unwrap(),
    );
    pool.set(Arc::downgrade(&made)).expect("it is the first");
    let block = made.allocate_sync(layout_of(PAGE)).unwrap();
    let more = made.allocate_sync(layout_of(SEGMENT)).unwrap();
    Held::adopt(&*made, more, layout_of(SEGMENT)).free_sync();
    made.trim(0).unwrap();
    assert_eq!(*said.lock().unwrap(), [ErrorKind::InvalidArgument; 2]);
    Held::adopt(&*made, block, layout_of(PAGE)).free_sync();
}

/// A thread in a hook that does not return holds nobody up.
#[test]
fn a_hook_that_hangs_holds_up_its_own_thread() {
    let sim = machine(64);
    let (in_hook, go_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (first, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let hooks = {
        let (in_hook, go_on, first, calls) =
            (Arc::clone(&in_hook), Arc::clone(&go_on), first, Arc::clone(&calls));
        SegmentHooks::default().on_added(move |_| {
            calls.fetch_add(1, SeqCst);
            if first.swap(false, SeqCst) {
                in_hook.wait();
                go_on.wait();
            }
            Ok(())
        })
    };
    let pool = pool(&sim, registered().segment_hooks(hooks));
    thread::scope(|scope| {
        let slow = scope.spawn(|| pool.allocate_sync(layout_of(SEGMENT)));
        in_hook.wait();
        // Nobody has the segment of the other thread: it is not told yet.
        assert_eq!((pool.segments().len(), pool.pool_size()), (0, 0));
        let quick = pool.allocate_sync(layout_of(2 * SEGMENT)).expect("there is memory");
        assert_eq!(pool.trim(0).expect("it can be trimmed"), 0);
        Held::adopt(&pool, quick, layout_of(2 * SEGMENT)).free_sync();
        go_on.wait();
        let slow = slow.join().expect("no panic").expect("there is memory");
        Held::adopt(&pool, slow, layout_of(SEGMENT)).free_sync();
    });
    assert_eq!(calls.load(SeqCst), 2);
}

/// Hooks that are set while a segment is on its way, in or out, hear of it once: in their list, or later.
#[test]
fn who_comes_late_hears_of_each_segment_once() {
    let sim = machine(64);
    let late = Arc::new(Registry::default());
    let pool: Arc<OnceLock<Weak<Pool<Mapped>>>> = Arc::default();
    let set_late = {
        let (known, late) = (Arc::clone(&pool), Arc::clone(&late));
        move || {
            let pool = known.get().and_then(Weak::upgrade).expect("it is there");
            let there = pool.set_segment_hooks(late.hooks()).expect("its segments stay");
            there.into_iter().for_each(|segment| late.add(segment).expect("it does not refuse"));
        }
    };
    // While it comes, and is refused by who was there before: the late one keeps it.
    let set = set_late.clone();
    let hooks = SegmentHooks::default().on_added(move |_| {
        set();
        Err(Error::foreign("not by me"))
    });
    let made = Mapped::new(&sim.device(0)).unwrap().pool(registered().segment_hooks(hooks)).unwrap();
    let made = Arc::new(made);
    pool.set(Arc::downgrade(&made)).expect("it is the first");
    late.refuses_to_drop.store(true, SeqCst);
    let block = made.allocate_sync(layout_of(100)).expect("the late one keeps the segment");
    assert_eq!((late.known(), late.counts()), (of(&made.segments()), (1, 1)));
    late.refuses_to_drop.store(false, SeqCst);
    Held::adopt(&*made, block, layout_of(100)).free_sync();
    // While it goes: the late one is asked, too.
    let set = set_late.clone();
    made.set_segment_hooks(SegmentHooks::default().on_dropped(move |_| {
        set();
        Ok(())
    }))
    .unwrap();
    late.segments.lock().unwrap().clear();
    assert_eq!(made.trim(0).unwrap(), SEGMENT);
    assert_eq!((late.known(), late.counts()), (vec![], (2, 2)));
    // Whoever sets hooks has what is there, and hears of what comes.
    let block = made.allocate_sync(layout_of(100)).unwrap();
    assert_eq!((late.known(), late.counts()), (of(&made.segments()), (3, 2)));
    Held::adopt(&*made, block, layout_of(100)).free_sync();
    let there = made.set_segment_hooks(SegmentHooks::default()).unwrap();
    assert_eq!(of(&there), late.known());
    assert_eq!((made.trim(0).unwrap(), late.counts()), (SEGMENT, (3, 2)));
}

#[test]
fn threads_that_take_and_give_segments_tell_of_each_once() {
    let sim = machine(64);
    let registry = Arc::new(Registry::default());
    let pool = pool(&sim, registered().segment_hooks(registry.hooks()));
    thread::scope(|scope| {
        for thread in 0..3_usize {
            let (pool, registry) = (&pool, &registry);
            scope.spawn(move || {
                for round in 0..30 {
                    let layout = layout_of(1 + (thread + round) % 3 * PAGE);
                    let block = pool.allocate_sync(layout).expect("there is memory");
                    let known = registry.known();
                    let at = block.address();
                    assert!(known.iter().any(|&(start, bytes)| start <= at && at < start + bytes as u64));
                    Held::adopt(pool, block, layout).free_sync();
                    pool.trim(0).expect("it can be trimmed");
                }
            });
        }
    });
    assert_eq!(registry.known(), of(&pool.segments()));
    pool.trim(0).unwrap();
    let (added, dropped) = registry.counts();
    assert_eq!((added, registry.known()), (dropped, vec![]));
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

/// Each call of a growth fails once; then the request fails, nothing is lost, and the next one is served.
#[test]
fn a_growth_that_fails_half_way_leaves_nothing() {
    for call in [Call::MemoryCreate, Call::VirtualReserve, Call::MemoryMap, Call::MemorySetAccess] {
        let sim = machine(64);
        let registry = Arc::new(Registry::default());
        let pool = pool(&sim, registered().segment_hooks(registry.hooks()));
        let before = sim.live();
        sim.inject(Fault::every(call, Code::UNKNOWN));
        let error = pool.allocate_sync(layout_of(100)).unwrap_err();
        assert_eq!(error.code(), Some(Code::UNKNOWN), "{call:?}: {error}");
        assert_eq!((sim.live(), registry.counts()), (before, (0, 0)), "{call:?}");
        sim.sim_driver().clear_faults();
        let block = pool.allocate_sync(layout_of(100)).unwrap();
        Held::adopt(&pool, block, layout_of(100)).free_sync();
        assert_eq!(registry.known(), of(&pool.segments()));
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

/// Where there is less memory than a segment, the request gets what it needs.
#[test]
fn a_segment_is_shorter_where_memory_ends() {
    let sim = machine(7);
    let pool = pool(&sim, registered());
    let layouts = [layout_of(SEGMENT), layout_of(PAGE)];
    let blocks = layouts.map(|layout| Held::adopt(&pool, pool.allocate_sync(layout).unwrap(), layout));
    let bytes: Vec<usize> = pool.segments().iter().map(|segment| segment.bytes).collect();
    assert!(bytes.iter().all(|bytes| bytes.is_multiple_of(PAGE)));
    assert_eq!((bytes.len(), bytes.iter().max()), (2, Some(&SEGMENT)));
    blocks.into_iter().for_each(Held::free_sync);
    // A maximum is whole pages.
    let pool = crate::paged::pool(&machine(64), registered().maximum(3 * PAGE - 1));
    assert!(pool.allocate_sync(layout_of(2 * PAGE + 1)).is_err());
    let block = pool.allocate_sync(layout_of(2 * PAGE)).unwrap();
    assert_eq!(pool.pool_size(), 2 * PAGE);
    Held::adopt(&pool, block, layout_of(2 * PAGE)).free_sync();
}

#[test]
fn blocks_are_aligned_to_pages_of_the_host_on_request() {
    let sim = machine(64);
    let stream = stream(&sim);
    let pool = pool(&sim, registered());
    let blocks: Vec<_> = (1..40_usize)
        .map(|round| {
            let layout = Layout::new(round * 777, if round % 2 == 0 { 4096 } else { 256 }).unwrap();
            Held::allocate(&pool, layout, stream.as_ref()).unwrap()
        })
        .collect();
    let segments = pool.segments();
    for block in blocks.iter().filter(|block| block.layout.align() == 4096) {
        let (first, _) = block.range();
        let base =
            segments.iter().map(|segment| segment.address.address()).filter(|base| *base <= first).max();
        assert!((first - base.expect("it lies in one")).is_multiple_of(4096));
    }
    free_all(blocks, &stream);
}

/// A segment begins at a page: a request of a whole one takes one, whatever its alignment within a page is.
#[test]
fn a_whole_segment_needs_no_padding_for_its_alignment() {
    let sim = machine(64);
    let stream = stream(&sim);
    let pool = pool(&sim, registered());
    let mut blocks = Vec::new();
    for align in [256, 4096, PAGE] {
        let layout = Layout::new(SEGMENT, align).unwrap();
        blocks.push(Held::allocate(&pool, layout, stream.as_ref()).unwrap());
        let wanted: Vec<_> = blocks.iter().map(|block| (block.range().0, SEGMENT)).collect();
        assert_eq!(of(&pool.segments()).iter().collect::<BTreeSet<_>>(), wanted.iter().collect(), "{align}");
    }
    free_all(blocks, &stream);
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

/// Segments of other suballocators and upstreams stay, too.
#[test]
fn hooks_are_for_whatever_keeps_its_segments() {
    let sim = machine(64);
    let device = sim.device(0);
    let registry = Arc::new(Registry::default());
    let pool = Cuda::new(&device).pool(PoolConfig::default()).unwrap();
    assert!(pool.set_segment_hooks(registry.hooks()).unwrap().is_empty());
    let block = pool.allocate_sync(layout_of(MIB)).unwrap();
    assert_eq!(registry.known(), of(&pool.segments()));
    Held::adopt(&pool, block, layout_of(MIB)).free_sync();
    drop(pool);
    assert_eq!(registry.known(), []);
    let fixed = Mapped::new(&device).unwrap().fixed_size(FixedSizeConfig::default().block(MIB)).unwrap();
    let book = fixed.find::<SuballocBook>().unwrap();
    // It has taken its blocks when it was made.
    let there = book.set_segment_hooks(registry.hooks()).unwrap();
    there.into_iter().for_each(|segment| registry.add(segment).unwrap());
    let block = fixed.allocate_sync(layout_of(MIB)).unwrap();
    assert_eq!(registry.known(), of(&book.segments()));
    Held::adopt(&fixed, block, layout_of(MIB)).free_sync();
    drop(fixed);
    assert_eq!(registry.known(), []);
}

/// A budget moves nothing in a registered pool.
#[test]
fn a_budget_has_no_effect() {
    let sim = machine(64);
    let stream = stream(&sim);
    let pool = pool(&sim, registered().budget(PageBudget::TimesPeak(1.0)));
    for round in 0..20_usize {
        let blocks = [1, 3, 5].map(|part| Held::of(&pool, (part + round) % 6 * PAGE + 1, stream.as_ref()));
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    }
    assert_eq!((sim.calls()[Call::MemoryUnmap], pool.status().moves), (0, 0));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let sim = Sim::with_config(SimConfig::default());
    let mapped = || Mapped::new(&sim.device(0)).unwrap();
    let moving = mapped().pool(PoolConfig::default()).unwrap();
    assert!(moving.set_segment_hooks(SegmentHooks::default()).unwrap_err().is_unsupported());
    for config in [
        PoolConfig::default().segment_hooks(SegmentHooks::default()),
        PoolConfig::default().registered(0),
        registered().maximum(PAGE - 1),
        registered().initial(2 * PAGE).maximum(PAGE),
    ] {
        let text = format!("{config:?}");
        assert_eq!(mapped().pool(config).unwrap_err().kind(), ErrorKind::InvalidArgument, "{text}");
    }
}

/// Through the page of a segment for other processes, through a dma-buf for the kernel's other drivers.
#[test]
fn a_segment_is_lent_whole() {
    let sim = machine(64);
    let device = sim.device(0);
    let config = MappedConfig::default().handle_types(HandleType::POSIX_FILE_DESCRIPTOR);
    let pool = Mapped::with_config(&device, config).unwrap().pool(registered()).unwrap();
    let (small, large) = (layout_of(1000), layout_of(PAGE));
    let blocks = [small, large].map(|layout| Held::adopt(&pool, pool.allocate_sync(layout).unwrap(), layout));
    let segment = pool.segments()[0];
    for block in &blocks {
        // SAFETY: the block is live.
        let export = unsafe { pool.export(block.pointer, block.layout) }.unwrap();
        assert_eq!((export.way(), export.visible_bytes()), (ExportWay::PagesByDescriptor, segment.bytes));
        assert_eq!(export.offset() as u64, block.range().0 - segment.address.address());
    }
    // SAFETY: the segment is live.
    let lend = |bytes| unsafe { device.dma_buf(segment.address.address(), bytes) };
    for call in [Call::MemoryExport, Call::DmaBuf] {
        sim.inject(Fault::nth(call, 1, Code::UNKNOWN));
    }
    assert_eq!(lend(segment.bytes).unwrap_err().code(), Some(Code::UNKNOWN));
    let descriptor = lend(segment.bytes).unwrap();
    assert!(lend(segment.bytes + 4096).is_err() && lend(100).is_err() && lend(0).is_err());
    sim.sim_driver().clear_faults();
    let taken_up = || device.memory_info().map(|info| info.total_bytes - info.free_bytes).unwrap();
    blocks.into_iter().for_each(Held::free_sync);
    assert_eq!(pool.trim(0).unwrap(), SEGMENT);
    assert_eq!(taken_up(), SEGMENT, "the descriptor keeps it");
    // No process imports it.
    let imported = sim.sim_driver().sharing().unwrap();
    let imported = imported.memory_import(0, &ExportedMemory::FileDescriptor(descriptor));
    assert_eq!(imported.map_err(|error| error.code), Err(Code::NOT_SUPPORTED));
    assert_eq!(taken_up(), 0);
    let without = Sim::with_config(SimConfig::default().attribute(DeviceAttribute::DmaBuf, 0));
    let pool = crate::paged::pool(&without, registered().initial(SEGMENT));
    let segment = pool.segments()[0];
    // SAFETY: the segment is live.
    let refused = unsafe { without.device(0).dma_buf(segment.address.address(), segment.bytes) }.unwrap_err();
    assert!(refused.is_unsupported(), "{refused}");
    assert!(without.device(0).capabilities().is_ok_and(|can| !can.dma_buf));
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

#[test]
fn a_segment_of_more_than_there_can_be_is_as_long_as_there_is_memory() {
    for bytes in [1 << 39, 1 << 40, usize::MAX] {
        let sim = machine(16);
        let stream = stream(&sim);
        let pool = pool(&sim, PoolConfig::default().registered(bytes));
        Held::of(&pool, MIB, stream.as_ref()).free(stream.as_ref());
        assert_eq!(pool.pool_size(), 16 * PAGE, "{bytes}");
    }
}

#[test]
fn an_initial_segment_is_whole_pages_and_fewer_than_a_terabyte() {
    let device = Sim::new().device(0);
    let error = Cuda::new(&device).pool(registered().initial((1 << 40) - 256)).unwrap_err();
    assert!(error.to_string().contains("1 TiB or more"), "{error}");
    let config = || PoolConfig::default().registered(PAGE).maximum(PAGE + MIB).initial_half_of_free();
    assert_eq!(Cuda::new(&device).pool(config()).expect("it is valid").pool_size(), PAGE);
    assert_eq!(
        Mapped::new(&device).and_then(|mapped| mapped.pool(config())).expect("it is valid").pool_size(),
        PAGE
    );
}

/// Another thread trims while hooks are told of what was there.
#[test]
fn a_segment_that_was_there_does_not_go_before_it_is_told_of() {
    let sim = machine(64);
    let (stream, pool) = (stream(&sim), Arc::new(pool(&sim, registered())));
    free_all((0..2).map(|_| Held::of(&*pool, SEGMENT, stream.as_ref())).collect(), &stream);
    stream.synchronize().expect("nothing is lost");
    let (registry, gone) = (Arc::new(Registry::default()), Arc::new(Mutex::new(Vec::new())));
    let (adding, dropping, trimmed, weak) =
        (Arc::clone(&registry), Arc::clone(&registry), Arc::clone(&gone), Arc::downgrade(&pool));
    let hooks = SegmentHooks::default()
        .on_added(move |segment| {
            let pool = weak.upgrade().expect("it is there");
            assert!(pool.segments().contains(&segment));
            let trim = thread::spawn(move || pool.trim(0));
            trimmed.lock().unwrap().push(trim.join().expect("no panic")?);
            adding.add(segment)?;
            Err(Error::foreign("and stays all the same"))
        })
        .on_dropped(move |segment| dropping.take_back(segment));
    let book = pool.find::<SuballocBook>().expect("a pool has one");
    assert_eq!(book.introduce_segment_hooks(&hooks).unwrap_err().kind(), ErrorKind::Foreign);
    assert_eq!(*gone.lock().unwrap(), [0, SEGMENT], "while the second one came, the first one could go");
    assert_eq!((registry.known(), registry.counts()), (of(&pool.segments()), (2, 1)));
    assert_eq!((pool.trim(0).unwrap(), registry.counts()), (SEGMENT, (2, 2)));
}
