//! Upstreams that refuse, and one that lies: the error is typed, nothing is lost, and the suballocator works afterwards.

#![expect(unsafe_code, reason = "lies about alignment")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::source::{Callback, Cuda};
use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig, Growth};
use alluvion::testing::{Bench, Faulty, Op, Shadow, run_ops};
use alluvion::{
    DevicePtr, Error, ErrorKind, Layout, Pool, PoolConfig, Resource, ResourceExt, Sim, StreamRef,
};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// The upstream refuses each of its allocations once, every second, and all from some on: programs go on, and nothing is lost.
#[test]
fn an_upstream_that_fails() {
    let plans: [fn(Cuda, usize) -> Faulty<Cuda>; 3] =
        [Faulty::nth, |cuda, n| Faulty::every_nth(cuda, n + 1), Faulty::from_nth];
    for plan in plans {
        for n in 1..12 {
            for growth in [Growth::Spare, Growth::Doubling, Growth::Exact, Growth::Step(5 * MIB)] {
                let bench = Bench::sim_with(Bench::config().seed(n as u64));
                let pool = Shadow::new(plan(Cuda::new(&bench.device()), n));
                let pool =
                    Shadow::new(pool.pool(PoolConfig::default().growth(growth).checked(true)).unwrap());
                let ops: Vec<Op> =
                    Op::random(n as u64).take(200).map(|op| op.limited(300_000, pool.max_align())).collect();
                if let Err(violation) = run_ops(&pool, &ops) {
                    panic!("{pool:?}, {growth:?}: {violation}");
                }
                pool.assert_clean();
                bench.device().synchronize().unwrap();
                pool.trim(0).unwrap();
                let status = pool.upstream().status();
                assert_eq!((status.live_blocks, status.reserved_bytes), (0, 0), "{pool:?}: {status:?}");
                pool.upstream().upstream().assert_clean();
                bench.check();
            }
        }
    }
}

/// A refusal of the amount that the pool would like is no refusal of the amount that is needed.
#[test]
fn growth_is_halved_until_it_fits() {
    let sim = Sim::with_config(Bench::config().memory_bytes(16 * MIB));
    let (device, growth) = (sim.device(0), Growth::Step(64 * MIB));
    let stream = device.stream().unwrap();
    let pool = Cuda::new(&device).pool(PoolConfig::default().growth(growth)).unwrap();
    let first = Held::of(&pool, 3 * MIB, stream.as_ref());
    assert!((3 * MIB..=16 * MIB).contains(&pool.pool_size()), "{}", pool.pool_size());
    let calls = pool.status().upstream_calls;
    assert!(calls <= 8, "{calls} calls to halve 64 MiB to what is there");
    first.free(stream.as_ref());
    let error = pool.allocate(layout_of(17 * MIB), stream.as_ref()).unwrap_err();
    assert!(error.is_out_of_memory(), "{error}");
    Held::of(&pool, 16 * MIB, stream.as_ref()).free(stream.as_ref());
}

/// An upstream whose initial segment is refused makes no pool.
#[test]
fn no_pool_without_its_initial_size() {
    let bench = Bench::sim();
    let before = bench.footprint();
    for initial in [MIB, 65 * MIB] {
        let upstream = if initial == MIB {
            Faulty::from_nth(Cuda::new(&bench.device()), 1)
        } else {
            Faulty::nth(Cuda::new(&bench.device()), usize::MAX)
        };
        let error = upstream.pool(PoolConfig::default().initial(initial)).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
    }
    assert_eq!(bench.footprint(), before);
}

/// The upstream refuses in the middle of making a suballocator: what was taken goes back.
#[test]
fn what_cannot_be_made_leaves_nothing() {
    let bench = Bench::sim();
    // The machine makes a stream of its own first.
    drop(Cuda::new(&bench.device()).pool(PoolConfig::default().initial(256)).unwrap());
    let before = bench.footprint();
    let faulty = |n| Faulty::nth(Cuda::new(&bench.device()), n);
    let arena = Arena::new(faulty(1), ArenaConfig::default().bytes(MIB));
    assert!(arena.expect_err("its memory is refused").is_out_of_memory());
    let fixed = FixedSize::new(faulty(1), FixedSizeConfig::default().block(4096));
    assert!(fixed.expect_err("its first blocks are refused").is_out_of_memory());
    for n in 1..=4 {
        let bins = Binning::over(faulty(n)).blocks(4).range(9..=12).build();
        assert!(bins.expect_err("a bin of four is refused").is_out_of_memory(), "{n}");
    }
    bench.device().synchronize().unwrap();
    assert_eq!(bench.footprint(), before);
}

/// Hands out what its upstream gave, some bytes in.
struct Skewed<U> {
    upstream: U,
    skew: u64,
    out: Arc<AtomicUsize>,
}

// SAFETY: it does not keep the contract: its blocks are not aligned, and reach beyond what its upstream gave. No test touches
// them. It gives its upstream back what that gave.
unsafe impl<U: Resource> Resource for Skewed<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        let block = self.upstream.allocate(layout, stream)?;
        self.out.fetch_add(1, Ordering::Relaxed);
        Ok(DevicePtr::new(block.address() + self.skew).expect("it is not null"))
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.out.fetch_sub(1, Ordering::Relaxed);
        let block = DevicePtr::new(block.address() - self.skew).expect("it is not null");
        // SAFETY: the caller's promises; this is the block that the upstream gave.
        unsafe { self.upstream.deallocate(block, layout, stream) };
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Skewed({})", self.skew)
    }

    alluvion::forward_resource!(upstream, except allocate, deallocate, fmt_layer);
}

/// A segment at an address that is no multiple of 256 is given back, and the error is typed.
#[test]
fn an_upstream_that_lies_about_alignment() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let before = bench.footprint();
    for skew in [1, 16, 128, 255] {
        let out = Arc::new(AtomicUsize::new(0));
        let skewed = || Skewed { upstream: Cuda::new(&device), skew, out: Arc::clone(&out) };
        assert_typed(&skewed().pool(PoolConfig::default().initial(MIB)).expect_err("no such pool is made"));
        let pool = skewed().pool(PoolConfig::default()).unwrap();
        for _ in 0..3 {
            assert_typed(&pool.allocate(layout_of(1000), stream.as_ref()).unwrap_err());
            assert_typed(&pool.allocate_sync(layout_of(2 * MIB)).unwrap_err());
            assert_eq!(out.load(Ordering::Relaxed), 0, "a block of {skew} bytes beside is kept");
        }
        assert_eq!(pool.pool_size(), 0);
    }
    // As above, by closures, which `Callback` checks.
    let cuda = Arc::new(Cuda::new(&device));
    let (giver, taker) = (Arc::clone(&cuda), cuda);
    let give = move |layout: Layout, stream: StreamRef<'_>| Ok(giver.allocate(layout, stream)?.address() + 8);
    let take = move |block: DevicePtr, layout: Layout, stream: StreamRef<'_>| {
        let block = DevicePtr::new(block.address() - 8).expect("it is not null");
        // SAFETY: this is the block that `give` got, with its layout; nobody uses it.
        unsafe { taker.deallocate(block, layout, stream) };
    };
    // SAFETY: the closures do not keep their promise, and what they hand out is refused.
    let pool: Pool<_> = unsafe { Callback::new(&device, give, take) }.pool(PoolConfig::default()).unwrap();
    assert_typed(&pool.allocate(layout_of(1000), stream.as_ref()).unwrap_err());
    drop(pool);
    device.synchronize().unwrap();
    drop(stream);
    assert_eq!(bench.footprint(), before, "what was refused was not given back");
}

#[track_caller]
fn assert_typed(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::Unsupported), "{error}");
    assert!(error.unsupported_detail().is_some(), "it says what, why and what to do instead: {error}");
}
