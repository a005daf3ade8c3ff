//! Every suballocator keeps every clause of the contract, on the GPU of this computer, by the same code as on the simulated one.

use std::time::Duration;

use alluvion::PoolConfig;
use alluvion::source::{Cuda, CudaAsync, Managed, Mapped, Null, Pinned};
use alluvion::suballoc::{Growth, Reuse};
use alluvion::testing::{Bench, Delayed, Faulty, Shadow};

// Memory of the host is not used up: the computer would be.
every_pool!(gpu(Bench::gpu()), [no_limit,]);
every_other_suballocator!(gpu(Bench::gpu()), [no_limit,]);
