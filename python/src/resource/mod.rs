//! What is a memory resource for Python?
//!
//! Each class is one concrete type of the library over a stack of any type, so that a tower of classes costs one virtual call a
//! layer. A class owns its stack: nothing depends on the order in which Python lets go of objects.

mod base;
mod owner;
mod sources;

pub(crate) use base::{DeviceMemoryResource, UpstreamResourceAdaptor};
pub(crate) use owner::Owner;
pub(crate) use sources::CudaMemoryResource;
