//! Every suballocator keeps every clause of the contract, on the simulated machine.

use std::time::Duration;

use alluvion::source::{Cuda, CudaAsync, Managed, Mapped, Null, Pinned};
use alluvion::suballoc::{Growth, Reuse};
use alluvion::testing::{Bench, Delayed, Faulty, Shadow};
use alluvion::{PoolConfig, ResourceExt};

every_pool!(sim(Bench::sim()), []);
every_other_suballocator!(sim(Bench::sim()), []);

// A pool that has all that it may have from the start, on a device with room for two such.
alluvion::resource_suite!(
    pool_that_has_it_all on sim(Bench::sim_with(Bench::config().memory_bytes(160 << 20))),
    |device| Cuda::new(device).pool(PoolConfig::default().initial(64 << 20).maximum(64 << 20)).unwrap()
);

// A driver without pools.
alluvion::resource_suite!(pool_on_cuda_11 on sim(Bench::sim_with(Bench::config().version(11_020))), |device| {
    Cuda::new(device).pool(PoolConfig::default()).unwrap()
});
