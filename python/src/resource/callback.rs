//! The class `CallbackMemoryResource`.

#![expect(unsafe_code, reason = "passes on the promises of functions of Python")]

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use alluvion::source::Callback;
use alluvion::stream::StreamKind;
use alluvion::{DevicePtr, Error, Layout, StreamRef};
use pyo3::PyTraverseError;
use pyo3::exceptions::{PyMemoryError, PyRecursionError, PyRuntimeError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::{DeviceMemoryResource, Owner};
use crate::attached::attach;
use crate::error::{During, keep_raised, raise, raised_by};
use crate::machine;
use crate::stream::{Stream, StreamHandle};

/// A resource that is written in Python: `allocate_func(nbytes, stream)` returns an address, and
/// `deallocate_func(ptr, nbytes, stream)` takes it back.
///
/// The functions are called on whatever thread allocates or frees, with exactly the size that was asked for. The address must be
/// that of memory which the device may use, a multiple of 256. An exception of `allocate_func` is the cause of the `MemoryError` or
/// `RuntimeError` that the caller gets; one of `deallocate_func` goes to `sys.unraisablehook`.
///
/// The functions are needed until the last block is back, so the collector does not take an object that holds the resource, buffers of
/// it, and its own methods as the functions: let go of the buffers first.
#[pyclass(extends = DeviceMemoryResource, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct CallbackMemoryResource {
    /// Made by `__init__`, so that a class that derives from this one can pass methods of its own.
    made: OnceLock<Made>,
}

struct Made {
    functions: Arc<Functions>,
    /// One more handle, to see who else has the stack. It is dropped before that of the base class.
    owner: Owner,
}

/// Two functions of Python, which live as long as anything can still be freed: the one that allocates, and the one that frees. `None` once
/// the collector has found that nothing can. Held for a look or an exchange, and never while a function runs or is dropped.
struct Functions(Mutex<Option<[Py<PyAny>; 2]>>);

#[pymethods]
impl CallbackMemoryResource {
    #[new]
    #[pyo3(signature = (*_args, **_kwargs), text_signature = "(allocate_func, deallocate_func)")]
    fn new(_args: &Bound<'_, PyTuple>, _kwargs: Option<&Bound<'_, PyDict>>) -> PyClassInitializer<Self> {
        PyClassInitializer::from(DeviceMemoryResource::without_memory())
            .add_subclass(Self { made: OnceLock::new() })
    }

    #[pyo3(signature = (allocate_func, deallocate_func))]
    fn __init__(slf: &Bound<'_, Self>, allocate_func: Py<PyAny>, deallocate_func: Py<PyAny>) -> PyResult<()> {
        let py = slf.py();
        let functions = Arc::new(Functions(Mutex::new(Some([allocate_func, deallocate_func]))));
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
        let made = Made { functions, owner: owner.clone() };
        if slf.get().made.set(made).is_err() {
            return Err(PyRuntimeError::new_err("a CallbackMemoryResource has its functions for good"));
        }
        slf.as_super().get().give(owner)?;
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Some(made) = self.made.get() else { return Ok(()) };
        // While anything else has the stack, its functions are needed from outside of the collector's sight.
        if made.owner.is_needed_beside(2) {
            return Ok(());
        }
        // A thread that holds the lock calls a function just now.
        let Ok(functions) = made.functions.0.try_lock() else { return Ok(()) };
        functions.iter().flatten().try_for_each(|function| visit.call(function))
    }

    /// The functions may be methods of this very object, and a method cannot let go of its own.
    fn __clear__(&self) {
        if let Some(made) = self.made.get() {
            let gone = made.functions.held().take();
            drop(gone);
        }
    }
}

impl Functions {
    fn held(&self) -> MutexGuard<'_, Option<[Py<PyAny>; 2]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function at a place: 0 allocates, and 1 frees.
    fn at(&self, py: Python<'_>, place: usize) -> Option<Py<PyAny>> {
        self.held().as_ref().map(|functions| functions[place].clone_ref(py))
    }

    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<u64, Error> {
        let bytes = layout.bytes();
        let answer = attach(|py| {
            let Some(function) = self.at(py, 0) else { return Err(Error::out_of_memory(bytes)) };
            let answer = Nested::enter()
                .and_then(|_nested| function.bind(py).call1((bytes, python_stream(py, stream)?)))
                .and_then(|address| address.extract::<u64>());
            answer.map_err(|raised| {
                let is_lack = raised.is_instance_of::<PyMemoryError>(py);
                keep_raised(raised);
                if is_lack { Error::out_of_memory(bytes) } else { raised_by("a function that allocates") }
            })
        });
        // Without an interpreter there is no function to ask.
        answer.unwrap_or_else(|| Err(Error::out_of_memory(bytes)))
    }

    fn free(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // Without an interpreter the block leaks.
        let _ = attach(|py| {
            let Some(function) = self.at(py, 1) else { return };
            let function = function.bind(py);
            let freed = Nested::enter().and_then(|_nested| {
                function.call1((block.address(), layout.bytes(), python_stream(py, stream)?))
            });
            if let Err(raised) = freed {
                raised.write_unraisable(py, Some(function));
            }
        });
    }
}

/// A call of a function, which may allocate and so call a function again.
struct Nested {
    is_outermost: bool,
}

thread_local! {
    /// Where the stack of this thread was at the outermost call of a function. 0 outside of any.
    static OUTERMOST: Cell<usize> = const { Cell::new(0) };
}

/// The most bytes of stack between two calls of functions, the one in the other: an eighth of what a thread has by default. Python's
/// own limit counts its frames, and not those of the resources between them.
const MOST_STACK: usize = 1 << 20;

impl Nested {
    fn enter() -> PyResult<Self> {
        let local = 0_u8;
        let here = core::ptr::from_ref(core::hint::black_box(&local)).addr();
        match OUTERMOST.get() {
            0 => {
                OUTERMOST.set(here);
                Ok(Self { is_outermost: true })
            }
            outermost if outermost.abs_diff(here) <= MOST_STACK => Ok(Self { is_outermost: false }),
            _ => Err(PyRecursionError::new_err(
                "functions of CallbackMemoryResource that allocate are nested too deep: does one ask the resource that it is of?",
            )),
        }
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        if self.is_outermost {
            OUTERMOST.set(0);
        }
    }
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
