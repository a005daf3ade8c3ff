//! Who is the default here?
//!
//! A [`Machine`] is a driver with its devices; a [`Device`] is one of them. Each device has a *current resource*: what
//! containers allocate from when nobody names another.

mod capabilities;
mod current;
#[expect(clippy::module_inception, reason = "file = type")]
mod device;
mod machine;
#[cfg(feature = "sim")]
mod sim;

pub use capabilities::Capabilities;
pub use device::Device;
pub use machine::Machine;
pub(crate) use machine::WeakMachine;
#[cfg(feature = "sim")]
pub use sim::Sim;
