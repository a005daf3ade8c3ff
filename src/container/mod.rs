//! What does a user hold?
//!
//! Two owners of memory of a device: [`DeviceVec`] of elements, which is a [`DeviceBuffer`] where they are bytes, and
//! [`DeviceScalar`] of one. Parts of them are borrowed as [`DeviceSlice`] and [`DeviceSliceMut`].
//!
//! # Stream ordering
//!
//! A container has a *home*: the stream that its block was allocated on, and will be given back on. Every operation
//! names the stream that it runs on, and that may be any stream. What has to come first comes first, on the device:
//!
//! - an operation on another stream follows all that is on the home stream when it is called, and the writes of other
//!   streams; one that writes follows their reads, too;
//! - the home stream follows all uses before the block is given back.
//!
//! So a container may be used on any stream, and dropped at once: what RMM documents as undefined is what works here.
//! On one stream it costs an uncontended lock a call and no driver call; a second stream costs one event for each
//! call.
//!
//! While a stream captures a graph, what has to wait for another stream is refused with an error that leaves the
//! capture whole, and so are copies with the host: the graph would run them when the memory is gone. On a stream that
//! this crate did not make, and on a thread's default stream, everything but a guard is refused then: cudarc's safe
//! functions could launch the graph when the container is gone. On a stream of somebody else's another thread may begin
//! a capture at any moment: so a copy with the host keeps the order of such a stream, and is on one of this crate's own.
//!
//! A kernel is launched with an address, and Rust does not see which memory it touches. The address therefore comes
//! from a guard, [`ReadGuard`] or [`WriteGuard`], that names the stream. A guard that is leaked delays at worst.
//!
//! # Memory of the host
//!
//! A borrow ends when a call returns, a copy by the device later. Hence three forms: calls that wait; transfers that
//! own the host's buffer, [`Transfer`]; and a scope that waits before the borrows end,
//! [`Stream::scope`](crate::Stream::scope).

pub(crate) mod access;
mod asleep;
pub(crate) mod block;
mod capture;
mod chunks;
mod courier;
mod device_buffer;
mod device_copy;
mod device_scalar;
mod device_slice;
mod device_slice_mut;
mod device_vec;
mod forward;
mod guard;
mod guarded_ptr;
mod host_buffer;
mod lent;
pub(crate) mod owned;
#[cfg(feature = "bytemuck")]
mod plain;
mod raw_parts;
mod settle;
mod transfer;
mod transfer_scope;
mod uses;

pub use asleep::Asleep;
pub use chunks::{Chunks, ChunksExact, ChunksExactMut, ChunksMut};
pub use device_buffer::DeviceBuffer;
pub use device_copy::DeviceCopy;
#[doc(hidden)]
pub use device_copy::bytes_of_field;
#[cfg(feature = "bytemuck")]
#[doc(hidden)]
pub use device_copy::require_pod;
pub use device_scalar::DeviceScalar;
pub use device_slice::DeviceSlice;
pub use device_slice_mut::DeviceSliceMut;
pub use device_vec::DeviceVec;
pub use guard::{ReadGuard, WriteGuard};
pub use guarded_ptr::GuardedPtr;
pub use host_buffer::HostBuffer;
pub(crate) use lent::Lent;
#[cfg(feature = "bytemuck")]
pub use plain::Plain;
pub use raw_parts::RawParts;
pub use transfer::Transfer;
pub use transfer_scope::TransferScope;
