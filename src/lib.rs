//! Stream-ordered GPU and pinned memory in composable, typed layers.

#![cfg_attr(feature = "nightly", feature(allocator_api))]

pub mod container;
pub mod device;
pub mod driver;
mod error;
pub mod host;
pub mod resource;
pub mod source;
pub mod stream;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;

pub use container::{
    DeviceBuffer, DeviceCopy, DeviceScalar, DeviceSlice, DeviceSliceMut, DeviceVec, HostBuffer, PinnedVec,
    RawParts, ReadGuard, Rejected, Transfer, TransferScope, WriteGuard,
};
#[cfg(feature = "sim")]
pub use device::Sim;
pub use device::{Capabilities, Device, Machine};
pub use driver::MemoryInfo;
pub use error::{Error, ErrorKind, Unsupported};
pub use host::{NewDelete, OnHost, PinnedAlloc};
pub use resource::{
    AnyResource, Describe, DeviceAccessible, DevicePtr, HostAccessible, Layout, Resource, ResourceId,
    ResourceRef,
};
pub use stream::{
    Epoch, Event, Frontier, PerThreadStream, Stamp, Stream, StreamFlags, StreamPool, StreamRef,
};
