//! What is a buffer for Python?
//!
//! `DeviceBuffer` is a size within a `Memory`, and a memory is a block of ours, a tensor that another library lent, or
//! memory that another process shares. Whoever uses
//! a memory has a handle of it, so that nothing goes while a copy of another thread runs, or while a tensor of ours is out.

mod array_interface;
mod asleep;
mod class;
mod functions;
mod growing;
mod host_buffer;
mod imported;
mod many;
mod memory;
mod opened;
mod saved;
mod snapshot;
mod transfer;
mod view;

pub(crate) use class::DeviceBuffer;
pub(crate) use functions::{copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host};
pub(crate) use imported::{Deleter, Imported};
pub(crate) use many::allocate_many;
pub(crate) use memory::Memory;
pub(crate) use opened::Opened;
pub(crate) use saved::{restore_blocks, save_blocks, saved_blocks};
pub(crate) use snapshot::Snapshot;
pub(crate) use view::{DeviceView, Form};
