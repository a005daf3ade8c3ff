//! The layers over a resource, each by what it adds; and the recipes and pages that are made of them.

#[path = "../support/adaptor_contract/mod.rs"]
mod adaptor_contract;
#[path = "../support/not_sync.rs"]
mod not_sync;
#[path = "../support/plain_environment.rs"]
mod plain_environment;
#[path = "../support/raw_block.rs"]
mod raw_block;
#[cfg(target_os = "linux")]
#[path = "../support/shared_directory.rs"]
mod shared_directory;
#[path = "../support/trials.rs"]
mod trials;

mod contract;
mod failure_callback;
mod fallback;
mod foreign_code;
mod foreign_errors;
mod guard;
mod limits;
mod metrics;
mod per_device;
mod recipe;
mod reports;
#[cfg(target_os = "linux")]
mod shared_limit;
mod stats;
mod thread_safe;
mod tracking;
mod watched;
mod wrong_frees;
