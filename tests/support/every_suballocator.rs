//! The suballocators and how to make them: stamped for the simulated machine and for the GPU by the same code.
//!
//! One line for each suballocator over each source, over another suballocator, and under and over the layers of the testing
//! room.

#![allow(dead_code, unused_macros, reason = "some tests take the suballocators one by one")]
#![expect(unsafe_code, reason = "vouches for closures")]

use std::sync::Arc;

use alluvion::source::Callback;
use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig};
use alluvion::{
    Device, DeviceAccessible, DevicePtr, Error, Layout, Pool, PoolConfig, Resource, ResourceExt, StreamRef,
};

/// What a pool is when nothing is said, but for the ledger of live blocks, which is kept in release builds too.
pub(crate) fn checked() -> PoolConfig {
    PoolConfig::default().checked(true)
}

/// A pool as configured.
#[track_caller]
pub(crate) fn pool_over<U: Resource>(upstream: U, config: PoolConfig) -> Pool<U> {
    upstream.pool(config).expect("a sound configuration makes a pool")
}

/// An arena of 20 MiB: there is room for three in what a simulated machine has of each sort of memory.
#[track_caller]
pub(crate) fn arena_over<U: Resource>(upstream: U) -> Arena<U> {
    arena_of(20 << 20, upstream)
}

#[track_caller]
pub(crate) fn arena_of<U: Resource>(bytes: usize, upstream: U) -> Arena<U> {
    Arena::new(upstream, ArenaConfig::default().bytes(bytes)).expect("there is as much")
}

/// The largest block of `fixed_over`.
pub(crate) const FIXED_BYTES: usize = 64 << 10;

/// Blocks of 64 KiB, sixteen at a time, and at most 1 GiB: a GPU holds two millions of them.
#[track_caller]
pub(crate) fn fixed_over<U: Resource>(upstream: U) -> FixedSize<U> {
    let config = FixedSizeConfig::default().block(FIXED_BYTES).blocks(16).maximum(32 << 20).maximum(1 << 30);
    FixedSize::new(upstream, config).expect("there is as much")
}

/// Bins of 4 KiB to 256 KiB, and 1 MiB; the rest is the upstream's.
#[track_caller]
pub(crate) fn bins_over<U: Resource>(upstream: U) -> Binning<U> {
    Binning::over(upstream).blocks(8).range(12..=18).bin(1 << 20).build().expect("there is as much")
}

/// Two closures over a resource.
pub(crate) fn callback_over<R: DeviceAccessible + Send + Sync + 'static>(
    device: &Device,
    resource: R,
) -> impl DeviceAccessible + Send + Sync + 'static + use<R> {
    let resource = Arc::new(resource);
    let giver = Arc::clone(&resource);
    let allocate = move |layout: Layout, stream: StreamRef<'_>| -> Result<u64, Error> {
        Ok(giver.allocate(layout, stream)?.address())
    };
    let deallocate = move |block: DevicePtr, layout: Layout, stream: StreamRef<'_>| {
        // SAFETY: the block came from `allocate` above, with this layout, and is used no more: what `Callback` promises.
        unsafe { resource.deallocate(block, layout, stream) }
    };
    // SAFETY: the closures hand out the blocks of one resource, which keeps the contract, and give them back to it.
    unsafe { Callback::new(device, allocate, deallocate) }
}

/// Stamps the suite for pools over every source that any device has, and for each knob. `$limit` is `no_limit,` where nobody
/// must take all memory of the host.
macro_rules! every_pool {
    ($machine:ident($bench:expr), [$($limit:tt)*]) => {
        alluvion::resource_suite!(pool_over_cuda on $machine($bench), |device| {
            $crate::every_suballocator::pool_over(Cuda::new(device), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_cuda_async on $machine($bench), |device| {
            $crate::every_suballocator::pool_over(CudaAsync::new(device).unwrap(), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_managed on $machine($bench), $($limit)* |device| {
            $crate::every_suballocator::pool_over(Managed::new(device).unwrap(), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_pinned on $machine($bench), $($limit)* |device| {
            $crate::every_suballocator::pool_over(Pinned::new(device).unwrap(), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_mapped on $machine($bench), |device| {
            $crate::every_suballocator::pool_over(Mapped::new(device).unwrap(), PoolConfig::default())
        });
        // As little as can be: free pages move for each growth.
        alluvion::resource_suite!(pool_over_mapped_within_its_peak on $machine($bench), |device| {
            let config = PoolConfig::default().budget(alluvion::suballoc::PageBudget::TimesPeak(1.0));
            $crate::every_suballocator::pool_over(Mapped::new(device).unwrap(), config)
        });
        alluvion::resource_suite!(pool_over_callback on $machine($bench), |device| {
            let callback = $crate::every_suballocator::callback_over(device, Cuda::new(device));
            $crate::every_suballocator::pool_over(callback, PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_null on $machine($bench), no_memory, |device| {
            $crate::every_suballocator::pool_over(Null::new(device), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_pool on $machine($bench), |device| {
            let inner = $crate::every_suballocator::pool_over(Cuda::new(device), PoolConfig::default());
            $crate::every_suballocator::pool_over(inner, PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_shadow on $machine($bench), |device| {
            $crate::every_suballocator::pool_over(Shadow::new(Cuda::new(device)), $crate::every_suballocator::checked())
        });
        alluvion::resource_suite!(shadow_over_pool on $machine($bench), |device| {
            Shadow::new($crate::every_suballocator::pool_over(Cuda::new(device), $crate::every_suballocator::checked()))
        });
        alluvion::resource_suite!(pool_over_delayed on $machine($bench), |device| {
            let delayed = Delayed::new(CudaAsync::new(device).unwrap(), Duration::from_micros(20));
            Shadow::new($crate::every_suballocator::pool_over(delayed, PoolConfig::default()))
        });
        alluvion::resource_suite!(pool_over_faulty on $machine($bench), |device| {
            let faulty = Faulty::nth(Cuda::new(device), usize::MAX);
            $crate::every_suballocator::pool_over(faulty, PoolConfig::default())
        });
        every_pool!(@configured $machine($bench), [
            pool_unchecked => PoolConfig::default().checked(false);
            pool_checked => $crate::every_suballocator::checked();
            pool_with_an_initial_size => PoolConfig::default().initial(8 << 20);
            pool_that_doubles => PoolConfig::default().growth(Growth::Doubling);
            pool_in_steps => PoolConfig::default().growth(Growth::Step(3 << 20));
            pool_of_exact_segments => PoolConfig::default().growth(Growth::Exact);
            pool_of_own_blocks => PoolConfig::default().reuse(Reuse::Own);
            pool_of_completed_blocks => PoolConfig::default().reuse(Reuse::Completed);
            pool_with_a_maximum => PoolConfig::default().initial(1 << 20).maximum(48 << 20);
        ]);
    };
    (@configured $machine:ident($bench:expr), [$($name:ident => $config:expr;)*]) => {
        $(
            alluvion::resource_suite!($name on $machine($bench), |device| {
                $crate::every_suballocator::pool_over(Cuda::new(device), $config)
            });
        )*
    };
}

/// Stamps the suite for arenas, blocks of one size, and bins, as `every_pool!` does for pools.
macro_rules! every_other_suballocator {
    ($machine:ident($bench:expr), [$($limit:tt)*]) => {
        every_other_suballocator!(@over $machine($bench), [], [
            arena_over_cuda => |device| $crate::every_suballocator::arena_over(Cuda::new(device));
            arena_over_cuda_async => |device| $crate::every_suballocator::arena_over(CudaAsync::new(device).unwrap());
            arena_over_pool => |device| {
                let exact = PoolConfig::default().growth(Growth::Exact);
                $crate::every_suballocator::arena_over($crate::every_suballocator::pool_over(Cuda::new(device), exact))
            };
            shadow_over_arena => |device| {
                Shadow::new($crate::every_suballocator::arena_over(Shadow::new(Cuda::new(device))))
            };
            bins_over_cuda => |device| $crate::every_suballocator::bins_over(Cuda::new(device));
            bins_over_pool => |device| {
                let pool = $crate::every_suballocator::pool_over(Cuda::new(device), PoolConfig::default());
                Shadow::new($crate::every_suballocator::bins_over(pool))
            };
            bins_over_arena => |device| {
                $crate::every_suballocator::bins_over($crate::every_suballocator::arena_of(30 << 20, Cuda::new(device)))
            };
            pool_over_bins => |device| {
                let bins = $crate::every_suballocator::bins_over(Cuda::new(device));
                $crate::every_suballocator::pool_over(bins, PoolConfig::default())
            };
        ]);
        every_other_suballocator!(@over $machine($bench), [$($limit)*], [
            arena_over_managed => |device| $crate::every_suballocator::arena_over(Managed::new(device).unwrap());
            arena_over_pinned => |device| $crate::every_suballocator::arena_over(Pinned::new(device).unwrap());
            bins_over_pinned => |device| $crate::every_suballocator::bins_over(Pinned::new(device).unwrap());
        ]);
        every_other_suballocator!(
            @over $machine($bench.largest_bytes($crate::every_suballocator::FIXED_BYTES)), [], [
            fixed_over_cuda => |device| $crate::every_suballocator::fixed_over(Cuda::new(device));
            fixed_over_cuda_async => |device| $crate::every_suballocator::fixed_over(CudaAsync::new(device).unwrap());
            fixed_over_pool => |device| {
                let pool = $crate::every_suballocator::pool_over(Cuda::new(device), PoolConfig::default());
                Shadow::new($crate::every_suballocator::fixed_over(pool))
            };
        ]);
        every_other_suballocator!(
            @over $machine($bench.largest_bytes($crate::every_suballocator::FIXED_BYTES)), [$($limit)*], [
            fixed_over_pinned => |device| $crate::every_suballocator::fixed_over(Pinned::new(device).unwrap());
        ]);
        // A segment of this pool is one block, of which alignment may take half.
        every_other_suballocator!(
            @over $machine($bench.largest_bytes($crate::every_suballocator::FIXED_BYTES / 2)), [], [
            pool_over_fixed => |device| {
                let fixed = $crate::every_suballocator::fixed_over(Cuda::new(device));
                $crate::every_suballocator::pool_over(fixed, PoolConfig::default().growth(Growth::Exact))
            };
        ]);
        alluvion::resource_suite!(arena_over_null on $machine($bench), no_memory, |device| {
            $crate::every_suballocator::arena_over(Null::new(device))
        });
        alluvion::resource_suite!(bins_over_null on $machine($bench), no_memory, |device| {
            $crate::every_suballocator::bins_over(Null::new(device))
        });
    };
    (@over $machine:ident($bench:expr), $limit:tt, [$($name:ident => |$device:ident| $make:expr;)*]) => {
        $( every_other_suballocator!(@one $name, $machine($bench), $limit, |$device| $make); )*
    };
    (@one $name:ident, $machine:ident($bench:expr), [$($limit:tt)*], |$device:ident| $make:expr) => {
        alluvion::resource_suite!($name on $machine($bench), $($limit)* |$device| $make);
    };
}
