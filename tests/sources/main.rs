//! The sources, and the allocators over pinned memory of the host, on the simulated machine.

#![cfg_attr(feature = "nightly", feature(allocator_api))]

#[path = "../support/host_contract/mod.rs"]
mod host_contract;
#[path = "../support/lost_context.rs"]
mod lost_context;
#[path = "../support/plain_environment.rs"]
mod plain_environment;
#[path = "../support/source_contract/mod.rs"]
mod source_contract;
#[path = "../support/two_devices.rs"]
mod two_devices;

mod host;
mod mapped;
mod own_driver;
mod peers;
mod sources;
