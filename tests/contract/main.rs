//! The contract of resources and of drivers: each one against each clause, on the simulated machine; and that the suite finds
//! what breaks a clause.

#[path = "../support/driver_contract/mod.rs"]
mod driver_contract;
#[macro_use]
#[path = "../support/every_source.rs"]
mod every_source;
#[macro_use]
#[path = "../support/every_suballocator.rs"]
mod every_suballocator;
#[path = "../support/not_sync.rs"]
mod not_sync;
#[path = "../support/trials.rs"]
mod trials;

mod adaptors;
mod adaptors_forward;
#[cfg(feature = "cuda")]
mod auto_traits;
mod driver;
mod faults;
mod host_access;
mod sources;
mod stacks;
mod suballocators;
mod suite_catches;
