//! cudarc: its contexts and streams as ours, its memory as a vector of ours, our memory as arguments of its launches.
//!
//! The methods are those of the types that they make: [`Device::from_cudarc`](crate::Device::from_cudarc),
//! [`Stream::from_cudarc`](crate::Stream::from_cudarc), [`DeviceVec::from_cudarc`](crate::DeviceVec::from_cudarc),
//! [`ReadGuard::for_cudarc`](crate::ReadGuard::for_cudarc), [`WriteGuard::for_cudarc`](crate::WriteGuard::for_cudarc),
//! [`GraphMemory::end_cudarc`](crate::GraphMemory::end_cudarc).

mod bridge;
mod cudarc_graph;
mod cudarc_memory;
mod cudarc_view;

pub use cudarc_graph::CudarcGraph;
pub use cudarc_memory::CudarcMemory;
pub use cudarc_view::{CudarcView, CudarcViewMut};
