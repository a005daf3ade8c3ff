//! The simulated machine: schedules, captures, failures, and the hazards that it reports.

mod blocks;
mod capture;
mod deaths;
mod driver_pool;
mod explore;
mod faults;
mod hand_over;
mod hazards;
mod lent_pools;
mod machine;
mod pages;
mod peers;
#[path = "../support/plain_environment.rs"]
mod plain_environment;
mod processes;
#[path = "../support/raw_block.rs"]
mod raw_block;
mod schedule;
#[cfg(target_os = "linux")]
mod sharing;
#[cfg(target_os = "linux")]
#[path = "../support/sharing_contract/mod.rs"]
mod sharing_contract;
mod verdict;
