//! The whole process: how it ends, how it forks, and what it reads of its environment. Each body runs in a process of its own.

#![cfg(unix)]

#[path = "../support/child.rs"]
mod child;
#[path = "../support/log_files.rs"]
mod log_files;
#[path = "../support/plain_environment.rs"]
mod plain_environment;
#[path = "../support/process_ends.rs"]
mod process_ends;
#[path = "../support/raw_block.rs"]
mod raw_block;
#[path = "../support/rerun.rs"]
mod rerun;
#[cfg(target_os = "linux")]
#[path = "../support/shareable.rs"]
mod shareable;
#[cfg(target_os = "linux")]
#[path = "../support/shared_directory.rs"]
mod shared_directory;
#[path = "../support/transfer_ends.rs"]
mod transfer_ends;
#[path = "../support/wait_for_fork.rs"]
mod wait_for_fork;

mod fork;
mod forked;
#[cfg(target_os = "linux")]
mod full_disk;
#[cfg(target_os = "linux")]
mod kin;
#[cfg(target_os = "linux")]
mod lease;
#[cfg(target_os = "linux")]
mod lease_crowd;
mod lifecycle;
mod logging_ends;
#[cfg(target_os = "linux")]
mod privileges;
mod recipe_environment;
#[cfg(target_os = "linux")]
mod shared_limit;
#[cfg(target_os = "linux")]
mod shared_limit_races;
#[cfg(target_os = "linux")]
mod shared_pages;
#[cfg(target_os = "linux")]
mod sleep_on_disk;
#[cfg(target_os = "linux")]
mod steps;
