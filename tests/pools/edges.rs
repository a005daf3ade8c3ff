//! Suballocators at their edges: streams that ended badly, upstreams that take long, two frees at once, sizes at the limit.

#![expect(unsafe_code, reason = "frees by hand")]

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use alluvion::driver::{Call, CaptureMode};
use alluvion::source::{Callback, Cuda, Null};
use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig, Growth, Reuse};
use alluvion::testing::{Bench, Stall};
use alluvion::{Device, DevicePtr, Layout, PoolConfig, Resource, ResourceExt, Stream, StreamRef};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// Ends a stream so that nobody can ever say how far it came: it captures when it goes.
fn end_badly(bench: &Bench, stream: Stream) {
    let sim = bench.simulated().unwrap();
    sim.begin_capture(stream.device().ordinal(), stream.as_ref().raw(), CaptureMode::Relaxed).unwrap();
    drop(stream);
}

/// without such a stream.
#[test]
fn a_stream_that_ended_without_an_event_stops_nobody() {
    for reuse in [Reuse::Own, Reuse::Completed, Reuse::Wait] {
        let bench = Bench::sim();
        let (lost, busy, taker) = (bench.stream(), bench.stream(), bench.stream());
        let config = PoolConfig::default().maximum(9 * MIB).growth(Growth::Exact).reuse(reuse).checked(true);
        let pool = Cuda::new(&bench.device()).pool(config).unwrap();
        let block = Held::of(&pool, 4 * MIB, lost.as_ref());
        let pending = Held::of(&pool, 5 * MIB, busy.as_ref());
        block.fill(1, lost.as_ref());
        block.free(lost.as_ref());
        end_badly(&bench, lost);
        pending.fill(2, busy.as_ref());
        pending.free(busy.as_ref());
        let served = Held::of(&pool, 4 * MIB, taker.as_ref());
        served.fill(3, taker.as_ref());
        let error = pool.allocate(layout_of(4 * MIB), taker.as_ref()).unwrap_err();
        assert!(error.is_out_of_memory(), "{reuse:?}: {error}");
        let error = pool.allocate_sync(layout_of(4 * MIB)).unwrap_err();
        assert!(error.is_out_of_memory(), "{reuse:?}: {error}");
        served.check(3, taker.as_ref());
        served.free(taker.as_ref());
        pool.merge(busy.as_ref()).unwrap();
        Held::of(&pool, 5 * MIB, busy.as_ref()).free(busy.as_ref());
        // Once the device has been waited for, all is over.
        bench.device().synchronize().unwrap();
        Held::of(&pool, 9 * MIB, taker.as_ref()).free(taker.as_ref());
        drop(pool);
        bench.check();
    }
}

/// A pool that has blocks behind such a stream keeps their segments for ever at its end, and gives the others back: to wait for
/// the device would break the captures of others.
#[test]
fn a_pool_leaks_what_lies_behind_a_stream_without_an_event_and_no_more() {
    let bench = Bench::sim();
    drop(Cuda::new(&bench.device()).pool(PoolConfig::default().initial(MIB)).unwrap());
    let before = bench.simulated().unwrap().live().bytes;
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().growth(Growth::Exact)).unwrap();
    let (lost, other) = (bench.stream(), bench.stream());
    let block = Held::of(&pool, 4 * MIB, lost.as_ref());
    let behind_another = Held::of(&pool, 8 * MIB, other.as_ref());
    block.fill(1, lost.as_ref());
    block.free(lost.as_ref());
    behind_another.fill(2, other.as_ref());
    behind_another.free(other.as_ref());
    end_badly(&bench, lost);
    assert_eq!(bench.simulated().unwrap().live().bytes - before, 12 << 20);
    let calls = bench.simulated().unwrap().calls();
    drop(pool);
    let calls = bench.simulated().unwrap().calls() - calls;
    assert_eq!(calls[Call::ContextSynchronize], 0, "{calls:?}");
    assert_eq!(bench.simulated().unwrap().live().bytes - before, 4 << 20);
    bench.check_hazards();
}

/// Cuda, but a call takes longer than anybody would spin.
fn slow(device: &Device) -> impl Resource + Send + Sync + use<> {
    let cuda = Arc::new(Cuda::new(device));
    let to_free = Arc::clone(&cuda);
    let allocate = move |layout: Layout, stream: StreamRef<'_>| {
        thread::sleep(Duration::from_millis(500));
        Ok(cuda.allocate(layout, stream)?.address())
    };
    let deallocate = move |block: DevicePtr, layout: Layout, stream: StreamRef<'_>| {
        // SAFETY: the block came from `allocate` above, with this layout, and is used no more: what `Callback` promises.
        unsafe { to_free.deallocate(block, layout, stream) }
    };
    // SAFETY: the closures hand out the blocks of a source, and give them back to it.
    unsafe { Callback::new(device, allocate, deallocate) }
}

/// Three threads that ask for a block at once.
fn ask_at_once(bench: &Bench, pool: &(impl Resource + Sync)) {
    let (start, streams) = (Barrier::new(3), [bench.stream(), bench.stream(), bench.stream()]);
    thread::scope(|scope| {
        for stream in &streams {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                Held::of(pool, MIB, stream.as_ref()).free(stream.as_ref());
            });
        }
    });
}

/// Who waits for another one's growth gets a part of it, however long it takes.
#[test]
fn growth_that_takes_long_is_waited_for() {
    let bench = Bench::sim();
    let config = || PoolConfig::default().maximum(4 * MIB).growth(Growth::Step(4 * MIB));
    let pool = slow(&bench.device()).pool(config()).unwrap();
    ask_at_once(&bench, &pool);
    assert_eq!(pool.status().upstream_calls, 1);
}

/// So does who asks on behalf of a pool that stands over it.
#[test]
fn growth_below_a_pool_is_waited_for() {
    let bench = Bench::sim();
    let below = PoolConfig::default().maximum(4 * MIB).growth(Growth::Step(4 * MIB));
    let pool =
        slow(&bench.device()).pool(below).unwrap().pool(PoolConfig::default().growth(Growth::Exact)).unwrap();
    ask_at_once(&bench, &pool);
    assert_eq!(pool.upstream().status().upstream_calls, 1);
}

/// Of two threads that free one block at the same time, one does: with a ledger, and without.
#[test]
fn one_of_two_frees_at_once_is_refused() {
    let bench = Bench::sim();
    for checked in [true, false] {
        let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().checked(checked)).unwrap();
        let streams = [bench.stream(), bench.stream()];
        for round in 0..2_000 {
            let (block, layout) = Held::of(&pool, 1000, streams[0].as_ref()).into_parts();
            let start = Barrier::new(2);
            let freed = thread::scope(|scope| {
                let threads = streams.each_ref().map(|stream| {
                    let (pool, start) = (&pool, &start);
                    scope.spawn(move || {
                        start.wait();
                        // SAFETY: nothing uses the block; that it may be free by then is what is tested.
                        unsafe { pool.try_deallocate(block, layout, stream.as_ref()) }.is_ok()
                    })
                });
                threads.map(|thread| thread.join().unwrap()).iter().filter(|freed| **freed).count()
            });
            assert_eq!(freed, 1, "round {round}, checked: {checked}");
        }
    }
}

/// Blocks so long that twice their length is more than a number of units can say.
#[test]
fn blocks_of_half_a_tebibyte() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let config = FixedSizeConfig::default().block(1 << 39).blocks(1).checked(true);
    let fixed = FixedSize::new(Null::new(&bench.device()), config).unwrap();
    let first = Held::of(&fixed, 1 << 39, stream.as_ref());
    let second = Held::of(&fixed, 1, stream.as_ref());
    assert!(!first.overlaps(&second));
    assert_eq!((fixed.status().live_bytes, fixed.status().live_blocks), (1 << 40, 2));
    first.free(stream.as_ref());
    second.free(stream.as_ref());
}

/// A stream that only merges, or only asks, is forgotten once it is gone.
#[test]
fn streams_that_only_look_leave_nothing_on_the_heap() {
    let bench = Bench::sim();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().initial(MIB)).unwrap();
    let look = || {
        let stream = bench.stream();
        pool.merge(stream.as_ref()).unwrap();
        assert!(pool.largest_bytes(stream.as_ref()) > 0);
        stream.synchronize().unwrap();
    };
    (0..20).for_each(|_| look());
    let before = pool.status().metadata_bytes;
    (0..500).for_each(|_| look());
    assert_eq!(pool.status().metadata_bytes, before);
}

/// While nothing is live a request for the maximum succeeds, whatever its alignment, if the upstream's memory allows it.
#[test]
fn the_maximum_is_served_aligned() {
    for sync in [false, true] {
        let bench = Bench::sim();
        let stream = bench.stream();
        let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().maximum(4 * MIB)).unwrap();
        let layout = Layout::new(4 * MIB, 2 * MIB).unwrap();
        let block = if sync {
            Held::allocate_sync(&pool, layout)
        } else {
            Held::allocate(&pool, layout, stream.as_ref())
        };
        let block = block.unwrap();
        assert!(block.pointer.is_aligned_to(2 * MIB));
        assert!(pool.allocate(layout, stream.as_ref()).unwrap_err().is_out_of_memory());
        block.free_sync();
        bench.check();
    }
}

/// What a stream of an arena has not claimed is there for others, whatever becomes of that stream.
#[test]
fn an_arena_keeps_streams_apart() {
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let (first, second) = (bench.stream(), bench.stream());
    let arena = Arena::new(Cuda::new(&bench.device()), ArenaConfig::default().bytes(16 * MIB)).unwrap();
    for bytes in [1000, 100_000, 1000] {
        Held::of(&arena, bytes, first.as_ref()).free(first.as_ref());
    }
    let raw = first.as_ref().raw();
    sim.begin_capture(0, raw, CaptureMode::Relaxed).unwrap();
    let block = Held::of(&arena, 8 * MIB, second.as_ref());
    sim.end_capture(0, raw).unwrap();
    assert_eq!(arena.status().waits, 0);
    block.free(second.as_ref());
}

/// A tile is all that can be had of tiles, and nothing where there is not one left.
#[test]
fn the_largest_block_of_one_size_is_of_that_size() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let cuda = Cuda::new(&bench.device());
    let before = Held::of(&cuda, 1, stream.as_ref());
    let config = FixedSizeConfig::default().block(64 << 10).blocks(4);
    let tiles = FixedSize::new(&cuda, config).unwrap();
    assert_eq!(tiles.largest_bytes(stream.as_ref()), 64 << 10);
    // Behind that block the four begin at no multiple of their size. Three that do leave a piece at either end.
    let held = [(); 3].map(|()| Held::allocate_sync(&tiles, Layout::new(1, 64 << 10).unwrap()).unwrap());
    assert_eq!((tiles.status().free_bytes, tiles.status().reserved_bytes), (64 << 10, 256 << 10));
    assert_eq!(tiles.largest_bytes(stream.as_ref()), 0);
    held.into_iter().for_each(Held::free_sync);
    drop(tiles);
    before.free_sync();
}

/// Bins share what they may keep.
#[test]
fn bins_keep_no_more_than_they_may() {
    let bench = Bench::sim();
    let bins = Binning::over(Cuda::new(&bench.device())).blocks(256).range(11..=13).build().unwrap();
    let free = || bench.device().memory_info().unwrap().free_bytes;
    let before = free();
    assert_eq!(bins.trim(7 * MIB / 2).unwrap(), 0);
    assert_eq!((bins.trim(2 * MIB).unwrap(), free()), (3 * MIB / 2, before + 3 * MIB / 2));
    assert_eq!((bins.trim(0).unwrap(), free()), (2 * MIB, before + 7 * MIB / 2));
}

/// What comes back while a thread waits for a stream is found when it wakes up, in whatever cache it lies.
#[test]
fn what_is_freed_during_a_wait_is_found() {
    let bench = Bench::sim();
    let (busy, other, taker) = (bench.stream(), bench.stream(), bench.stream());
    let pool =
        Cuda::new(&bench.device()).pool(PoolConfig::default().initial(8 * MIB).maximum(8 * MIB)).unwrap();
    let pending = Held::of(&pool, 4 * MIB, busy.as_ref());
    let live = Held::of(&pool, 4 * MIB, other.as_ref());
    let stall = Stall::on(busy.as_ref());
    pending.free(busy.as_ref());
    let sim = bench.simulated().unwrap();
    let before = sim.calls();
    thread::scope(|scope| {
        let taken =
            scope.spawn(|| Held::allocate(&pool, layout_of(8 * MIB), taker.as_ref()).map(Held::into_parts));
        while (sim.calls() - before.clone())[Call::EventSynchronize] == 0 {
            thread::yield_now();
        }
        live.free(other.as_ref());
        drop(stall);
        let (block, layout) = taken.join().unwrap().unwrap();
        Held::adopt(&pool, block, layout).free(taker.as_ref());
    });
}

/// Three threads, three blocks, and each thread has one at a time: there is always one for who asks, wherever it lies and
/// whoever has been looking for it at the same moment.
#[test]
fn as_many_blocks_as_threads_are_enough() {
    const BLOCK: usize = 3 * MIB;
    let use_up = |pool: &(dyn Resource + Sync), bench: &Bench| {
        let streams: [_; 6] = std::array::from_fn(|_| bench.stream());
        thread::scope(|scope| {
            for thread in 0..3 {
                let streams = &streams;
                scope.spawn(move || {
                    for round in 0..3_000 {
                        let stream = streams[(round * (5 + 2 * thread) + round / 7) % 6].as_ref();
                        if round % 8 == thread {
                            Held::allocate_sync(&pool, layout_of(BLOCK)).unwrap().free_sync();
                        } else {
                            Held::of(&pool, BLOCK, stream).free(stream);
                        }
                    }
                });
            }
        });
    };
    for reuse in [Reuse::Own, Reuse::Completed, Reuse::Wait] {
        let bench = Bench::sim();
        let config = PoolConfig::default().maximum(3 * BLOCK).growth(Growth::Exact).reuse(reuse);
        use_up(&Cuda::new(&bench.device()).pool(config).unwrap(), &bench);
        let config = FixedSizeConfig::default().block(BLOCK).blocks(1).maximum(3 * BLOCK);
        use_up(&Cuda::new(&bench.device()).fixed_size(config).unwrap(), &bench);
    }
}

/// Two segments that are too short for a request make room for one that is as long as both: the pool does not get larger.
#[test]
fn segments_that_are_too_short_go_back_before_a_pool_grows() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap();
    let both = [0, 1].map(|_| Held::of(&pool, 4 * MIB, stream.as_ref()));
    assert_eq!((pool.pool_size(), pool.status().upstream_calls), (8 * MIB, 2));
    both.into_iter().for_each(|block| block.free(stream.as_ref()));
    stream.synchronize().unwrap();
    let longer = Held::of(&pool, 6 * MIB, stream.as_ref());
    let status = pool.status();
    assert_eq!((status.reserved_bytes, status.upstream_calls), (8 * MIB, 5), "{status:?}");
    assert_eq!((status.peak_reserved_bytes, pool.snapshot().segments.len()), (8 * MIB, 1));
    longer.free(stream.as_ref());
}
