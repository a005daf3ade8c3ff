//! A simulated machine.
//!
//! It is a machine, not a mock: devices with real bytes, finite memory and virtual addresses; streams with queues,
//! events, copies, fills and kernels, which are closures; the rules and the error codes of the real thing.
//!
//! - **Work runs only when it must**, in any order that the program allows: see `schedule.rs`, and
//!   [`SimConfig::seed`].
//! - **Mistakes are found whether or not they have an effect**: [`SimDriver::hazards`].
//! - **Addresses of device memory are never the host's**: a host that follows one faults. Pinned and managed memory
//!   is real memory of the host, at the same address for both.
//! - **Fresh device memory is junk**, never zero, and the same for the same seed.
//! - **Small programs are run under every schedule**: [`explore`], or step by step an [`Exploration`].
//! - **Several processes** on one machine, which lend memory and events to each other and die: [`SimDriver::process`].
//! - **Anything can fail**: [`Fault`], [`SimDriver::poison`], [`SimConfig::attribute`].
//!
//! # When work runs
//!
//! When the host waits for it, or for work behind it; when a query decides, by the seed, to run work; when a pool is out of memory
//! and waits for pending frees. A wait runs the work that it needs, and before, between or after that any other work that could
//! run. So the source of a copy is read late, and work that was not waited for may not have run.
//!
//! A kernel runs on the thread that forces it. A host function runs on a thread of its own; one that does not return stalls its
//! stream and the work that waits for it, and no other stream. A host function in a queue runs within 50 ms even without a wait,
//! as it would on hardware, after the work before it. Apart from that, a program of one thread and one seed has one schedule.
//!
//! # What counts as ordered
//!
//! The order of a stream; an event that was recorded and waited for; the rules of the legacy stream; and the host, when it has
//! waited for work, or a query said that the work was done, or a host function behind it has begun (which may have told the host
//! so). All work that the host submits from then on comes after it. The hosts of several processes are one in this: what one has
//! waited for it may have told the others, through a socket that the machine does not see.
//!
//! # What is not simulated
//!
//! The time that work takes, residency of managed memory, priorities. The simulator cannot see what the host does with its own
//! memory, so it finds races of the host with the device only by their effect. Memory goes to other processes of the same machine
//! and not to those of the operating system; descriptors that stand for it are real, on Linux.

mod access_check;
mod addresses;
mod allocation;
mod backing;
mod blocks;
mod calls;
mod capture;
mod clock;
mod config;
mod context;
mod cost;
#[cfg(target_os = "linux")]
mod descriptor;
mod device_bytes;
mod driver;
mod driver_impl;
mod entry;
mod event;
mod exploration;
mod explore;
mod fault;
mod graph;
mod hazard;
mod history;
mod host_bytes;
mod host_function;
mod imported;
mod kernel;
mod lane;
mod lent;
mod live;
mod machine;
mod memory;
mod opened;
mod pointer;
mod pool;
mod pool_space;
mod process;
mod schedule;
mod sealed;
mod shared_event;
mod sharing;
mod stream;
mod transfer;
mod virtual_memory;

pub use calls::CallCounts;
pub use config::SimConfig;
pub use cost::CostModel;
pub use driver::SimDriver;
pub use exploration::{Exploration, Ran};
pub use explore::{Explored, Schedule, explore, explore_up_to, replay};
pub use fault::Fault;
pub use graph::SimGraph;
pub use hazard::{Access, AccessMode, Hazard, HazardKind, StreamLabel};
pub use kernel::{DeviceMemory, Kernel};
pub use live::Live;
