//! When a pool has tried everything: what its handlers are told, how often they are asked, and what the error says.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use alluvion::error::{Cause, OutOfMemory};
use alluvion::relief::Relief;
use alluvion::source::Cuda;
use alluvion::suballoc::Growth;
use alluvion::testing::Bench;
use alluvion::{DevicePtr, Pool, PoolConfig, Resource, ResourceExt, Stream};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// A handler may be asked again only if something has changed: this often for a request is too often for any that lies.
const BOUND: u32 = 16;

/// Asks a pool for more than it has.
#[track_caller]
fn refused(pool: &Pool<Cuda>, bytes: usize, stream: &Stream) -> alluvion::Error {
    let error = pool.allocate(layout_of(bytes), stream.as_ref()).expect_err("there is no more");
    assert!(error.is_out_of_memory(), "{error}");
    assert_eq!(error.requested_bytes(), Some(bytes), "{error}");
    error
}

/// A pool of 8 MiB at most, and how often its handler was asked.
fn answering(
    bench: &Bench,
    answer: impl Fn(u32) -> Relief + Send + Sync + 'static,
) -> (Pool<Cuda>, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let config = PoolConfig::default()
        .maximum(8 * MIB)
        .on_out_of_memory(move |_| answer(count.fetch_add(1, Ordering::Relaxed) + 1));
    (Cuda::new(&bench.device()).pool(config).unwrap(), asked)
}

#[test]
fn no_handler_is_asked_while_there_is_memory() {
    let bench = Bench::sim();
    let (first, second) = (bench.stream(), bench.stream());
    let (pool, asked) = answering(&bench, |_| Relief::None);
    for bytes in [1000, 3 * MIB, 8 * MIB, 5 * MIB, 8 * MIB] {
        let block = Held::of(&pool, bytes, first.as_ref());
        block.fill(1, first.as_ref());
        block.free(first.as_ref());
        Held::of(&pool, bytes, second.as_ref()).free(second.as_ref());
    }
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    bench.check();
}

#[test]
fn a_handler_that_has_nothing_is_asked_once() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let (pool, asked) = answering(&bench, |_| Relief::None);
    let full = Held::of(&pool, 8 * MIB, stream.as_ref());
    for request in 1..=3 {
        refused(&pool, 1000, &stream);
        assert_eq!(asked.load(Ordering::Relaxed), request, "once for each request");
    }
    full.free(stream.as_ref());
}

#[test]
fn a_handler_that_lies_is_asked_a_few_times() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let (pool, asked) = answering(&bench, |_| Relief::Freed);
    let full = Held::of(&pool, 8 * MIB, stream.as_ref());
    for _ in 0..3 {
        let before = asked.load(Ordering::Relaxed);
        refused(&pool, 1000, &stream);
        let now = asked.load(Ordering::Relaxed) - before;
        assert!((1..=BOUND).contains(&now), "asked {now} times");
    }
    assert!(pool.allocate_sync(layout_of(1000)).unwrap_err().is_out_of_memory());
    full.free(stream.as_ref());
}

/// They are asked in turn: the second only when the first has nothing.
#[test]
fn handlers_are_asked_in_turn() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let order = Arc::new(Mutex::new(Vec::new()));
    let handler = |name: char| {
        let order = Arc::clone(&order);
        move |_: &OutOfMemory| {
            order.lock().expect("no thread panics").push(name);
            Relief::None
        }
    };
    let config = PoolConfig::default()
        .maximum(MIB)
        .on_out_of_memory(handler('a'))
        .on_out_of_memory(handler('b'))
        .on_out_of_memory(handler('c'));
    let pool = Cuda::new(&bench.device()).pool(config).unwrap();
    let full = Held::of(&pool, MIB, stream.as_ref());
    refused(&pool, MIB, &stream);
    full.free(stream.as_ref());
    assert_eq!(*order.lock().expect("no thread panics"), ['a', 'b', 'c']);
}

#[test]
fn a_handler_that_panics_has_nothing() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let (pool, asked) = answering(&bench, |time| panic!("of a handler, on purpose, for the time no. {time}"));
    let full = Held::of(&pool, 8 * MIB, stream.as_ref());
    let error = refused(&pool, 1000, &stream);
    assert!(error.out_of_memory_report().is_some(), "{error}");
    assert!(pool.allocate_sync(layout_of(1000)).unwrap_err().is_out_of_memory());
    assert!((2..=2 * BOUND).contains(&asked.load(Ordering::Relaxed)));
    // The pool is whole, and no lock of it is poisoned or held.
    full.free(stream.as_ref());
    Held::of(&pool, 8 * MIB, stream.as_ref()).free(stream.as_ref());
    assert_eq!(pool.status().live_blocks, 0);
    bench.check();
}

/// What a handler does with the pool that asks it: anything. It asks for what the pool cannot serve, too, and is not asked
/// about that without end.
#[test]
fn a_handler_may_use_the_pool() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let known = Arc::new(OnceLock::<Weak<Pool<Cuda>>>::new());
    let (pool, deepest) = (Arc::clone(&known), Arc::new(AtomicU32::new(0)));
    let (depth, most) = (AtomicU32::new(0), Arc::clone(&deepest));
    let config = PoolConfig::default().maximum(8 * MIB).checked(true).on_out_of_memory(move |report| {
        let pool = pool.get().and_then(Weak::upgrade).expect("it is asked after it was told");
        let now = depth.fetch_add(1, Ordering::Relaxed) + 1;
        most.fetch_max(now, Ordering::Relaxed);
        if now < 100 {
            let stream = pool.device().stream().expect("a stream can be made");
            assert!(pool.allocate(layout_of(report.requested_bytes), stream.as_ref()).is_err());
            let small = Held::of(&*pool, 1000, stream.as_ref());
            assert!(pool.status().live_blocks >= 2 && !pool.snapshot().blocks.is_empty());
            small.free(stream.as_ref());
            pool.merge(stream.as_ref()).expect("nothing fails");
            pool.defragment().expect("nothing fails");
            pool.trim(0).expect("nothing fails");
        }
        depth.fetch_sub(1, Ordering::Relaxed);
        Relief::None
    });
    let pool = Arc::new(Cuda::new(&bench.device()).pool(config).unwrap());
    known.set(Arc::downgrade(&pool)).expect("it is told once");
    let most = Held::of(&*pool, 6 * MIB, stream.as_ref());
    refused(&pool, 4 * MIB, &stream);
    let deepest = deepest.load(Ordering::Relaxed);
    assert!((1..=BOUND).contains(&deepest), "handlers within handlers, {deepest} deep");
    most.free(stream.as_ref());
    Held::of(&*pool, 8 * MIB, stream.as_ref()).free(stream.as_ref());
    bench.check();
}

/// A handler that gives up half of what it has, each time: progress is a reason to go on.
#[test]
fn progress_is_a_reason_to_ask_again() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let hoard: Arc<Mutex<Vec<DevicePtr>>> = Arc::default();
    let known = Arc::new(OnceLock::<Weak<Pool<Cuda>>>::new());
    let reports: Arc<Mutex<Vec<OutOfMemory>>> = Arc::default();
    let (pool, home, told) = (Arc::clone(&known), stream.clone(), Arc::clone(&reports));
    let hoarded = Arc::clone(&hoard);
    let config = PoolConfig::default().initial(8 * MIB).maximum(8 * MIB).on_out_of_memory(move |report| {
        told.lock().expect("no thread panics").push(report.clone());
        let pool = pool.get().and_then(Weak::upgrade).expect("it is asked after it was told");
        let mut hoarded = hoarded.lock().expect("no thread panics");
        let keep = hoarded.len() / 2;
        let go = hoarded.split_off(keep);
        let relief = if go.is_empty() { Relief::None } else { Relief::Freed };
        go.into_iter().for_each(|block| Held::adopt(&*pool, block, layout_of(MIB)).free(home.as_ref()));
        relief
    });
    let pool = Arc::new(Cuda::new(&bench.device()).pool(config).unwrap());
    known.set(Arc::downgrade(&pool)).expect("it is told once");
    let mut blocks: Vec<_> = (0..8).map(|_| Held::of(&*pool, MIB, stream.as_ref()).into_parts().0).collect();
    blocks.sort();
    hoard.lock().expect("no thread panics").extend(blocks);

    let large = Held::of(&*pool, 7 * MIB, stream.as_ref());
    let told = reports.lock().expect("no thread panics");
    let live: Vec<usize> = told.iter().map(|report| report.live_bytes).collect();
    assert_eq!(live, [8 * MIB, 4 * MIB, 2 * MIB], "it was asked until it was enough");
    let attempts: Vec<u32> = told.iter().map(|report| report.attempt).collect();
    assert!(attempts[0] == 1 && attempts.is_sorted_by(|one, next| one < next), "{attempts:?}");
    assert!(told.iter().all(|report| report.requested_bytes == 7 * MIB));
    assert!(told.iter().all(|report| report.stream == Some(stream.id())));
    large.free(stream.as_ref());
    for block in hoard.lock().expect("no thread panics").drain(..) {
        Held::adopt(&*pool, block, layout_of(MIB)).free(stream.as_ref());
    }
    bench.check();
}

/// The report of the error that a pool without handlers gives.
#[track_caller]
fn report(pool: &Pool<Cuda>, bytes: usize, stream: &Stream) -> OutOfMemory {
    let error = refused(pool, bytes, stream);
    let report = error.out_of_memory_report().expect("a pool reports").clone();
    assert_eq!((report.requested_bytes, report.align), (bytes, 256));
    assert_eq!(report.stream, Some(stream.id()));
    assert_eq!(report.reserved_bytes, pool.pool_size());
    assert!(report.attempt >= 1);
    assert!(report.free_bytes + report.pending_bytes + report.live_bytes <= report.reserved_bytes);
    assert!(report.largest_bytes < bytes && report.largest_bytes <= report.free_bytes, "{report:?}");
    let words = error.to_string();
    assert!(words.contains(&report.to_string()), "the error says what it knows: {words}");
    report
}

#[test]
fn the_cause_is_the_limit() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().maximum(8 * MIB)).unwrap();
    let live = Held::of(&pool, 6 * MIB, stream.as_ref());
    let report = report(&pool, 3 * MIB, &stream);
    assert_eq!((report.cause, report.maximum_bytes), (Cause::Limit, Some(8 * MIB)), "{report:?}");
    assert_eq!(report.live_bytes, 6 * MIB, "{report:?}");
    assert_eq!(refused(&pool, 9 * MIB, &stream).limit(), Some(8 * MIB));
    live.free(stream.as_ref());
    bench.check();
}

#[test]
fn the_cause_is_fragmentation() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let config = PoolConfig::default().initial(8 * MIB).maximum(8 * MIB);
    let pool = Cuda::new(&bench.device()).pool(config).unwrap();
    let mut blocks: Vec<_> = (0..8).map(|_| Held::of(&pool, MIB, stream.as_ref())).collect();
    blocks.sort_by_key(|block| block.pointer);
    let (mut kept, mut index) = (Vec::new(), 0);
    for block in blocks {
        if index % 2 == 0 {
            kept.push(block);
        } else {
            block.free(stream.as_ref());
        }
        index += 1;
    }
    let report = report(&pool, 2 * MIB, &stream);
    assert_eq!(report.cause, Cause::Fragmentation, "{report:?}");
    assert_eq!((report.live_bytes, report.largest_bytes), (4 * MIB, MIB), "{report:?}");
    assert_eq!(report.free_bytes + report.pending_bytes, 4 * MIB, "{report:?}");
    kept.into_iter().for_each(|block| block.free(stream.as_ref()));
    Held::of(&pool, 8 * MIB, stream.as_ref()).free(stream.as_ref());
    bench.check();
}

#[test]
fn the_cause_is_a_full_device() {
    let bench = Bench::sim_with(Bench::config().memory_bytes(16 * MIB));
    let stream = bench.stream();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().growth(Growth::Exact)).unwrap();
    let live = Held::of(&pool, 14 * MIB, stream.as_ref());
    let full = report(&pool, 4 * MIB, &stream);
    assert_eq!((full.cause, full.maximum_bytes), (Cause::Full, None), "{full:?}");
    assert_eq!(full.live_bytes, 14 * MIB, "{full:?}");
    live.free(stream.as_ref());
    stream.synchronize().unwrap();
    pool.trim(0).unwrap();

    // Most of it is somebody else's.
    let others = Cuda::new(&bench.device());
    let theirs = Held::of(&others, 12 * MIB, stream.as_ref());
    let live = Held::of(&pool, MIB, stream.as_ref());
    let report = report(&pool, 8 * MIB, &stream);
    assert_eq!((report.cause, report.live_bytes), (Cause::Others, MIB), "{report:?}");
    live.free(stream.as_ref());
    theirs.free(stream.as_ref());
    Held::of(&pool, 16 * MIB, stream.as_ref()).free(stream.as_ref());
    bench.check();
}

#[test]
fn a_synchronous_call_names_no_stream() {
    let bench = Bench::sim();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().maximum(MIB)).unwrap();
    let error = pool.allocate_sync(layout_of(2 * MIB)).unwrap_err();
    let report = error.out_of_memory_report().expect("a pool reports");
    assert_eq!((report.stream, report.requested_bytes), (None, 2 * MIB));
}
