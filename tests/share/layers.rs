//! Every layer of the crate passes sharing on, with the right place in its upstream's block, or says why it does not.

#![expect(unsafe_code, reason = "exports blocks by hand")]

use alluvion::adaptor::{Allowance, GuardConfig, Log};
use alluvion::relief::Relief;
use alluvion::source::{Cuda, CudaAsync, CudaAsyncManaged, CudaAsyncView, Managed, Mapped, Null, Pinned};
use alluvion::suballoc::{ArenaConfig, Binning, FixedSizeConfig};
use alluvion::testing::{Delayed, Faulty, Shadow, Upstream};
use alluvion::{
    AnyResource, Device, DeviceVec, Layout, PoolConfig, Resource, ResourceExt, ResourceRef, Shareable,
};

use crate::rig::{Rig, mapped, pooled};

/// Shares three vectors of different lengths from the resource; another process finds the bytes of each.
fn passes_on<R: Shareable + Send + Sync + 'static>(name: &str, make: impl FnOnce(&Device) -> R) {
    let rig = Rig::new();
    let device = rig.first.device(0);
    let (stream, its_stream) = (device.stream().unwrap(), rig.second.device(0).stream().unwrap());
    let resource = AnyResource::new(make(&device));
    for (length, byte) in [(1, 1_u8), (3000, 2), (100_000, 3)] {
        let vector = DeviceVec::filled_in(length, byte, &stream, resource.clone()).unwrap();
        let shared = rig.share(vector, &stream);
        let imported = rig.open(&shared, &its_stream).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(imported.to_vec(&its_stream).unwrap(), vec![byte; length], "{name}");
        drop(imported);
        drop(shared.end().unwrap());
    }
    drop((resource, stream, its_stream));
    rig.assert_clean();
}

/// The resource refuses, with those words, and allocates and frees as before.
fn refuses<R: Resource>(name: &str, words: &str, make: impl FnOnce(&Device) -> R) {
    let rig = Rig::new();
    let resource = make(&rig.first.device(0));
    let layout = Layout::from_bytes(1000).unwrap();
    let block = resource.allocate_sync(layout).unwrap();
    // SAFETY: the block is live, and of this resource, with this layout.
    let error = unsafe { resource.export(block, layout) }.expect_err(name);
    assert!(error.is_unsupported() && error.to_string().contains(words), "{name}: {error}");
    // SAFETY: as above, and nothing uses it.
    unsafe { resource.deallocate_sync(block, layout) };
    let nothing = Layout::from_bytes(0).unwrap();
    // SAFETY: zero bytes are of every resource.
    assert!(unsafe { resource.export(nothing.dangling(), nothing) }.is_ok(), "{name}: zero bytes");
    drop(resource);
    rig.assert_clean();
}

fn pool(device: &Device) -> alluvion::Pool<Cuda> {
    Cuda::new(device).pool(PoolConfig::default()).unwrap()
}

#[test]
fn adaptors_over_a_source_pass_it_on() {
    passes_on("stats", |device| Cuda::new(device).stats());
    passes_on("tracking", |device| Cuda::new(device).tracking());
    passes_on("logging", |device| Cuda::new(device).logging(Log::write_to(std::io::sink()).unwrap()));
    passes_on("limiting", |device| Cuda::new(device).limiting(1 << 30));
    passes_on("budget", |device| Cuda::new(device).budget(Allowance::new("all", 1 << 30)));
    passes_on("failure callback", |device| Cuda::new(device).failure_callback(|_| Relief::None));
    passes_on("prefetch", |device| Cuda::new(device).prefetch());
    passes_on("thread safe", |device| Cuda::new(device).thread_safe());
    passes_on("shadow", |device| Shadow::new(Cuda::new(device)));
    passes_on("delayed", |device| Delayed::new(Cuda::new(device), std::time::Duration::ZERO));
    passes_on("faulty", |device| Faulty::nth(Cuda::new(device), usize::MAX));
}

#[test]
fn layers_that_move_blocks_say_where_they_are() {
    passes_on("guard", |device| Cuda::new(device).guard(GuardConfig::default()).unwrap());
    passes_on("guard over a pool", |device| pool(device).guard(GuardConfig::default()).unwrap());
    passes_on("aligned", |device| Cuda::new(device).aligned(4096).unwrap());
    passes_on("aligned over a pool", |device| pool(device).aligned(4 << 20).unwrap());
    passes_on("aligned over guard", |device| {
        pool(device).guard(GuardConfig::default()).unwrap().aligned(64 << 10).unwrap()
    });
}

#[test]
fn layers_with_several_sources_ask_the_right_one() {
    passes_on("fallback, first", |device| Cuda::new(device).fallback(pooled(device)).unwrap());
    passes_on("fallback, second", |device| {
        Cuda::new(device).limiting(1).fallback(Cuda::new(device)).unwrap()
    });
    let binning = |device: &Device| Binning::over(Cuda::new(device)).blocks(8).range(12..=16);
    passes_on("binning", |device| binning(device).build().unwrap());
    passes_on("binning with a bin that came later", |device| {
        let bins = Binning::<AnyResource, AnyResource>::with_given_bins(AnyResource::new(pooled(device)))
            .build()
            .unwrap();
        bins.add_bin_over(256, AnyResource::new(mapped(device))).unwrap();
        drop(DeviceVec::filled_in(10, 0_u8, &device.stream().unwrap(), &bins).unwrap());
        bins.add_bin_over(4096, AnyResource::new(pool(device))).unwrap();
        bins
    });
}

#[test]
fn suballocators_say_where_in_a_segment_or_a_page() {
    passes_on("pool", pool);
    passes_on("pool that checks", |device| {
        Cuda::new(device).pool(PoolConfig::default().checked(true)).unwrap()
    });
    passes_on("pool over pool", |device| pool(device).pool(PoolConfig::default()).unwrap());
    passes_on("arena", |device| Cuda::new(device).arena(ArenaConfig::default().bytes(8 << 20)).unwrap());
    passes_on("fixed size", |device| {
        Cuda::new(device).fixed_size(FixedSizeConfig::default().block(128 << 10).blocks(4)).unwrap()
    });
    passes_on("pool over pages", |device| mapped(device).pool(PoolConfig::default()).unwrap());
    passes_on("pool over pages under a limit", |device| {
        mapped(device).limiting(32 << 20).pool(PoolConfig::default()).unwrap()
    });
    passes_on("all of it", |device| {
        let pool = pooled(device).stats().pool(PoolConfig::default()).unwrap();
        pool.limiting(32 << 20).tracking().guard(GuardConfig::default()).unwrap().stats()
    });
}

#[test]
fn handles_pass_everything_on() {
    passes_on("arc", |device| std::sync::Arc::new(Cuda::new(device)));
    passes_on("box", |device| Box::new(Cuda::new(device)) as Box<dyn Shareable + Send + Sync>);
    passes_on("upstream of the suite", Upstream::new);
    let rig = Rig::new();
    let (cuda, layout) = (Cuda::new(&rig.first.device(0)), Layout::from_bytes(1000).unwrap());
    let block = cuda.allocate_sync(layout).unwrap();
    let erased = ResourceRef::erase(&cuda);
    for handle in [&erased as &dyn Resource, &&cuda, &ResourceRef::new(&cuda)] {
        // SAFETY: the block is live, and of this resource, with this layout.
        let export = unsafe { handle.export(block, layout) }.unwrap();
        assert_eq!((export.offset(), export.visible_bytes()), (0, 1000));
    }
    // SAFETY: as above, and nothing uses it.
    unsafe { cuda.deallocate_sync(block, layout) };
}

#[test]
fn what_cannot_be_shared_says_why() {
    refuses("managed", "this resource has none", |device| Managed::new(device).unwrap());
    refuses("pinned", "this resource has none", |device| Pinned::new(device).unwrap());
    refuses("managed pool", "without a handle type", |device| CudaAsyncManaged::new(device).unwrap());
    refuses("cuda-async without types", "without a handle type", |device| CudaAsync::new(device).unwrap());
    refuses("mapped without types", "without a handle type", |device| Mapped::new(device).unwrap());
    refuses("pool over mapped without types", "without a handle type", |device| {
        Mapped::new(device).unwrap().pool(PoolConfig::default()).unwrap()
    });
    refuses("pool of managed", "this resource has none", |device| {
        Managed::new(device).unwrap().pool(PoolConfig::default()).unwrap().stats()
    });
    refuses("an erased stack", "this resource has none", |device| {
        AnyResource::new(Managed::new(device).unwrap().pool(PoolConfig::default()).unwrap().stats())
    });
    // Those that are no answer at all: their memory is not asked for, or comes from elsewhere.
    let device = Rig::new().first.device(0);
    let nothing = Layout::from_bytes(0).unwrap();
    // SAFETY: zero bytes are of every resource.
    assert!(unsafe { Null::new(&device).export(nothing.dangling(), nothing) }.is_ok());
}

#[test]
fn a_view_exports_as_its_owner_does() {
    let rig = Rig::new();
    let (owner, layout) = (pooled(&rig.first.device(0)), Layout::from_bytes(1000).unwrap());
    let block = owner.allocate_sync(layout).unwrap();
    // SAFETY: the block is live, and of the pool of both, with this layout.
    assert!(unsafe { CudaAsyncView::of(&owner).export(block, layout) }.is_ok());
    // SAFETY: as above, and nothing uses it.
    unsafe { owner.deallocate_sync(block, layout) };
}
