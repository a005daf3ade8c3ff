//! The class `CallbackMemoryResource`.

#![expect(unsafe_code, reason = "passes on the promises of functions of Python")]

use std::sync::Arc;

use alluvion::source::Callback;
use alluvion::stream::StreamKind;
use alluvion::{DevicePtr, Error, Layout, StreamRef};
use pyo3::PyTraverseError;
use pyo3::exceptions::PyMemoryError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use super::{DeviceMemoryResource, Owner};
use crate::error::{During, keep_raised, raise};
use crate::machine;
use crate::stream::{Stream, StreamHandle};

/// A resource that is written in Python: `allocate_func(nbytes, stream)` returns an address, and
/// `deallocate_func(ptr, nbytes, stream)` takes it back.
///
/// The functions are called on whatever thread allocates or frees, with exactly the size that was asked for. The address must be
/// that of memory which the device may use, a multiple of 256. An exception of `allocate_func` is the cause of the `MemoryError` or
/// `RuntimeError` that the caller gets; one of `deallocate_func` goes to `sys.unraisablehook`.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct CallbackMemoryResource {
    functions: Arc<Functions>,
    /// One more handle, to see who else has the stack. It is dropped before that of the base class.
    owner: Owner,
}

/// Two functions of Python, which live as long as anything can still be freed.
struct Functions {
    allocate: Py<PyAny>,
    deallocate: Py<PyAny>,
}

#[pymethods]
impl CallbackMemoryResource {
    #[new]
    #[pyo3(signature = (allocate_func, deallocate_func))]
    fn new(
        py: Python<'_>,
        allocate_func: Py<PyAny>,
        deallocate_func: Py<PyAny>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let functions = Arc::new(Functions { allocate: allocate_func, deallocate: deallocate_func });
        let device = raise(py, py.detach(machine::device), During::Construction)?;
        let (to_allocate, to_free) = (Arc::clone(&functions), Arc::clone(&functions));
        // SAFETY: the author of the functions promises what the documentation of the class says: an address is that of memory
        // which the device may use, and which no other block has. An address that was made up is the author's fault.
        let resource = unsafe {
            Callback::new(
                &device,
                move |layout: Layout, stream: StreamRef<'_>| to_allocate.allocate(layout, stream),
                move |block: DevicePtr, layout: Layout, stream: StreamRef<'_>| {
                    to_free.free(block, layout, stream);
                },
            )
        };
        let owner = Owner::new(resource);
        let base = DeviceMemoryResource::over(owner.clone());
        Ok(PyClassInitializer::from(base).add_subclass(Self { functions, owner }))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // While anything else has the stack, its functions are needed from outside of the collector's sight.
        if !self.owner.is_needed_beside(2) {
            visit.call(&self.functions.allocate)?;
            visit.call(&self.functions.deallocate)?;
        }
        Ok(())
    }
}

impl Functions {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<u64, Error> {
        let bytes = layout.bytes();
        let answer = Python::try_attach(|py| {
            let answer = python_stream(py, stream)
                .and_then(|stream| self.allocate.bind(py).call1((bytes, stream)))
                .and_then(|address| address.extract::<u64>());
            answer.map_err(|raised| {
                let is_lack = raised.is_instance_of::<PyMemoryError>(py);
                keep_raised(raised);
                if is_lack { Error::out_of_memory(bytes) } else { refused() }
            })
        });
        // Without an interpreter there is no function to ask.
        answer.unwrap_or_else(|| Err(Error::out_of_memory(bytes)))
    }

    fn free(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // Without an interpreter the block leaks.
        let _ = Python::try_attach(|py| {
            let function = self.deallocate.bind(py);
            let freed = python_stream(py, stream)
                .and_then(|stream| function.call1((block.address(), layout.bytes(), stream)));
            if let Err(raised) = freed {
                raised.write_unraisable(py, Some(function));
            }
        });
    }
}

fn refused() -> Error {
    Error::invalid_argument("a function that allocates", "it raised an exception", "see the cause")
}

/// The stream as an object. RMM calls the default stream 0.
fn python_stream<'py>(py: Python<'py>, stream: StreamRef<'_>) -> PyResult<Bound<'py, Stream>> {
    let handle = match stream.raw().0 {
        0 | 1 => StreamHandle::Default(0),
        2 => StreamHandle::PerThread,
        // It is lent for a call: an object that the function keeps knows no more of it than its number.
        number if stream.to_stream().kind() == StreamKind::Foreign => StreamHandle::from_number(number, None),
        _ => StreamHandle::Owned(stream.to_stream()),
    };
    Bound::new(py, Stream::of(Arc::new(handle)))
}
