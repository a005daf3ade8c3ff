//! The vendors' runtime libraries, each by a stand-in that is compiled against the vendor's header: that the driver calls every
//! function by its name and with its types, that the contract holds over it, and what the driver owes its callers whatever the library
//! does. No GPU is needed.

#![cfg(unix)]
#![expect(unsafe_code, reason = "stands in for a library, and calls the driver")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a table of calls of the machine behind it, and their use"
)]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

mod child;
mod contract;
#[path = "../support/driver_contract/mod.rs"]
mod driver_contract;
mod lending;
mod lent;
mod loads;
mod machine;
mod named;
mod owed;
mod plain;
#[path = "../support/plain_environment.rs"]
mod plain_environment;
#[path = "../support/rerun.rs"]
mod rerun;
#[path = "../support/shareable.rs"]
mod shareable;
mod shared;
#[path = "../support/shared_directory.rs"]
mod shared_directory;
#[path = "../support/sharing_contract/mod.rs"]
mod sharing_contract;
mod stand_in;
