//! The classes that have no upstream.

use alluvion::Device;
use alluvion::source::Cuda;
use pyo3::prelude::*;

use super::{DeviceMemoryResource, Owner};

/// Memory straight from the driver: `cudaMalloc`, with nothing kept.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct CudaMemoryResource;

impl CudaMemoryResource {
    /// The class, for a device.
    pub(crate) fn of(device: &Device) -> PyClassInitializer<Self> {
        let base = DeviceMemoryResource::over(Owner::new(Cuda::new(device)));
        PyClassInitializer::from(base).add_subclass(Self)
    }
}

#[pymethods]
impl CudaMemoryResource {
    #[new]
    fn new() -> PyClassInitializer<Self> {
        let base = DeviceMemoryResource::later(|device| Ok(Owner::new(Cuda::new(device))));
        PyClassInitializer::from(base).add_subclass(Self)
    }
}
