//! Blocks that are freed without their size.

#[path = "../support/raw_block.rs"]
mod raw_block;

mod answers;
mod contract;
mod faults;
mod of_devices;
mod threads;
