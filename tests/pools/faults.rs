//! Every driver call below a suballocator fails once: nothing panics, nothing is lost, and everything works afterwards.

use alluvion::driver::Code;
use alluvion::source::{Cuda, CudaAsync, Managed, Mapped, Pinned};
use alluvion::suballoc::{
    Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig, Growth, PageBudget, Reuse,
};
use alluvion::testing::{Bench, Sweep, Swept};
use alluvion::{Device, DeviceAccessible, Error, PoolConfig, Resource, ResourceExt, Sim};

use crate::every_source;
use crate::raw_block::{Held, layout_of};

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
    // Of bins of two blocks this takes the last, and the second stream has them grow: before there is anything large, which what
    // they grow by would lie behind.
    Held::allocate_sync(resource, small)?.free_sync();
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

/// The calls that fail are mapping calls for the most part; pages move for the second one.
#[test]
fn pool_over_mapped() {
    let make = |device: &Device| Mapped::new(device)?.pool(config());
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 25);
    let make = |device: &Device| Mapped::new(device)?.pool(config().budget(PageBudget::TimesPeak(1.0)));
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 25);
}

#[test]
fn pool_over_pool() {
    let make = |device: &Device| Cuda::new(device).pool(PoolConfig::default())?.pool(config());
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 20);
}

#[test]
fn pool_over_callback() {
    let make = |device: &Device| every_source::callback_over(device, CudaAsync::new(device)?).pool(config());
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 25);
}

#[test]
fn arena() {
    let make = |device: &Device| Arena::new(Cuda::new(device), ArenaConfig::default().bytes(8 * MIB));
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 20);
    let make = |device: &Device| Arena::new(CudaAsync::new(device)?, ArenaConfig::default().bytes(8 * MIB));
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 25);
}

#[test]
fn fixed_size() {
    let config = FixedSizeConfig::default().block(7 * MIB).blocks(1).maximum(16 * MIB);
    let make = |device: &Device| FixedSize::new(Cuda::new(device), config.clone());
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 20);
}

#[test]
fn binning() {
    let make =
        |device: &Device| Binning::over(Cuda::new(device).pool(config())?).blocks(2).range(10..=12).build();
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 20);
    // The first bins are made when the last one fails.
    let make = |device: &Device| Binning::over(Cuda::new(device)).blocks(2).range(10..=14).build();
    assert_thorough(sweep().run(|sim| use_resource(sim, make)), 20);
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
