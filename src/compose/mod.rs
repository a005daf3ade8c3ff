//! How is a stack built, and asked?
//!
//! [`ResourceExt`] has one method for each layer, named after it, for every resource: stacks are built from the inside out. It
//! stands above all layers, so that the contract of [`Resource`](crate::Resource) knows none of them.
//!
//! What a stack can do as a whole, whatever its type: [`AnyResource::sleep`](crate::AnyResource::sleep), and
//! [`AnyResource::capture`](crate::AnyResource::capture).
//!
//! [`Machine::per_device`](crate::Machine::per_device) builds a stack for every device at once: a [`PerDevice`].

mod per_device;
mod per_device_error;
mod per_device_figures;
mod resource_ext;
#[cfg(unix)]
mod segment_descriptor;
mod stack_graph_memory;
mod stack_sleeper;

pub use per_device::{Iter, PerDevice};
pub use per_device_error::PerDeviceError;
pub use resource_ext::ResourceExt;
pub use stack_graph_memory::StackGraphMemory;
pub(crate) use stack_graph_memory::leave_to_graph;
pub use stack_sleeper::StackSleeper;
