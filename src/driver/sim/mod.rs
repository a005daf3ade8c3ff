//! A simulated machine.
//!
//! It is a machine, not a mock: devices with real bytes, finite memory and virtual addresses; streams with queues, events,
//! copies, fills and kernels, which are closures; the rules and the error codes of the real thing.
//!
//! - **Work runs only when it must**, in any order that the program allows: see `schedule.rs`, and [`SimConfig::seed`].
//! - **Mistakes are found whether or not they show**: [`SimDriver::hazards`].
//! - **Addresses of device memory are never the host's**: a host that follows one faults. Pinned and managed memory is real
//!   memory of the host, at the same address for both.
//! - **Fresh device memory is junk**, never zero, and the same for the same seed.
//! - **Small programs are run under every schedule**: [`explore`].
//! - **Anything can fail**: [`Fault`], [`SimDriver::poison`], [`SimConfig::attribute`].

mod allocation;
mod calls;
mod capture;
mod clock;
mod config;
mod cost;
mod device_bytes;
mod driver;
mod event;
mod explore;
mod fault;
mod graph;
mod hazard;
mod history;
mod host_bytes;
mod host_function;
mod kernel;
mod lane;
mod live;
mod machine;
mod memory;
mod pool;
mod schedule;
mod seam;
mod stream;
mod virtual_memory;
mod watch;

pub use calls::CallCounts;
pub use config::SimConfig;
pub use cost::CostModel;
pub use driver::SimDriver;
pub use explore::{Explored, Schedule, explore, explore_up_to, replay};
pub use fault::Fault;
pub use graph::SimGraph;
pub use hazard::{Access, AccessMode, Hazard, HazardKind, StreamLabel};
pub use kernel::{DeviceMemory, Kernel};
pub use live::Live;
