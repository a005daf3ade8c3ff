//! What the operations of a pool cost, counted: driver calls, allocations of the heap, trips to the shared core.
//!
//! Counts do not depend on the machine, nor on how the tests are built: they hold in release, too.

use alluvion::source::{Cuda, Null};
use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig, Growth, Reuse, Status};
use alluvion::tag::with_tag;
use alluvion::testing::Bench;
use alluvion::{AnyResource, Layout, Pool, PoolConfig, Resource, ResourceExt};

use crate::heap::heap_of;
use crate::raw_block::Held;

const MIB: usize = 1 << 20;

#[test]
fn the_heap_is_counted() {
    let (calls, bytes) = heap_of(|| drop(std::hint::black_box(vec![0_u8; 1000])));
    assert_eq!((calls, bytes), (2, 0));
    assert!(heap_of(|| std::mem::forget(std::hint::black_box(vec![0_u8; 1000]))).1 == 1000);
}

/// In release as it is used there; and with the ledger of live blocks, which may cost something, but no driver call.
fn configs() -> [PoolConfig; 3] {
    [
        PoolConfig::default().checked(false),
        PoolConfig::default().checked(false).reuse(Reuse::Own).growth(Growth::Exact).maximum(48 * MIB),
        PoolConfig::default().checked(true),
    ]
}

/// A simulated machine that asks for no blocks, as hardware does not: to tell it of them costs the heap.
fn unwatched() -> Bench {
    Bench::sim_with(Bench::config().watch_blocks(false))
}

/// Sizes up to 1 MiB are in the classes of the caches, larger ones are kept by their size.
const SIZES: [usize; 12] = [1, 256, 257, 1000, 4096, 5000, 65_536, 100_000, MIB - 1, MIB, MIB + 1, 5 * MIB];

/// An allocation of what the stream has freed just before: no driver call, no heap, no shared lock.
#[test]
fn the_fast_path_costs_nothing() {
    for (number, config) in configs().into_iter().enumerate() {
        let bench = unwatched();
        let (sim, stream) = (bench.simulated().unwrap(), bench.stream());
        let pool = Cuda::new(&bench.device()).pool(config).unwrap();
        for bytes in SIZES {
            // Once to bring it into the cache, and some more until whatever grows has grown.
            for _ in 0..4 {
                Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref());
            }
            let (calls, status) = (sim.calls(), pool.status());
            let heap = heap_of(|| {
                for _ in 0..100 {
                    Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref());
                }
            });
            let (made, after) = (sim.calls() - calls, pool.status());
            assert_eq!(made.total(), 0, "{bytes} bytes, configuration {number}: {made:?}");
            assert_eq!(heap, (0, 0), "{bytes} bytes, configuration {number}: calls of the heap, bytes kept");
            assert_eq!(after.hits - status.hits, 100, "{bytes} bytes, configuration {number}: {after:?}");
            assert_eq!(after.misses, status.misses, "{bytes} bytes, configuration {number}: {after:?}");
            assert_eq!(quiet(after), quiet(status), "{bytes} bytes, configuration {number}");
        }
    }
}

/// The others have the same fast path.
#[test]
fn the_fast_path_of_the_others_costs_nothing() {
    let bench = unwatched();
    let (sim, device, stream) = (bench.simulated().unwrap(), bench.device(), bench.stream());
    let arena = ArenaConfig::default().bytes(8 * MIB).checked(false);
    let fixed = FixedSizeConfig::default().block(65_536).blocks(4).checked(false);
    let others: [AnyResource; 3] = [
        AnyResource::new(Arena::new(Cuda::new(&device), arena).unwrap()),
        AnyResource::new(FixedSize::new(Cuda::new(&device), fixed).unwrap()),
        AnyResource::new(
            Binning::over(Cuda::new(&device)).blocks(4).checked(false).range(8..=17).build().unwrap(),
        ),
    ];
    for other in others {
        for bytes in [1, 1000, 4096, 65_000] {
            (0..4).for_each(|_| Held::of(&other, bytes, stream.as_ref()).free(stream.as_ref()));
            let calls = sim.calls();
            let heap = heap_of(|| {
                for _ in 0..100 {
                    Held::of(&other, bytes, stream.as_ref()).free(stream.as_ref());
                }
            });
            assert_eq!((sim.calls() - calls).total(), 0, "{bytes} bytes of {other:?}");
            assert_eq!(heap, (0, 0), "{bytes} bytes of {other:?}: calls of the heap, bytes kept");
        }
    }
}

/// A layer that counts adds neither: it makes its place on a thread's first call, and stays there. Nor does a tag, once it has
/// been used.
#[test]
fn counting_costs_no_heap() {
    let bench = unwatched();
    let (device, stream) = (bench.device(), bench.stream());
    let stats = Cuda::new(&device).pool(PoolConfig::default().checked(false)).unwrap().stats();
    let pairs = |times: usize| {
        for bytes in (0..times).map(|at| SIZES[at % SIZES.len()]) {
            Held::of(&stats, bytes, stream.as_ref()).free(stream.as_ref());
        }
    };
    for tag in [false, true] {
        let body = || if tag { with_tag("tagged", || pairs(120)) } else { pairs(120) };
        body();
        assert_eq!(heap_of(body), (0, 0), "calls of the heap, bytes kept");
    }
    // Others may begin and end a scope beside it.
    let heap = heap_of(|| {
        std::thread::scope(|scope| {
            let others =
                scope.spawn(|| (0..100).for_each(|_| assert_eq!(stats.book().measure(|| ()).1.failures, 0)));
            assert_eq!(heap_of(|| pairs(1000)), (0, 0), "on this thread");
            others.join().unwrap();
        });
    });
    assert!(heap.0 > 0, "the other thread was started here");
}

/// What no hit changes.
fn quiet(status: Status) -> [u64; 6] {
    let Status { steals, waits, events_recorded, upstream_calls, live_bytes, reserved_bytes, .. } = status;
    [steals, waits, events_recorded, upstream_calls, live_bytes as u64, reserved_bytes as u64]
}

/// Several blocks of a class are out at a time, and come back in another order.
#[test]
fn the_fast_path_is_as_deep_as_a_stack() {
    let bench = unwatched();
    let (sim, stream) = (bench.simulated().unwrap(), bench.stream());
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().checked(false)).unwrap();
    let mut out = Vec::with_capacity(8);
    for round in 0..3 {
        let (calls, status) = (sim.calls(), pool.status());
        let heap = heap_of(|| {
            out.extend((0..8).map(|_| Held::of(&pool, 3000, stream.as_ref())));
            out.rotate_left(3);
            out.drain(..).for_each(|block| block.free(stream.as_ref()));
        });
        if round == 2 {
            assert_eq!((sim.calls() - calls).total(), 0);
            assert_eq!(heap, (0, 0));
            assert_eq!(pool.status().hits - status.hits, 8);
        }
    }
}

/// As the pool of a whole program: 10,000 holes, and blocks around them that stay.
#[test]
fn holes_cost_nothing() {
    let sim = Bench::sim();
    let stream = sim.stream();
    let pool = Null::new(&sim.device()).pool(PoolConfig::default().checked(false)).unwrap();
    let (mut kept, mut freed) = (Vec::new(), Vec::new());
    for index in 0..20_000 {
        let block = Held::of(&pool, 256 + 256 * (index % 7), stream.as_ref());
        if index % 2 == 0 { kept.push(block) } else { freed.push(block) }
    }
    freed.into_iter().for_each(|block| block.free(stream.as_ref()));
    for bytes in SIZES {
        for _ in 0..4 {
            Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref());
        }
        let before = pool.status();
        let heap = heap_of(|| Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref()));
        assert_eq!(heap, (0, 0), "{bytes} bytes");
        assert_eq!(
            (pool.status().hits, pool.status().misses),
            (before.hits + 1, before.misses),
            "{bytes} bytes"
        );
    }
    kept.into_iter().for_each(|block| block.free(stream.as_ref()));
}

/// After a request for 300 MiB, blocks of other sizes are found in the cache again after a bounded number of calls.
#[test]
fn one_large_request_is_forgotten() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool =
        Null::new(&bench.device()).pool(PoolConfig::default().checked(false).initial(1024 * MIB)).unwrap();
    let pairs = |times: usize| {
        let before = pool.status().misses;
        for index in 0..times {
            let bytes = [100 << 10, 200 << 10, 400 << 10, 900 << 10][index % 4];
            Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref());
        }
        pool.status().misses - before
    };
    pairs(8);
    assert_eq!(pairs(1000), 0);
    for _ in 0..3 {
        Held::of(&pool, 300 * MIB, stream.as_ref()).free(stream.as_ref());
        pairs(1000);
        assert_eq!(pairs(1000), 0, "the misses of the second thousand");
    }
}

/// Aligned blocks come and go as others do, and leave what they skipped to others.
#[test]
fn alignment_is_honoured_and_wastes_nothing() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool =
        Cuda::new(&bench.device()).pool(PoolConfig::default().initial(16 * MIB).maximum(16 * MIB)).unwrap();
    assert!(pool.max_align() >= 2 * MIB);
    for shift in 8..=21 {
        let align = 1 << shift;
        let layout = Layout::new(1000, align).unwrap();
        let blocks: Vec<_> =
            (0..4).map(|_| Held::allocate(&pool, layout, stream.as_ref()).unwrap()).collect();
        assert!(blocks.iter().all(|block| block.pointer.is_aligned_to(align)), "{align}");
        let live = pool.status().live_bytes;
        assert!(live <= 4 * 1280, "{live} bytes for four blocks of 1000, aligned to {align}");
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    }
    Held::of(&pool, 16 * MIB, stream.as_ref()).free(stream.as_ref());
}

/// Streams come and go, and a pool keeps nothing for those that are gone (rmm 2361).
#[test]
fn ended_streams_leave_nothing_on_the_heap() {
    let bench = Bench::sim();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().maximum(4 * MIB)).unwrap();
    let use_streams = |count: usize| {
        for _ in 0..count {
            let stream = bench.stream();
            for bytes in [300, 3000, 2 * MIB] {
                Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref());
            }
        }
    };
    use_streams(200);
    let (_, bytes) = heap_of(|| use_streams(2000));
    assert!(bytes < 64 * 1024, "2000 streams have left {bytes} bytes on the heap");
    let status = pool.status();
    assert_eq!((status.live_blocks, status.reserved_bytes <= 4 * MIB), (0, true), "{status:?}");
}

/// Nor for threads that are gone, each with a default stream of its own.
#[test]
fn ended_threads_leave_nothing_in_the_books() {
    let bench = Bench::sim();
    let device = bench.device();
    let pool = Cuda::new(&device).pool(PoolConfig::default().maximum(4 * MIB)).unwrap();
    let use_threads = |count: usize| {
        for _ in 0..count {
            let one = || {
                let stream = device.per_thread_stream().unwrap();
                for bytes in [300, 3000, 2 * MIB] {
                    Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref());
                }
            };
            std::thread::scope(|scope| scope.spawn(one).join().unwrap());
        }
    };
    use_threads(50);
    let before = pool.status();
    use_threads(500);
    let after = pool.status();
    let grown = after.metadata_bytes.saturating_sub(before.metadata_bytes);
    assert!(grown < 64 * 1024, "500 threads have left {grown} bytes in the books");
    assert_eq!((after.live_blocks, after.reserved_bytes <= 4 * MIB), (0, true), "{after:?}");
}

/// Nor for those that only asked, or had it merge.
#[test]
fn ended_streams_that_took_nothing_leave_nothing_on_the_heap() {
    let bench = Bench::sim();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().maximum(4 * MIB)).unwrap();
    let resident = bench.stream();
    let ask_on_streams = |count: usize| {
        for _ in 0..count {
            Held::of(&pool, MIB, resident.as_ref()).free(resident.as_ref());
            let stream = bench.stream();
            assert!(pool.largest_bytes(stream.as_ref()) <= 4 * MIB);
            pool.merge(stream.as_ref()).unwrap();
        }
    };
    ask_on_streams(200);
    let (_, bytes) = heap_of(|| ask_on_streams(2000));
    assert!(bytes < 64 * 1024, "2000 streams have left {bytes} bytes on the heap");
}

/// A pool is on a list for debuggers: to be entered there and to leave costs nothing that grows with the pools that there are.
#[test]
fn a_pool_costs_the_same_beside_ten_thousand_others() {
    let bench = Bench::sim();
    let device = bench.device();
    let make = || Null::new(&device).pool(PoolConfig::default()).unwrap();
    let made_and_dropped = || {
        // Once before, because the list may grow.
        drop(make());
        heap_of(|| drop(make()))
    };
    let alone = made_and_dropped();
    let others: Vec<_> = (0..10_000).map(|_| make()).collect();
    let among = made_and_dropped();
    // Other tests have pools, too: for one of theirs the list may grow here.
    assert!(among.0 <= alone.0 + 4, "{among:?} calls and bytes, and {alone:?} alone");
    drop(others);
}

/// The books of a pool: at most 64 bytes for a block.
#[test]
fn a_block_costs_at_most_64_bytes_of_the_heap() {
    const BLOCKS: usize = 50_000;
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool: Pool<Null> = Null::new(&bench.device()).pool(PoolConfig::default().checked(false)).unwrap();
    let mut blocks = Vec::with_capacity(BLOCKS);
    let (_, bytes) = heap_of(|| {
        blocks.extend((0..BLOCKS).map(|index| Held::of(&pool, 256 * (1 + index % 5), stream.as_ref())));
    });
    // Tables that double are half empty at worst.
    assert!(bytes <= 2 * 64 * BLOCKS as i64, "{} bytes for a live block", bytes / BLOCKS as i64);
    blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
}

/// Whoever asks a limit whether there is room asks often: a refusal is one small box, made and dropped.
#[test]
fn a_refusal_by_a_limit_is_one_call_of_the_heap_each_way() {
    let bench = Bench::sim();
    let (sim, device, stream) = (bench.simulated().unwrap(), bench.device(), bench.stream());
    let jobs = alluvion::adaptor::Allowance::new("jobs", 1 << 20);
    let limiting = Null::new(&device).limiting(1 << 20);
    let budget = Null::new(&device).budget(jobs.child("join", 1 << 20));
    let layout = Layout::from_bytes(1 << 19).unwrap();
    for _ in 0..2 {
        limiting.allocate(layout, stream.as_ref()).unwrap();
        budget.allocate(layout, stream.as_ref()).unwrap();
    }
    let calls = sim.calls();
    for bytes in [1, 2 << 20] {
        let layout = Layout::from_bytes(bytes).unwrap();
        assert_eq!(heap_of(|| assert!(limiting.allocate(layout, stream.as_ref()).is_err())), (2, 0));
        assert_eq!(heap_of(|| assert!(budget.allocate(layout, stream.as_ref()).is_err())), (2, 0));
    }
    assert_eq!((sim.calls() - calls).total(), 0, "the driver is not asked how much there is");
}
