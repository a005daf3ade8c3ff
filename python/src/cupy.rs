//! What does CuPy call?
//!
//! For every array a function that makes a `MemoryPointer` of CuPy's. With its own pool that takes CuPy half a microsecond, so the call
//! is made of what it needs: the classes of CuPy are looked up once, and their arguments go by position.

use std::sync::{Arc, Mutex, PoisonError};

use alluvion::{Device, Layout};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyModuleNotFoundError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyMapping, PyModule};

use crate::block::Block;
use crate::buffer::DeviceBuffer;
use crate::ending::prepare;
use crate::error::{During, raise};
use crate::resource::DeviceMemoryResource;
use crate::stream::{StreamArgument, StreamHandle};
use crate::{current, machine};

/// The module that was CuPy at the last call, and what is called of it. What a program puts in the place of these functions later is not seen.
struct OfCupy {
    module: Py<PyAny>,
    current_stream: Py<PyAny>,
    unowned_memory: Py<PyAny>,
    memory_pointer: Py<PyAny>,
}

/// Held for a look or an exchange, and never while anything is dropped.
static OF_CUPY: Mutex<Option<Arc<OfCupy>>> = Mutex::new(None);

/// `sys.modules`.
static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();

impl OfCupy {
    fn now(py: Python<'_>) -> PyResult<Arc<Self>> {
        let modules = MODULES.get_or_try_init(py, || {
            let modules = py.import("sys")?.getattr("modules")?;
            PyResult::Ok(modules.cast_into::<PyDict>()?.unbind())
        })?;
        // Not by `import`, which costs more than an allocation.
        let module = modules.bind(py).get_item(intern!(py, "cupy"))?.filter(|module| !module.is_none());
        if let Some(module) = &module {
            let known = OF_CUPY.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = known.as_ref().filter(|known| known.module.is(module)) {
                return Ok(Arc::clone(known));
            }
        }
        let module = match module {
            Some(module) => module,
            None => import(py)?.into_any(),
        };
        let cuda = module.getattr("cuda")?;
        let found = Arc::new(Self {
            current_stream: cuda.getattr("get_current_stream")?.unbind(),
            unowned_memory: cuda.getattr("UnownedMemory")?.unbind(),
            memory_pointer: cuda.getattr("MemoryPointer")?.unbind(),
            module: module.unbind(),
        });
        let before = OF_CUPY.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&found));
        drop(before);
        Ok(found)
    }

    /// The stream that is current in CuPy. It lives as long as memory of it is out.
    fn stream(&self, py: Python<'_>) -> PyResult<Arc<StreamHandle>> {
        Ok(StreamArgument::of_cupy(&self.current_stream.bind(py).call0()?)?.into_handle())
    }

    /// A pointer of CuPy's to memory that goes with `owner`. With the device CuPy need not ask the driver, and takes an empty block, too.
    fn pointer<'py, O>(
        &self,
        py: Python<'py>,
        address: u64,
        bytes: usize,
        owner: Py<O>,
        device: u32,
    ) -> PyResult<Bound<'py, PyAny>> {
        let memory = self.unowned_memory.bind(py).call1((address, bytes, owner.into_any(), device))?;
        self.memory_pointer.bind(py).call1((memory, 0))
    }
}

/// CuPy, which is missing by its own name if it is missing, and not by a word about this module.
fn import(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("cupy").map_err(|error| {
        let is_missing = error.is_instance_of::<PyModuleNotFoundError>(py)
            && error.value(py).getattr("name").is_ok_and(|name| name.eq("cupy").unwrap_or(false));
        if !is_missing {
            return error;
        }
        let plain = PyModuleNotFoundError::new_err("No module named 'cupy'");
        let _ = plain.value(py).setattr("name", "cupy");
        plain
    })
}

/// Allocates `nbytes` bytes from the current resource, on the stream that is current in CuPy.
///
/// The memory goes back behind the work of that stream, when CuPy drops its last pointer to it.
///
/// >>> import cupy  # doctest: +SKIP
/// >>> cupy.cuda.set_allocator(rmm_cupy_allocator)  # doctest: +SKIP
#[pyfunction]
pub(crate) fn rmm_cupy_allocator(py: Python<'_>, nbytes: usize) -> PyResult<Bound<'_, PyAny>> {
    prepare();
    let of_cupy = OfCupy::now(py)?;
    let (buffer, device) = DeviceBuffer::on_current_device(py, nbytes, of_cupy.stream(py)?)?;
    of_cupy.pointer(py, buffer.ptr(), nbytes, Py::new(py, buffer)?, device)
}

/// Memory that CuPy has: it goes back when CuPy drops its last pointer to it.
#[pyclass(frozen, module = "alluvion._alluvion")]
struct CupyBlock(Option<Block>);

impl Drop for CupyBlock {
    fn drop(&mut self) {
        if let Some(block) = self.0.take() {
            // Attached already. `None` where the interpreter is going: the closure is dropped then, with the block in it.
            let _ = Python::try_attach(|py| block.release(py));
        }
    }
}

/// Whose memory CuPy gets.
enum Source {
    /// That of the resource which is current when it is asked for.
    Current,
    /// That of one resource, on its device.
    One(Py<DeviceMemoryResource>),
    /// That of a resource for each of several devices.
    Each(Vec<Py<DeviceMemoryResource>>),
}

/// An allocator for `cupy.cuda.set_allocator`, over one resource, a stack for each device (`alluvion.per_device`), or what is current.
///
/// An array gets its memory on the stream that is current in CuPy, and gives it back behind the work of that stream.
#[pyclass(frozen, module = "alluvion._alluvion")]
pub(crate) struct CupyAllocator {
    source: Source,
}

#[pymethods]
impl CupyAllocator {
    #[new]
    #[pyo3(signature = (resources=None))]
    fn new(resources: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(resources) = resources else { return Ok(Self { source: Source::Current }) };
        if let Ok(one) = resources.cast::<DeviceMemoryResource>() {
            return Ok(Self { source: Source::One(one.clone().unbind()) });
        }
        let Ok(each) = resources.cast::<PyMapping>() else {
            return Err(PyTypeError::new_err(format!(
                "CuPy's memory comes from a resource, or from a stack for each device, and not from {}",
                resources.get_type().name()?
            )));
        };
        let each = each
            .values()?
            .iter()
            .map(|resource| Ok(resource.cast::<DeviceMemoryResource>()?.clone().unbind()));
        Ok(Self { source: Source::Each(each.collect::<PyResult<_>>()?) })
    }

    /// A `MemoryPointer` of CuPy's to `nbytes` bytes.
    fn __call__<'py>(&self, py: Python<'py>, nbytes: usize) -> PyResult<Bound<'py, PyAny>> {
        prepare();
        let of_cupy = OfCupy::now(py)?;
        let stream = of_cupy.stream(py)?;
        let device = raise(py, machine::device(), During::Other)?;
        let resource = self.resource(py, &device)?;
        let owner = resource.get().owner(py)?;
        raise(py, owner.device().require(&device), During::Allocation)?;
        let block = match nbytes {
            0 => None,
            _ => {
                let made = Layout::from_bytes(nbytes)
                    .and_then(|layout| Block::new(py, owner.clone(), layout, stream));
                Some(raise(py, made, During::Allocation)?)
            }
        };
        let address = block.as_ref().map_or(0, Block::address);
        of_cupy.pointer(py, address, nbytes, Py::new(py, CupyBlock(block))?, device.ordinal())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        match &self.source {
            Source::Current => Ok(()),
            Source::One(one) => visit.call(one),
            Source::Each(each) => each.iter().try_for_each(|one| visit.call(one)),
        }
    }
}

impl CupyAllocator {
    /// The resource for memory of a device.
    fn resource(&self, py: Python<'_>, device: &Device) -> PyResult<Py<DeviceMemoryResource>> {
        match &self.source {
            Source::Current => current::object(py, device),
            Source::One(one) => Ok(one.clone_ref(py)),
            Source::Each(each) => {
                for one in each {
                    if one.get().owner(py)?.device() == device {
                        return Ok(one.clone_ref(py));
                    }
                }
                Err(PyValueError::new_err(format!("there is no stack for device {}", device.ordinal())))
            }
        }
    }
}
