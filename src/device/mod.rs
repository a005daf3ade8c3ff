//! Machines and their devices.
//!
//! A [`Machine`] is a driver with its devices; a [`Device`] is one of them; [`Sim`] is a machine without hardware.

mod attachments;
mod capabilities;
#[expect(clippy::module_inception, reason = "file = type")]
mod device;
#[cfg(unix)]
mod dma_buf;
mod machine;
mod named;
mod retired_pools;
#[cfg(feature = "sim")]
mod sim;

pub(crate) use attachments::Attachment;
pub use capabilities::Capabilities;
pub use device::Device;
pub use machine::Machine;
pub(crate) use machine::WeakMachine;
pub(crate) use retired_pools::RetiredPools;
#[cfg(feature = "sim")]
pub use sim::Sim;
