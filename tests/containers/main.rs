//! Containers on the simulated machine.

#[path = "../support/container_contract/mod.rs"]
mod container_contract;

mod containers;
mod ends;
