//! Every suballocator keeps every clause of the contract, on the simulated machine.

use std::time::Duration;

use alluvion::source::{Cuda, CudaAsync, Managed, Null, Pinned};
use alluvion::suballoc::{Growth, Reuse};
use alluvion::testing::{Bench, Delayed, Faulty, Shadow};
use alluvion::{PoolConfig, Resource};

#[macro_use]
mod every_suballocator;

every_pool!(sim(Bench::sim()), []);

// A pool that holds all that a small device has, from the start.
alluvion::resource_suite!(pool_that_has_it_all on sim(Bench::sim()), |device| {
    every_suballocator::pool_over(Cuda::new(device), PoolConfig::default().initial(64 << 20).maximum(64 << 20))
});

// A driver without pools.
alluvion::resource_suite!(pool_on_cuda_11 on sim(Bench::sim_with(Bench::config().version(11_020))), |device| {
    Cuda::new(device).pool(PoolConfig::default()).unwrap()
});
