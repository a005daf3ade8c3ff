//! Every suballocator keeps every clause of the contract, on the GPU of this computer, by the same code as on the simulated one.

use alluvion::source::{Cuda, CudaAsync, Managed, Mapped, Null, Pinned};
use alluvion::suballoc::{Growth, PageBudget, Reuse};
use alluvion::testing::{Bench, Shadow};
use alluvion::{PoolConfig, ResourceExt};

every_suballocator!(gpu(Bench::gpu()));

// Over memory of each sort. That of the host is not used up: the computer would be.
alluvion::resource_suite!(pool_over_cuda_async on gpu(Bench::gpu()), |device| {
    CudaAsync::new(device).unwrap().pool(PoolConfig::default()).unwrap()
});
alluvion::resource_suite!(pool_over_managed on gpu(Bench::gpu()), no_limit, |device| {
    Managed::new(device).unwrap().pool(PoolConfig::default()).unwrap()
});
alluvion::resource_suite!(pool_over_pinned on gpu(Bench::gpu()), no_limit, |device| {
    Pinned::new(device).unwrap().pool(PoolConfig::default()).unwrap()
});
