//! The suballocators and how to make them: stamped for the simulated machine and for the GPU by the same code.
//!
//! Each form once, and each knob of a pool where it changes something. What stands over or under what else, `tests/contract/stacks.rs`
//! draws.

use alluvion::suballoc::{Arena, ArenaConfig, Binning, FixedSize, FixedSizeConfig};
use alluvion::{Pool, PoolConfig, Resource, ResourceExt};

/// A pool as configured.
#[track_caller]
pub(crate) fn pool_over<U: Resource>(upstream: U, config: PoolConfig) -> Pool<U> {
    upstream.pool(config).expect("a sound configuration makes a pool")
}

/// An arena of 20 MiB: there is room for three in what a simulated machine has of each sort of memory.
#[track_caller]
pub(crate) fn arena_over<U: Resource>(upstream: U) -> Arena<U> {
    Arena::new(upstream, ArenaConfig::default().bytes(20 << 20)).expect("there is as much")
}

/// The largest block of `fixed_over`.
pub(crate) const FIXED_BYTES: usize = 64 << 10;

/// Blocks of 64 KiB, sixteen at a time, and at most 1 GiB: a GPU holds two millions of them.
#[track_caller]
pub(crate) fn fixed_over<U: Resource>(upstream: U) -> FixedSize<U> {
    let config = FixedSizeConfig::default().block(FIXED_BYTES).blocks(16).maximum(1 << 30);
    FixedSize::new(upstream, config).expect("there is as much")
}

/// Bins of 4 KiB to 256 KiB, and 1 MiB; the rest is the upstream's.
#[track_caller]
pub(crate) fn bins_over<U: Resource>(upstream: U) -> Binning<U> {
    Binning::over(upstream).blocks(8).range(12..=18).bin(1 << 20).build().expect("there is as much")
}

/// Stamps the suite for every suballocator.
macro_rules! every_suballocator {
    ($machine:ident($bench:expr)) => {
        every_suballocator!(@over_cuda $machine($bench), [
            pool_over_cuda => PoolConfig::default();
            pool_of_own_blocks => PoolConfig::default().reuse(Reuse::Own);
            pool_of_completed_blocks => PoolConfig::default().reuse(Reuse::Completed);
            pool_with_a_maximum => PoolConfig::default().initial(1 << 20).maximum(48 << 20);
        ]);
        // Which segments it takes, and what it checks, no bytes tell.
        every_suballocator!(@over_null $machine($bench), [
            pool_over_null => PoolConfig::default();
            pool_unchecked => PoolConfig::default().checked(false);
            pool_with_an_initial_size => PoolConfig::default().initial(8 << 20);
            pool_that_doubles => PoolConfig::default().growth(Growth::Doubling);
            pool_in_steps => PoolConfig::default().growth(Growth::Step(3 << 20));
            pool_of_exact_segments => PoolConfig::default().growth(Growth::Exact);
        ]);
        alluvion::resource_suite!(pool_over_mapped on $machine($bench), |device| {
            $crate::every_suballocator::pool_over(Mapped::new(device).unwrap(), PoolConfig::default())
        });
        // Whole pages of 4 MiB, of which none moves.
        alluvion::resource_suite!(pool_over_mapped_in_segments on $machine($bench), |device| {
            let config = PoolConfig::default().registered(4 << 20);
            $crate::every_suballocator::pool_over(Mapped::new(device).unwrap(), config)
        });
        // As little as can be: free pages move for each growth.
        alluvion::resource_suite!(pool_over_mapped_within_its_peak on $machine($bench), |device| {
            let config = PoolConfig::default().budget(PageBudget::TimesPeak(1.0));
            $crate::every_suballocator::pool_over(Mapped::new(device).unwrap(), config)
        });
        alluvion::resource_suite!(pool_over_pool on $machine($bench), |device| {
            let inner = $crate::every_suballocator::pool_over(Cuda::new(device), PoolConfig::default().checked(true));
            $crate::every_suballocator::pool_over(Shadow::new(inner), PoolConfig::default())
        });
        alluvion::resource_suite!(arena_over_cuda on $machine($bench), |device| {
            $crate::every_suballocator::arena_over(Cuda::new(device))
        });
        alluvion::resource_suite!(bins_over_cuda on $machine($bench), |device| {
            $crate::every_suballocator::bins_over(Cuda::new(device))
        });
        alluvion::resource_suite!(
            fixed_over_cuda on $machine($bench.largest_bytes($crate::every_suballocator::FIXED_BYTES)),
            |device| $crate::every_suballocator::fixed_over(Cuda::new(device))
        );
    };
    (@over_cuda $machine:ident($bench:expr), [$($name:ident => $config:expr;)*]) => {
        $( alluvion::resource_suite!($name on $machine($bench), |device| {
            $crate::every_suballocator::pool_over(Cuda::new(device), $config)
        }); )*
    };
    (@over_null $machine:ident($bench:expr), [$($name:ident => $config:expr;)*]) => {
        $( alluvion::resource_suite!($name on $machine($bench), no_memory, |device| {
            $crate::every_suballocator::pool_over(Null::new(device), $config)
        }); )*
    };
}
