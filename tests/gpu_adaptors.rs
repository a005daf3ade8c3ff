//! What layers promise, on the GPU of this computer, by the same code as on the simulated one.

mod adaptor_contract;
mod held;

use adaptor_contract::guard::guarded;
use alluvion::adaptor::AlignedConfig;
use alluvion::source::{Cuda, CudaAsync, Managed};
use alluvion::testing::{Bench, Shadow};
use alluvion::{PoolConfig, Resource};

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
