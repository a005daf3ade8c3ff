//! The functions of the first RMM, called from Rust as C calls them, on a simulated machine.
//!
//! Their state is the whole process's, so each body runs in a process of its own.

#![cfg(unix)]
#![expect(unsafe_code, reason = "calls functions of C")]
#![allow(
    clippy::disallowed_types,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "no model of the scheduler covers these tests; every call is unsafe, with blocks that the test has"
)]

#[path = "../../../tests/support/rerun.rs"]
mod rerun;
#[macro_use]
mod support;

mod blocks;
mod forks;
mod headers;
mod logs;
#[cfg(target_os = "linux")]
mod programs;
mod sessions;
mod threads;
