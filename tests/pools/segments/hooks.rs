//! What hooks hear of, what they may do, and who hears of what comes and goes meanwhile.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock, Weak};
use std::thread;

use alluvion::driver::Driver;
use alluvion::sim::SimDriver;
use alluvion::source::{Cuda, Mapped};
use alluvion::suballoc::{FixedSizeConfig, SegmentHooks, SegmentView, SuballocBook};
use alluvion::{Error, ErrorKind, Pool, PoolConfig, Resource, ResourceExt};

use super::{Registry, SEGMENT, of, registered, stream};
use crate::paged::{MIB, PAGE, free_all, machine, pool};
use crate::raw_block::{Held, layout_of};

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
