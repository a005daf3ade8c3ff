//! The suballocators and how to make them: stamped for the simulated machine and for the GPU by the same code.
//!
//! One line for each suballocator over each source, over itself, and under and over the layers of the testing room. A new
//! suballocator gets a macro of its own, beside `every_pool!`.

#![allow(dead_code, unused_macros, reason = "some tests take the suballocators one by one")]
#![expect(unsafe_code, reason = "vouches for closures")]

use std::sync::Arc;

use alluvion::source::Callback;
use alluvion::{Device, DeviceAccessible, DevicePtr, Error, Layout, Pool, PoolConfig, Resource, StreamRef};

/// What a pool is when nothing is said, but for the ledger of live blocks, which is kept in release builds too.
pub(crate) fn checked() -> PoolConfig {
    PoolConfig::default().checked(true)
}

/// A pool as configured.
#[track_caller]
pub(crate) fn pool_over<U: Resource>(upstream: U, config: PoolConfig) -> Pool<U> {
    upstream.pool(config).expect("a sound configuration makes a pool")
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
            every_suballocator::pool_over(Cuda::new(device), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_cuda_async on $machine($bench), |device| {
            every_suballocator::pool_over(CudaAsync::new(device).unwrap(), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_managed on $machine($bench), $($limit)* |device| {
            every_suballocator::pool_over(Managed::new(device).unwrap(), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_pinned on $machine($bench), $($limit)* |device| {
            every_suballocator::pool_over(Pinned::new(device).unwrap(), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_callback on $machine($bench), |device| {
            let callback = every_suballocator::callback_over(device, Cuda::new(device));
            every_suballocator::pool_over(callback, PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_null on $machine($bench), no_memory, |device| {
            every_suballocator::pool_over(Null::new(device), PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_pool on $machine($bench), |device| {
            let inner = every_suballocator::pool_over(Cuda::new(device), PoolConfig::default());
            every_suballocator::pool_over(inner, PoolConfig::default())
        });
        alluvion::resource_suite!(pool_over_shadow on $machine($bench), |device| {
            every_suballocator::pool_over(Shadow::new(Cuda::new(device)), every_suballocator::checked())
        });
        alluvion::resource_suite!(shadow_over_pool on $machine($bench), |device| {
            Shadow::new(every_suballocator::pool_over(Cuda::new(device), every_suballocator::checked()))
        });
        alluvion::resource_suite!(pool_over_delayed on $machine($bench), |device| {
            let delayed = Delayed::new(CudaAsync::new(device).unwrap(), Duration::from_micros(20));
            Shadow::new(every_suballocator::pool_over(delayed, PoolConfig::default()))
        });
        alluvion::resource_suite!(pool_over_faulty on $machine($bench), |device| {
            let faulty = Faulty::nth(Cuda::new(device), usize::MAX);
            every_suballocator::pool_over(faulty, PoolConfig::default())
        });
        every_pool!(@configured $machine($bench), [
            pool_unchecked => PoolConfig::default().checked(false);
            pool_checked => every_suballocator::checked();
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
                every_suballocator::pool_over(Cuda::new(device), $config)
            });
        )*
    };
}
