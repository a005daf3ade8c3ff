//! What layers promise, on the GPU of this computer, by the same code as on the simulated one.

use alluvion::adaptor::{AlignedConfig, Allowance};
use alluvion::relief::Relief;
use alluvion::source::{Cuda, CudaAsync, Managed};
use alluvion::testing::{Bench, Shadow};
use alluvion::{Device, Pool, PoolConfig, ResourceExt};

use crate::adaptor_contract;
use crate::adaptor_contract::guard::guarded;
use crate::not_sync::OneAtATime;

adaptor_contract::clauses!(Bench::gpu());

alluvion::resource_suite!(aligned_over_cuda_async on gpu(Bench::gpu()), |device| {
    let config = AlignedConfig::new(64 << 10).threshold(2000);
    CudaAsync::new(device).unwrap().aligned(config).unwrap()
});
alluvion::resource_suite!(guard_over_pool on gpu(Bench::gpu()), |device| {
    Shadow::new(guarded(Cuda::new(device).pool(PoolConfig::default()).unwrap()))
});
// Managed memory is not used up: the computer would be.
alluvion::resource_suite!(prefetch_over_managed on gpu(Bench::gpu()), no_limit, |device| Managed::new(device).unwrap().prefetch());
alluvion::resource_suite!(layers_over_pool on gpu(Bench::gpu()), |device| {
    let pool = guarded(Cuda::new(device).pool(PoolConfig::default()).unwrap());
    Shadow::new(pool.aligned(4096).unwrap().limiting(usize::MAX).stats())
});

/// So many eighths of what the device has in all.
fn eighths(device: &Device, many: usize) -> usize {
    device.memory_info().unwrap().total_bytes / 8 * many
}

fn pool(device: &Device) -> Pool<Cuda> {
    Cuda::new(device).pool(PoolConfig::default()).unwrap()
}

alluvion::resource_suite!(limiting_over_cuda_async on gpu(Bench::gpu()), |device| {
    CudaAsync::new(device).unwrap().limiting(eighths(device, 6))
});
alluvion::resource_suite!(budget_over_pool on gpu(Bench::gpu()), |device| {
    let all = Allowance::new("all", eighths(device, 6)).soft(1 << 20);
    Shadow::new(pool(device).budget(all.child("half", eighths(device, 7)).child("leaf", eighths(device, 8))))
});
alluvion::resource_suite!(fallback_over_pool on gpu(Bench::gpu()), |device| {
    let first = Shadow::new(pool(device).limiting(eighths(device, 3)));
    Shadow::new(first.fallback(Shadow::new(CudaAsync::new(device).unwrap().limiting(eighths(device, 3)))).unwrap())
});
alluvion::resource_suite!(failure_callback_over_pool on gpu(Bench::gpu()), |device| {
    Shadow::new(pool(device).failure_callback(|_| Relief::Freed))
});
alluvion::resource_suite!(thread_safe_over_cuda_async on gpu(Bench::gpu()), |device| {
    Shadow::new(OneAtATime::new(CudaAsync::new(device).unwrap()).thread_safe())
});
