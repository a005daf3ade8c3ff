//! Memory that processes share: every life of it, on two and three simulated processes of one machine.

#![cfg(target_os = "linux")]

#[path = "../support/shareable.rs"]
mod shareable;
#[path = "../support/shared_directory.rs"]
mod shared_directory;

mod blocks;
mod faults;
mod figures;
mod hand_over;
mod layers;
mod lease;
mod lives;
mod message;
mod pages;
mod rig;
mod stress;
