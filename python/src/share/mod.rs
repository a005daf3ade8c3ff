//! How do other processes use the memory of a buffer?
//!
//! What is shared is a core container over [`Lent`](lent::Lent), a resource whose one block is a handle of a buffer's memory: the
//! buffer stays what it is, and its memory lives as long as another process has it. What is opened is a buffer over the container of
//! the other process.

mod class;
mod functions;
mod lent;

pub(crate) use class::Shared;
pub(crate) use functions::{open_shared, share_figures, sharing_devices, sweep_shared};
