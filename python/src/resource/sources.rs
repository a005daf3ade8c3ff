//! The classes that take memory from the driver or the host a block at a time.

use alluvion::Device;
use alluvion::source::{Cuda, Managed, Pinned, System, SystemConfig};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::base::{leaf, refuse_arguments};
use super::{DeviceMemoryResource, Owner};
use crate::argument::Bytes;

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
    #[classmethod]
    #[pyo3(signature = (*args, **kwargs), text_signature = "()")]
    fn new(
        cls: &Bound<'_, PyType>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        refuse_arguments(cls, args, kwargs)?;
        let base = DeviceMemoryResource::later(|device| Ok(Owner::new(Cuda::new(device)).into()));
        Ok(PyClassInitializer::from(base).add_subclass(Self))
    }
}

/// Managed memory: `cudaMallocManaged`. Its pages move to where they are used; nothing advises or prefetches them unasked.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct ManagedMemoryResource;

#[pymethods]
impl ManagedMemoryResource {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*args, **kwargs), text_signature = "()")]
    fn new(
        cls: &Bound<'_, PyType>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        refuse_arguments(cls, args, kwargs)?;
        // A device without it is told of at the first request, because the constructor of RMM's class never fails.
        let base = DeviceMemoryResource::later(|device| Ok(Owner::new(Managed::new(device)?).into()));
        Ok(PyClassInitializer::from(base).add_subclass(Self))
    }
}

/// Page-locked memory of the host, which the device reads and writes in place.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct PinnedHostMemoryResource;

#[pymethods]
impl PinnedHostMemoryResource {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*args, **kwargs), text_signature = "()")]
    fn new(
        cls: &Bound<'_, PyType>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        refuse_arguments(cls, args, kwargs)?;
        let base = DeviceMemoryResource::later(|device| Ok(Owner::new(Pinned::new(device)?).into()));
        Ok(PyClassInitializer::from(base).add_subclass(Self))
    }
}

/// Ordinary memory of the host, on devices that read pageable memory: with HMM or ATS. `RuntimeError` on others.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct SystemMemoryResource;

#[pymethods]
impl SystemMemoryResource {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*args, **kwargs), text_signature = "()")]
    fn new(
        cls: &Bound<'_, PyType>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        refuse_arguments(cls, args, kwargs)?;
        Ok(leaf(cls.py(), System::new)?.add_subclass(Self))
    }
}

/// Ordinary memory of the host, as `SystemMemoryResource`, placed so that `headroom` bytes of the device stay free.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct SamHeadroomMemoryResource;

#[pymethods]
impl SamHeadroomMemoryResource {
    #[new]
    #[pyo3(signature = (headroom))]
    fn new(py: Python<'_>, headroom: Bytes) -> PyResult<PyClassInitializer<Self>> {
        let config = SystemConfig::default().headroom_bytes(headroom.0);
        Ok(leaf(py, |device| System::with_config(device, config))?.add_subclass(Self))
    }
}
