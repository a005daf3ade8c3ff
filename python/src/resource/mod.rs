//! What is a memory resource for Python?
//!
//! Each class is one concrete type of the library over a stack of any type, so that a tower of classes costs one virtual call a
//! layer. A class owns its stack: nothing depends on the order in which Python lets go of objects.

mod base;
mod binning;
mod callback;
mod driver_pools;
mod failure_callback;
mod limiting;
mod logging;
mod owner;
mod prefetch;
mod sources;
mod statistics;
mod suballocators;
mod tower;
mod tracking;

pub(crate) use base::{DeviceMemoryResource, UpstreamResourceAdaptor};
pub(crate) use binning::BinningMemoryResource;
pub(crate) use callback::CallbackMemoryResource;
pub(crate) use driver_pools::{
    CudaAsyncManagedMemoryResource, CudaAsyncMemoryResource, CudaAsyncViewMemoryResource,
};
pub(crate) use failure_callback::FailureCallbackResourceAdaptor;
pub(crate) use limiting::LimitingResourceAdaptor;
pub(crate) use logging::LoggingResourceAdaptor;
pub(crate) use owner::Owner;
pub(crate) use prefetch::PrefetchResourceAdaptor;
pub(crate) use sources::{
    CudaMemoryResource, ManagedMemoryResource, PinnedHostMemoryResource, SamHeadroomMemoryResource,
    SystemMemoryResource,
};
pub(crate) use statistics::StatisticsResourceAdaptor;
pub(crate) use suballocators::{ArenaMemoryResource, FixedSizeMemoryResource, PoolMemoryResource};
pub(crate) use tower::{Tower, layers};
pub(crate) use tracking::TrackingResourceAdaptor;
