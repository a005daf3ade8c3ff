//! The classes over the driver's own memory pools.

#![expect(unsafe_code, reason = "frees the block that primes a pool")]

use alluvion::driver::{HandleType, RawPool};
use alluvion::source::{CudaAsync, CudaAsyncConfig, CudaAsyncManaged, CudaAsyncView};
use alluvion::{Device, Error, Layout, Resource};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyTuple, PyType};

use super::DeviceMemoryResource;
use super::base::{Made, leaf_of, refuse_arguments};
use crate::argument::Bytes;
use crate::error::{During, named, raise};
use crate::machine;

/// A memory pool of the driver: `cudaMallocAsync`.
///
/// `initial_pool_size` bytes are taken at once. A synchronization leaves `release_threshold` bytes in the pool: all of them
/// if it is left out. `enable_ipc` makes the memory exportable as POSIX file descriptors, `enable_fabric` as fabric handles.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct CudaAsyncMemoryResource;

#[pymethods]
impl CudaAsyncMemoryResource {
    #[new]
    #[pyo3(signature = (initial_pool_size=None, release_threshold=None, enable_ipc=false, enable_fabric=false))]
    fn new(
        py: Python<'_>,
        initial_pool_size: Option<Bytes>,
        release_threshold: Option<Bytes>,
        enable_ipc: bool,
        enable_fabric: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let mut handles = HandleType::NONE;
        if enable_ipc {
            handles = handles.with(HandleType::POSIX_FILE_DESCRIPTOR);
        }
        if enable_fabric {
            handles = handles.with(HandleType::FABRIC);
        }
        let offered = py.detach(|| Ok(machine::device()?.capabilities()?.pool_handle_types));
        let offered = raise(py, offered, During::Construction)?;
        if !offered.contains(handles) {
            let message = "the pools of this device cannot be exported so: Requested IPC memory handle type not supported";
            return Err(named(py, "Unsupported", message));
        }
        let mut config = CudaAsyncConfig::default().handle_types(handles);
        if let Some(Bytes(threshold)) = release_threshold {
            config = config.release_threshold_bytes(threshold as u64);
        }
        let base = match initial_pool_size {
            Some(Bytes(initial)) => {
                leaf_of(py, move |device| Ok(of_driver(primed(device, config, initial)?)))?
            }
            // At its first use: a resource that is set for another device than the current one is made there.
            None => PyClassInitializer::from(DeviceMemoryResource::later(move |device| {
                Ok(of_driver(CudaAsync::with_config(device, config.clone())?))
            })),
        };
        Ok(base.add_subclass(Self))
    }

    /// The driver's handle of the pool.
    fn pool_handle(slf: &Bound<'_, Self>) -> PyResult<u64> {
        slf.as_super().get().pool_handle(slf.py())
    }
}

fn of_driver(pool: CudaAsync) -> Made {
    let handle = pool.raw_pool();
    Made::of_pool(pool, handle)
}

/// A pool that has taken its initial bytes, whatever its threshold: a synchronization may give them back.
fn primed(device: &Device, config: CudaAsyncConfig, initial: usize) -> Result<CudaAsync, Error> {
    let pool = CudaAsync::with_config(device, config)?;
    let layout = Layout::from_bytes(initial)?;
    let block = pool.allocate_sync(layout)?;
    // SAFETY: `allocate_sync` returned it just now, for this layout, and it is unused.
    unsafe { pool.deallocate_sync(block, layout) };
    Ok(pool)
}

/// A memory pool of the driver that another library made, and destroys.
///
/// `pool_handle` is a `cudaMemPool_t` or a `CUmemoryPool` of cuda-bindings. Its owner may destroy the pool at any
/// time but during a call of this object. From then on requests are `MemoryError`, and blocks that are out are freed as always.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct CudaAsyncViewMemoryResource;

#[pymethods]
impl CudaAsyncViewMemoryResource {
    #[new]
    #[pyo3(signature = (pool_handle))]
    fn new(pool_handle: &Bound<'_, PyAny>) -> PyResult<PyClassInitializer<Self>> {
        let py = pool_handle.py();
        let kind = pool_handle.get_type().name()?;
        // By its name, so that cuda-bindings is not imported.
        if !["cudaMemPool_t", "CUmemoryPool"].iter().any(|known| kind == *known) {
            return Err(PyValueError::new_err(format!(
                "pool_handle must be a cudaMemPool_t or a CUmemoryPool of cuda.bindings, and not {kind}"
            )));
        }
        let handle: u64 = py.get_type::<PyInt>().call1((pool_handle,))?.extract()?;
        let base = leaf_of(py, |device| {
            // SAFETY:
            // - the object is a handle of a pool of the current device, by its type: one that was made up is the caller's fault.
            // - the pool is not destroyed during a call: the caller's promise, by the documentation of this class.
            // - the driver refuses the handles of destroyed pools, and keeps what is out: `from_raw_until_destroyed` says which do.
            let view = unsafe { CudaAsyncView::from_raw_until_destroyed(device, RawPool(handle)) }?;
            Ok(Made::of_pool(view, RawPool(handle)))
        })?;
        Ok(base.add_subclass(Self))
    }

    /// The driver's handle of the pool.
    fn pool_handle(slf: &Bound<'_, Self>) -> PyResult<u64> {
        slf.as_super().get().pool_handle(slf.py())
    }
}

/// A memory pool of the driver with managed memory. It needs CUDA 13 and concurrent managed access: `RuntimeError` without.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource.experimental")]
pub(crate) struct CudaAsyncManagedMemoryResource;

#[pymethods]
impl CudaAsyncManagedMemoryResource {
    #[new]
    #[classmethod]
    #[pyo3(signature = (*args, **kwargs), text_signature = "()")]
    fn new(
        cls: &Bound<'_, PyType>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        refuse_arguments(cls, args, kwargs)?;
        let base = leaf_of(cls.py(), |device| {
            let pool = CudaAsyncManaged::new(device)?;
            let handle = pool.raw_pool();
            Ok(Made::of_pool(pool, handle))
        })?;
        Ok(base.add_subclass(Self))
    }

    /// The driver's handle of the pool.
    fn pool_handle(slf: &Bound<'_, Self>) -> PyResult<u64> {
        slf.as_super().get().pool_handle(slf.py())
    }
}
