//! What layers promise, on the GPU of this computer, by the same code as on the simulated one.

mod adaptor_contract;
mod held;

use adaptor_contract::guard::guarded;
use alluvion::adaptor::AlignedConfig;
use alluvion::source::{Cuda, CudaAsync, Managed};
use alluvion::testing::{Bench, Shadow};
use alluvion::{PoolConfig, Resource};

adaptor_contract::clauses!(Bench::gpu());

alluvion::resource_suite!(aligned on gpu(Bench::gpu()), |device| {
    let config = AlignedConfig::new(64 << 10).threshold(2000);
    CudaAsync::new(device).unwrap().aligned(config).unwrap()
});
alluvion::resource_suite!(guard on gpu(Bench::gpu()), |device| {
    Shadow::new(guarded(Cuda::new(device).pool(PoolConfig::default()).unwrap()))
});
// Managed memory is not used up: the computer would be.
alluvion::resource_suite!(prefetch on gpu(Bench::gpu()), no_limit, |device| Managed::new(device).unwrap().prefetch());
