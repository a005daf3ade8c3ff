//! Every call below a suballocator fails once, of the driver or of its upstream: nothing panics, nothing is lost, the error is
//! typed, and everything works afterwards.

#![expect(unsafe_code, reason = "frees what it allocated, and lies about alignment")]

mod every_suballocator;
mod held;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use alluvion::driver::Code;
use alluvion::source::{Callback, Cuda, CudaAsync, Managed, Pinned};
use alluvion::suballoc::{Growth, Reuse};
use alluvion::testing::{Bench, Faulty, Op, Shadow, Sweep, Swept, run_ops};
use alluvion::{
    Device, DeviceAccessible, DevicePtr, Error, ErrorKind, Layout, Pool, PoolConfig, Resource, ResourceId,
    Sim, StreamRef,
};
use held::{Held, layout_of};

const MIB: usize = 1 << 20;

/// What a program does with a suballocator: grow, hit a cache, steal, wait, merge, trim, and let go of streams first.
fn use_resource<R: DeviceAccessible>(
    sim: &Sim,
    make: impl Fn(&Device) -> Result<R, Error>,
) -> Result<(), Error> {
    let device = sim.device(0);
    // Has the machine make what it keeps: a stream of its own.
    drop(Cuda::new(&device).pool(PoolConfig::default().initial(256))?);
    let resource = make(&device)?;
    let outcome = use_made(&device, &resource);
    drop(resource);
    outcome.and(device.synchronize())
}

fn use_made<R: DeviceAccessible>(device: &Device, resource: &R) -> Result<(), Error> {
    let (first, second) = (device.stream()?, device.stream()?);
    let (small, large) = (layout_of(3000), layout_of(3 * MIB));
    // Grows, and then hits.
    for _ in 0..2 {
        let block = Held::allocate(resource, small, first.as_ref())?;
        let filled = block.touch(1, first.as_ref());
        block.free(first.as_ref());
        filled?;
    }
    // Behind work of the first stream, and of no use to it: the second takes it, or grows.
    for layout in [small, large, small, large] {
        let block = Held::allocate(resource, layout, first.as_ref())?;
        let filled = block.touch(2, first.as_ref());
        block.free(first.as_ref());
        filled?;
        let block = Held::allocate(resource, layout, second.as_ref())?;
        let filled = block.touch(3, second.as_ref());
        block.free(second.as_ref());
        filled?;
    }
    Held::allocate_sync(resource, small)?.free_sync();
    resource.trim(MIB)?;
    // As much as there may be, in one piece: what is kept has to go first.
    let whole = Held::allocate(resource, layout_of(7 * MIB), second.as_ref())?;
    let filled = whole.touch(4, second.as_ref());
    whole.free(second.as_ref());
    filled?;
    drop(first);
    let block = Held::allocate(resource, large, second.as_ref())?;
    block.free(second.as_ref());
    second.synchronize()?;
    resource.trim(0)?;
    resource.memory_info()?;
    Ok(())
}

#[track_caller]
fn assert_thorough(swept: Swept, calls: u64) {
    assert!(swept.calls >= calls, "the program hardly calls the driver: {swept}");
    assert!(swept.errors >= swept.runs / 8, "hardly a fault was noticed: {swept}");
}

fn config() -> PoolConfig {
    PoolConfig::default().maximum(8 * MIB).checked(true)
}

/// On one device, so that the calls are the pool's.
fn sweep() -> Sweep {
    Sweep::new().config(Bench::config().devices(1))
}

#[test]
fn pool_over_cuda() {
    assert_thorough(sweep().run(|sim| use_resource(sim, |device| Cuda::new(device).pool(config()))), 20);
}

#[test]
fn pool_over_cuda_async() {
    assert_thorough(
        sweep().run(|sim| use_resource(sim, |device| CudaAsync::new(device)?.pool(config()))),
        25,
    );
}

#[test]
fn pool_over_managed() {
    assert_thorough(sweep().run(|sim| use_resource(sim, |device| Managed::new(device)?.pool(config()))), 20);
}

#[test]
fn pool_over_pinned() {
    assert_thorough(sweep().run(|sim| use_resource(sim, |device| Pinned::new(device)?.pool(config()))), 20);
}

#[test]
fn pool_over_pool() {
    let make = |device: &Device| Cuda::new(device).pool(PoolConfig::default())?.pool(config());
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 20);
}

#[test]
fn pool_over_callback() {
    let make =
        |device: &Device| every_suballocator::callback_over(device, CudaAsync::new(device)?).pool(config());
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 25);
}

#[test]
fn pool_with_each_policy() {
    for reuse in [Reuse::Own, Reuse::Completed, Reuse::Wait] {
        for growth in [Growth::Exact, Growth::Doubling] {
            let config = || config().initial(MIB).reuse(reuse).growth(growth);
            sweep().run(|sim| use_resource(sim, |device| Cuda::new(device).pool(config())));
        }
    }
}

#[test]
fn other_codes() {
    for code in [Code::LAUNCH_FAILED, Code::UNKNOWN, Code::INVALID_HANDLE, Code::INVALID_VALUE] {
        sweep().codes(&[code]).run(|sim| use_resource(sim, |device| Cuda::new(device).pool(config())));
    }
}

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

    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn id(&self) -> ResourceId {
        self.upstream.id()
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Skewed({})", self.skew)
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&self.upstream)
    }
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
        assert_typed(&skewed().pool(PoolConfig::default().initial(MIB)).err().expect("no such pool is made"));
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

/// A context that is lost makes every allocation that needs the driver fail, with the error that lost it.
#[test]
fn a_lost_context_is_reported_as_such() {
    let bench = Bench::sim();
    let (sim, stream) = (bench.simulated().unwrap(), bench.stream());
    let pool = Cuda::new(&bench.device()).pool(config().growth(Growth::Exact)).unwrap();
    let block = Held::of(&pool, MIB, stream.as_ref());
    sim.poison(0, Code::ILLEGAL_ADDRESS);
    let error = pool.allocate(layout_of(6 * MIB), stream.as_ref()).unwrap_err();
    assert!(error.is_context_lost() && error.code() == Some(Code::ILLEGAL_ADDRESS), "{error}");
    block.free(stream.as_ref());
    assert!(pool.merge(stream.as_ref()).is_err() || pool.status().live_blocks == 0);
    drop((pool, stream));
}
