//! The sources and how to make them: stamped for the simulated machine and for the GPU by the same code.

#![allow(dead_code, unused_macros, reason = "some tests take the sources one by one")]
#![expect(unsafe_code, reason = "vouches for closures, and names the driver's own pool")]

use alluvion::driver::PoolKind;
use alluvion::source::{Callback, CudaAsyncView};
use alluvion::{Device, DeviceAccessible, DevicePtr, Error, Layout, Resource, StreamRef};

/// A view of the device's own pool, which lives as long as the process.
pub(crate) fn view_of_default_pool(device: &Device) -> CudaAsyncView<'static> {
    let pool = device.driver().pool_default(device.ordinal(), PoolKind::Device).unwrap();
    // SAFETY: it is the device's own pool, of memory of the device, and is never destroyed.
    unsafe { CudaAsyncView::from_raw(device, pool) }.unwrap()
}

/// Two closures over a resource.
pub(crate) fn callback_over<R: DeviceAccessible + Send + Sync + 'static>(
    device: &Device,
    resource: R,
) -> impl DeviceAccessible + Send + Sync + 'static + use<R> {
    let resource = std::sync::Arc::new(resource);
    let giver = std::sync::Arc::clone(&resource);
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

/// Stamps the suite for every source that any device has. `$limit` is `no_limit,` where nobody must take all memory of the
/// host.
macro_rules! every_source {
    ($machine:ident($bench:expr), [$($limit:tt)*]) => {
        alluvion::resource_suite!(cuda on $machine($bench), |device| Cuda::new(device));
        alluvion::resource_suite!(cuda_async on $machine($bench), |device| CudaAsync::new(device).unwrap());
        alluvion::resource_suite!(cuda_async_view on $machine($bench), |device| {
            $crate::every_source::view_of_default_pool(device)
        });
        alluvion::resource_suite!(cuda_async_managed on $machine($bench), $($limit)* |device| {
            CudaAsyncManaged::new(device).unwrap()
        });
        alluvion::resource_suite!(managed on $machine($bench), $($limit)* |device| {
            Managed::new(device).unwrap()
        });
        alluvion::resource_suite!(pinned on $machine($bench), $($limit)* |device| Pinned::new(device).unwrap());
        alluvion::resource_suite!(callback_over_cuda on $machine($bench), |device| {
            $crate::every_source::callback_over(device, Cuda::new(device))
        });
        alluvion::resource_suite!(callback_over_cuda_async on $machine($bench), no_trim, |device| {
            $crate::every_source::callback_over(device, CudaAsync::new(device).unwrap())
        });
        alluvion::resource_suite!(null on $machine($bench), no_memory, |device| Null::new(device));
        alluvion::resource_suite!(shadow on $machine($bench), |device| Shadow::new(CudaAsync::new(device).unwrap()));
        alluvion::resource_suite!(delayed on $machine($bench), |device| {
            Shadow::new(Delayed::new(CudaAsync::new(device).unwrap(), Duration::from_micros(20)))
        });
        alluvion::resource_suite!(faulty on $machine($bench), |device| {
            Faulty::nth(CudaAsync::new(device).unwrap(), usize::MAX)
        });
    };
}
