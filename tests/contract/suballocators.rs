//! Every suballocator keeps every clause of the contract, on the simulated machine.

use alluvion::PoolConfig;
use alluvion::source::{Cuda, Mapped, Null};
use alluvion::suballoc::{Growth, PageBudget, Reuse};
use alluvion::testing::{Bench, Shadow};

every_suballocator!(sim(Bench::sim()));
