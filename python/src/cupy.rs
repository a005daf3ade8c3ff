//! What does CuPy call?
//!
//! A function that makes a `MemoryPointer` of CuPy's for every array. An array of CuPy takes a microsecond and a half by itself, so the
//! call is made of what it needs: the classes of CuPy are looked up once, and their arguments go by position.

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

use crate::buffer::DeviceBuffer;
use crate::ending::prepare;
use crate::stream::StreamArgument;

/// The module that was CuPy at the last call, and what is called of it.
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

fn of_cupy(py: Python<'_>) -> PyResult<Arc<OfCupy>> {
    let modules = MODULES.get_or_try_init(py, || {
        py.import("sys")?.getattr("modules")?.cast_into::<PyDict>().map(Bound::unbind).map_err(PyErr::from)
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
    let found = Arc::new(OfCupy {
        current_stream: cuda.getattr("get_current_stream")?.unbind(),
        unowned_memory: cuda.getattr("UnownedMemory")?.unbind(),
        memory_pointer: cuda.getattr("MemoryPointer")?.unbind(),
        module: module.unbind(),
    });
    let before = OF_CUPY.lock().unwrap_or_else(PoisonError::into_inner).replace(Arc::clone(&found));
    drop(before);
    Ok(found)
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
    let of_cupy = of_cupy(py)?;
    let stream = StreamArgument::of_cupy(&of_cupy.current_stream.bind(py).call0()?)?.into_handle();
    let (buffer, device) = DeviceBuffer::on_current_device(py, nbytes, stream)?;
    let address = buffer.ptr();
    // With the device CuPy need not ask the driver, and takes an empty block, too.
    let memory = of_cupy.unowned_memory.bind(py).call1((address, nbytes, Py::new(py, buffer)?, device))?;
    of_cupy.memory_pointer.bind(py).call1((memory, 0))
}
