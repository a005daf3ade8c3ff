//! What a suballocator serves and takes at once, and what it does not.

#![expect(unsafe_code, reason = "frees blocks at once")]

use alluvion::driver::{Call, CaptureMode};
use alluvion::source::Cuda;
use alluvion::testing::Bench;
use alluvion::{DevicePtr, ErrorKind, Frontier, Pool, PoolConfig, Resource, ResourceExt, Stream};

use crate::raw_block::{Held, layout_of};

fn pool(bench: &Bench, checked: bool) -> Pool<Cuda> {
    Cuda::new(&bench.device()).pool(PoolConfig::default().checked(checked)).expect("a right configuration")
}

/// Allocates and frees a block, so that the cache of the stream has one.
fn warm(resource: &impl Resource, bytes: usize, stream: &Stream) -> DevicePtr {
    let layout = layout_of(bytes);
    let block = resource.allocate(layout, stream.as_ref()).expect("there is room");
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    unsafe { resource.deallocate(block, layout, stream.as_ref()) };
    block
}

#[test]
fn a_hit_comes_at_once_and_goes_back_at_once() {
    for checked in [false, true] {
        let bench = Bench::sim();
        let (pool, stream) = (pool(&bench, checked), bench.stream());
        let sim = bench.simulated().expect("it is simulated");
        for bytes in [1, 5000, 1 << 20, 3 << 20] {
            let (layout, block) = (layout_of(bytes), warm(&pool, bytes, &stream));
            let before = (sim.calls(), pool.status());
            for _ in 0..100 {
                assert_eq!(pool.allocate_at_once(layout, stream.as_ref()), Some(block), "{bytes}");
                assert_eq!(pool.status().live_blocks, 1);
                // SAFETY: the block came from this resource with this layout, and nothing uses it.
                assert!(unsafe { pool.deallocate_at_once(block, layout, stream.as_ref()) }, "{bytes}");
            }
            assert_eq!((sim.calls() - before.0).total(), 0);
            let after = pool.status();
            assert_eq!((after.hits, after.misses), (before.1.hits + 100, before.1.misses));
        }
        bench.check();
    }
}

/// Also of a stream that has not freed yet, of an alignment that takes a search, and of what the pool cannot serve.
#[test]
fn a_miss_is_not_served_at_once_and_counts_nothing() {
    let bench = Bench::sim();
    let (pool, stream, other) = (pool(&bench, true), bench.stream(), bench.stream());
    warm(&pool, 1000, &stream);
    let before = pool.status();
    let aligned = alluvion::Layout::new(1000, 4096).expect("a right layout");
    for layout in [layout_of(5000), layout_of(1 << 45), aligned] {
        assert_eq!(pool.allocate_at_once(layout, stream.as_ref()), None);
    }
    assert_eq!(pool.allocate_at_once(layout_of(1000), other.as_ref()), None);
    assert_eq!(pool.status(), before);
    assert!(pool.allocate_at_once(layout_of(0), stream.as_ref()).is_some(), "zero bytes take nothing");
}

/// A stream that another owner may destroy needs an event at each of its first frees, and then one behind many.
#[test]
fn a_stream_of_another_owner_frees_with_a_driver_call_now_and_then() {
    let bench = Bench::sim();
    let own = bench.stream();
    let pool = pool(&bench, true);
    // SAFETY: the stream is of this device, and outlives its wrapper; nobody captures.
    let stream = unsafe { Stream::from_raw(&bench.device(), own.raw()) }.expect("there are numbers left");
    let (layout, block) = (layout_of(1000), warm(&pool, 1000, &stream));
    let sim = bench.simulated().expect("it is simulated");
    let before = sim.calls();
    assert_eq!(pool.allocate_at_once(layout, stream.as_ref()), Some(block));
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    assert!(!unsafe { pool.deallocate_at_once(block, layout, stream.as_ref()) });
    assert_eq!(((sim.calls() - before.clone()).total(), pool.status().live_blocks), (0, 1));
    // SAFETY: as above: nothing has happened to it.
    unsafe { pool.deallocate(block, layout, stream.as_ref()) };
    assert!((sim.calls() - before).total() > 0);
    let pairs = |bytes: usize, count: usize| {
        let before = sim.calls();
        (0..count).for_each(|_| Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref()));
        (sim.calls() - before)[Call::EventRecord]
    };
    assert_eq!(pairs(1000, 200), 200, "it may be the stream of one task");
    assert!((50..60).contains(&pairs(1000, 100)), "it is one that stays");
    assert_eq!(pairs(1000, 10 * 1024), 10);
    // By bytes: 32 of 1 MiB.
    assert_eq!(pairs(1 << 20, 320), 10);
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    let at_once = |block| unsafe { pool.deallocate_at_once(block, layout, stream.as_ref()) };
    let block = pool.allocate_at_once(layout, stream.as_ref()).expect("it is cached");
    let before = sim.calls();
    assert!(at_once(block) && (sim.calls() - before).total() == 0);
    // Whoever waits for what no event covers covers it: there is a handle.
    let machine = bench.device().machine().clone();
    machine.wait_quiescent(&Frontier::of(stream.release())).expect("the device goes on");
    bench.check();
}

/// If the last handle goes within a capture, nothing says any more when what no event covers is over: a graph may use it.
#[test]
fn what_a_capture_keeps_from_being_covered_at_the_end_serves_nobody() {
    let bench = Bench::sim();
    let own = bench.stream();
    let sim = bench.simulated().expect("it is simulated");
    let pool = pool(&bench, true);
    // SAFETY: the stream is of this device, and outlives its wrapper.
    let stream = unsafe { Stream::from_raw(&bench.device(), own.raw()) }.expect("there are numbers left");
    (0..300).for_each(|_| Held::of(&pool, 1000, stream.as_ref()).free(stream.as_ref()));
    let before = Held::of(&pool, 3000, stream.as_ref());
    sim.begin_capture(0, own.raw(), CaptureMode::Global).expect("it can capture");
    let within = Held::of(&pool, 3000, stream.as_ref());
    let kept = [before.pointer, within.pointer];
    [before, within].into_iter().for_each(|block| block.free(stream.as_ref()));
    let late = Frontier::of(stream.release());
    drop(stream);
    drop(sim.end_capture(0, own.raw()).expect("the capture is whole"));
    let waited = bench.device().machine().wait_quiescent(&late);
    assert_eq!(waited.expect_err("no wait tells").kind(), ErrorKind::Unsupported);
    pool.trim(0).expect("the device goes on");
    pool.defragment().expect("the device goes on");
    let others: Vec<_> = (0..5000).map(|_| Held::of(&pool, 3000, own.as_ref())).collect();
    assert!(others.iter().all(|other| !kept.contains(&other.pointer)));
    others.into_iter().for_each(|other| other.free(own.as_ref()));
    bench.check();
}

/// With a ledger: a wrong free is not taken at once, and a refused one leaves the block live.
#[test]
fn a_ledger_refuses_at_once_what_it_refuses() {
    let bench = Bench::sim();
    let (pool, stream) = (pool(&bench, true), bench.stream());
    let (layout, block) = (layout_of(1000), warm(&pool, 1000, &stream));
    // SAFETY: wrong on purpose: the pool has a ledger, which ignores what is no live block.
    let freed_twice = unsafe { pool.deallocate_at_once(block, layout, stream.as_ref()) };
    assert!(!freed_twice);
    assert_eq!(pool.allocate_at_once(layout, stream.as_ref()), Some(block));
    // SAFETY: wrong on purpose, as above: another size.
    let wrong_size = unsafe { pool.deallocate_at_once(block, layout_of(999), stream.as_ref()) };
    assert!(!wrong_size && pool.status().live_blocks == 1);
    // A stream that has no cache yet takes nothing at once.
    let fresh = bench.stream();
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    let at_once = unsafe { pool.deallocate_at_once(block, layout, fresh.as_ref()) };
    assert!(!at_once && pool.status().live_blocks == 1);
    // SAFETY: as above: nothing has happened to it.
    unsafe { pool.try_deallocate(block, layout, &fresh) }.expect("it is live");
    bench.check();
}

/// While graphs are captured, or frees are watched, each call asks the driver.
#[test]
fn nothing_is_done_at_once_where_captures_are_watched() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let config = PoolConfig::default().watch_captures(true);
    let pool = Cuda::new(&bench.device()).pool(config).expect("a right configuration");
    let (layout, _) = (layout_of(1000), warm(&pool, 1000, &stream));
    assert_eq!(pool.allocate_at_once(layout, stream.as_ref()), None);
    let block = pool.allocate(layout, stream.as_ref()).expect("there is room");
    // SAFETY: the block came from this resource with this layout, and nothing uses it.
    assert!(!unsafe { pool.deallocate_at_once(block, layout, stream.as_ref()) });
    // SAFETY: as above: nothing has happened to it.
    unsafe { pool.deallocate(block, layout, stream.as_ref()) };
    bench.check();
}

/// The layers that only count pass it on; a layer that may wait or run code of others does not.
#[test]
fn layers_pass_on_what_they_can_do_at_once() {
    use alluvion::AnyResource;
    use alluvion::adaptor::{Allowance, Log};
    use alluvion::relief::Relief;

    let bench = Bench::sim();
    let stream = bench.stream();
    let log = Log::write_to(std::io::sink()).expect("there is a thread for it");
    let crossed = Allowance::new("low", 1 << 20).soft(100);
    let fast: [AnyResource; 6] = [
        AnyResource::new(pool(&bench, false).stats()),
        AnyResource::new(pool(&bench, true).tracking()),
        AnyResource::new(pool(&bench, false).limiting(1 << 20)),
        AnyResource::new(pool(&bench, false).budget(Allowance::new("a", 1 << 20).child("b", 1 << 20))),
        AnyResource::new(pool(&bench, false).failure_callback(|_| Relief::None)),
        AnyResource::new(pool(&bench, false).binning().blocks(2).bin(2000).build().expect("a right bin")),
    ];
    let slow: [AnyResource; 5] = [
        AnyResource::new(pool(&bench, false).logging(log)),
        AnyResource::new(pool(&bench, false).thread_safe()),
        AnyResource::new(pool(&bench, false).aligned(512).expect("a right alignment")),
        AnyResource::new(
            pool(&bench, false)
                .guard(alluvion::adaptor::GuardConfig::default())
                .expect("a right configuration"),
        ),
        AnyResource::new(pool(&bench, false).budget(crossed)),
    ];
    let layout = layout_of(1000);
    for (resource, is_fast) in fast.iter().map(|one| (one, true)).chain(slow.iter().map(|one| (one, false))) {
        warm(resource, 1000, &stream);
        let at_once = resource.allocate_at_once(layout, stream.as_ref());
        assert_eq!(at_once.is_some(), is_fast, "{resource:?}");
        if let Some(block) = at_once {
            // SAFETY: the block came from this resource with this layout, and nothing uses it.
            assert!(unsafe { resource.deallocate_at_once(block, layout, stream.as_ref()) }, "{resource:?}");
        }
    }
    bench.check();
}
