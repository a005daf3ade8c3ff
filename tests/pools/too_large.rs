//! A request that can never be served: nobody is asked, nothing is let go of, and nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use alluvion::driver::{Call, MemoryInfo};
use alluvion::error::{Cause, OutOfMemory};
use alluvion::relief::Relief;
use alluvion::source::{Callback, Cuda};
use alluvion::suballoc::{Arena, ArenaConfig, Status};
use alluvion::testing::Bench;
use alluvion::{Error, Pool, PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// A handler that counts how often it is asked, and says that it helps.
fn counting() -> (impl Fn(&OutOfMemory) -> Relief + Send + Sync + 'static, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let handler = move |_: &OutOfMemory| {
        count.fetch_add(1, Ordering::Relaxed);
        Relief::Freed
    };
    (handler, asked)
}

fn figures(status: Status) -> [u64; 6] {
    let Status { live_bytes, cached_bytes, free_bytes, reserved_bytes, hits, misses, .. } = status;
    let bytes = [live_bytes, cached_bytes, free_bytes, reserved_bytes].map(|bytes| bytes as u64);
    [bytes[0], bytes[1], bytes[2], bytes[3], hits, misses]
}

/// Refuses a request of so many bytes, of a stream and of the host, after a block lies in the cache of a stream: the driver is
/// called as often as `calls` say, for each of the two.
#[track_caller]
fn refuses_at_once<U: Resource>(
    bench: &Bench,
    pool: &Pool<U>,
    asked: &AtomicU32,
    bytes: usize,
    calls: &[(Call, u64)],
) {
    let (sim, stream) = (bench.simulated().expect("it is a simulator"), bench.stream());
    Held::of(pool, 100_000, stream.as_ref()).free(stream.as_ref());
    let before = figures(pool.status());
    assert!(before[1] >= 100_000, "a block is cached: {before:?}");
    for on_stream in [true, false] {
        let calls_before = sim.calls();
        let refused = if on_stream {
            pool.allocate(layout_of(bytes), stream.as_ref())
        } else {
            pool.allocate_sync(layout_of(bytes))
        };
        let made = sim.calls() - calls_before;
        let error = refused.expect_err("there is not so much");
        let report = error.out_of_memory_report().expect("a pool reports");
        assert_eq!((report.cause, report.requested_bytes), (Cause::TooLarge, bytes), "{error}");
        // What lets a call be made beside a capture is around each of them.
        let made: Vec<_> = made.iter().filter(|(call, _)| *call != Call::CaptureMode).collect();
        assert_eq!(made, calls, "{error}");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0, "a handler was asked");
    assert_eq!(figures(pool.status()), before, "nothing has moved");
}

#[test]
fn what_is_above_the_maximum_calls_nobody() {
    let bench = Bench::sim();
    let (handler, asked) = counting();
    let config = PoolConfig::default().maximum(8 * MIB).on_out_of_memory(handler);
    let pool = Cuda::new(&bench.device()).pool(config).unwrap();
    for bytes in [8 * MIB + 1, 100 * MIB, 1 << 39, 1 << 42, isize::MAX as usize - 255] {
        refuses_at_once(&bench, &pool, &asked, bytes, &[]);
    }
    // All of it is served.
    let stream = bench.stream();
    Held::of(&pool, 8 * MIB, stream.as_ref()).free(stream.as_ref());
    bench.check();
}

/// The driver is asked for that much and says no, because who hands memory out has the last word.
#[test]
fn what_is_more_than_the_device_has_leaves_the_caches_alone() {
    let bench = Bench::sim_with(Bench::config().memory_bytes(32 * MIB));
    let (handler, asked) = counting();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().on_out_of_memory(handler)).unwrap();
    let calls = [(Call::MemoryInfo, 3), (Call::AllocateDevice, 1)];
    let in_order = |calls: &[(Call, u64)]| {
        let mut calls = calls.to_vec();
        calls.sort_by_key(|(call, _)| Call::ALL.iter().position(|known| known == call));
        calls
    };
    for bytes in [32 * MIB + 1, 1 << 40] {
        let calls = if bytes < 1 << 40 { in_order(&calls) } else { Vec::new() };
        refuses_at_once(&bench, &pool, &asked, bytes, &calls);
    }
    let stream = bench.stream();
    Held::of(&pool, 31 * MIB, stream.as_ref()).free(stream.as_ref());
    bench.check();
}

#[test]
fn what_is_above_a_limit_below_the_pool_calls_no_driver_for_it() {
    let bench = Bench::sim();
    let (handler, asked) = counting();
    let limited = Cuda::new(&bench.device()).limiting(16 * MIB);
    let pool = limited.pool(PoolConfig::default().on_out_of_memory(handler)).unwrap();
    // What there is in all is asked, twice, and nothing is allocated.
    refuses_at_once(&bench, &pool, &asked, 16 * MIB + 1, &[(Call::MemoryInfo, 2)]);
    bench.check();
}

/// The default of a source of one's own is to tell of the device's memory, whatever memory its blocks are in: so a request that is
/// more than the device has is no lost cause, and the handlers are asked.
#[test]
fn a_source_that_tells_of_other_memory_has_the_last_word() {
    let bench = Bench::sim_with(Bench::config().memory_bytes(8 * MIB));
    let large = Bench::sim();
    let (source, freeing) = (Cuda::new(&large.device()), Cuda::new(&large.device()));
    let allocate = move |layout, _: alluvion::StreamRef<'_>| {
        let block = source.allocate_sync(layout).map_err(|_| Error::out_of_memory(0))?;
        Ok(block.address())
    };
    #[expect(unsafe_code, reason = "a source of one's own")]
    let deallocate = move |block, layout, _: alluvion::StreamRef<'_>| {
        // SAFETY: the block is of the source with this layout, as `Callback` promises, and no work uses it.
        unsafe { freeing.deallocate_sync(block, layout) };
    };
    // SAFETY: the closures hand out the blocks of a source, and give them back to it.
    #[expect(unsafe_code, reason = "a source of one's own")]
    let callback = unsafe { Callback::new(&bench.device(), allocate, deallocate) };
    let (handler, asked) = counting();
    let pool = callback.pool(PoolConfig::default().on_out_of_memory(handler)).unwrap();
    let MemoryInfo { total_bytes, .. } = pool.upstream().memory_info().unwrap();
    assert_eq!(total_bytes, 8 * MIB);
    let stream = bench.stream();
    let block = Held::of(&pool, 24 * MIB, stream.as_ref()).into_parts();
    let error = pool.allocate(layout_of(1 << 37), stream.as_ref()).expect_err("no device has as much");
    assert!(error.is_out_of_memory() && asked.load(Ordering::Relaxed) > 0, "{error}");
    Held::adopt(&pool, block.0, block.1).free(stream.as_ref());
}

/// The one who is told of every failure is told of these too.
#[test]
fn an_arena_tells_of_it_and_asks_nobody() {
    let bench = Bench::sim();
    let (handler, asked) = counting();
    let told = Arc::new(AtomicU32::new(0));
    let tell = Arc::clone(&told);
    let config =
        ArenaConfig::default().bytes(2 * MIB).on_out_of_memory(handler).dump_on_failure(move |report| {
            assert_eq!((report.refused_by, report.cause), ("Arena", Cause::TooLarge));
            tell.fetch_add(1, Ordering::Relaxed);
        });
    let arena = Arena::new(Cuda::new(&bench.device()), config).unwrap();
    assert!(arena.allocate_sync(layout_of(3 * MIB)).unwrap_err().is_out_of_memory());
    assert_eq!((told.load(Ordering::Relaxed), asked.load(Ordering::Relaxed)), (1, 0));
}
