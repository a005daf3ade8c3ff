//! The class `Stream`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use alluvion::StreamFlags;
use pyo3::exceptions::{PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyTraverseError, intern};

use super::{Event, StreamArgument, StreamHandle, pending};
use crate::ending::prepare;
use crate::error::{During, raise};
use crate::machine;

/// A CUDA stream: a new one, or one that another library made.
#[pyclass(subclass, frozen, weakref, module = "alluvion.rmm.pylibrmm.stream")]
pub(crate) struct Stream {
    handle: Arc<StreamHandle>,
}

impl Stream {
    /// The stream itself.
    pub(crate) fn handle(&self) -> &Arc<StreamHandle> {
        &self.handle
    }

    /// A stream for Python.
    pub(crate) fn of(handle: Arc<StreamHandle>) -> Self {
        Self { handle }
    }
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (obj=None, flags=None))]
    fn new(
        py: Python<'_>,
        obj: Option<&Bound<'_, PyAny>>,
        flags: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let handle = match (obj, flags) {
            (None, flags) => {
                let flags =
                    flags.map_or(Ok(StreamFlags { blocking: true, ..StreamFlags::default() }), flags_of)?;
                let made = py.detach(|| machine::device_in_context()?.stream_with(flags));
                Arc::new(StreamHandle::owned(raise(py, made, During::Other)?))
            }
            (Some(_), Some(_)) => {
                return Err(PyValueError::new_err("flags may only be specified when obj is None"));
            }
            (Some(object), None) => handle_of(object)?,
        };
        Ok(Self { handle })
    }

    /// The version of the stream protocol, which is 0, and the handle.
    fn __cuda_stream__(&self) -> (u32, u64) {
        (0, self.handle.number())
    }

    /// Waits until all work on the stream is done.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let done =
            py.detach(|| self.handle.with(&machine::device_in_context()?, |stream| stream.synchronize()));
        pending::sweep(py);
        raise(py, done, During::Other)
    }

    /// The point that the stream has come to, for others to wait for.
    fn record(&self, py: Python<'_>) -> PyResult<Event> {
        let recorded =
            py.detach(|| self.handle.with(&machine::device_in_context()?, |stream| stream.record()));
        raise(py, recorded, During::Other).map(Event::of)
    }

    /// Makes later work on this stream wait, on the device, for the event.
    fn wait_event(&self, py: Python<'_>, event: &Bound<'_, Event>) -> PyResult<()> {
        let event = event.get().recorded();
        let waited = py.detach(|| {
            let Some(event) = event else { return Ok(()) };
            self.handle.with(&machine::device_in_context()?, |stream| stream.wait_event(event))
        });
        raise(py, waited, During::Other)
    }

    /// Makes later work on this stream wait, on the device, for all that is on the other stream now.
    fn wait_for_stream(&self, py: Python<'_>, stream: StreamArgument) -> PyResult<()> {
        let other = stream.handle();
        let waited = py.detach(|| {
            let device = machine::device_in_context()?;
            self.handle.with(&device, |stream| other.with(&device, |other| stream.wait_for_stream(other)))
        });
        raise(py, waited, During::Other)
    }

    /// Whether this is the default stream: its handle is 0 or 1.
    fn is_default(&self) -> bool {
        self.handle.is_default()
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().handle.number() == self.handle.number())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.handle.number().hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("Stream({})", self.handle.name())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("a Stream cannot be pickled or copied: it is a handle of this process"))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // The owner belongs to this object while nobody else holds the stream and the library does not know it: who does keeps the
        // owner alive from outside of the collector's sight, because its last call for the stream comes when it is dropped. There
        // is no `__clear__`.
        match (Arc::strong_count(&self.handle), self.handle.idle_owner()) {
            (1, Some(owner)) => visit.call(owner),
            _ => Ok(()),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let handle = core::mem::replace(&mut self.handle, StreamArgument::Missing.into_handle());
        // Attached already; `None` where the interpreter is going, and then the closure is dropped with the handle in it.
        let _ = Python::try_attach(|py| handle.release(py));
    }
}

/// The flags that an object stands for.
pub(super) fn flags_of(flags: &Bound<'_, PyAny>) -> PyResult<StreamFlags> {
    match flags.extract::<u32>() {
        Ok(0) => Ok(StreamFlags { blocking: true, ..StreamFlags::default() }),
        Ok(1) => Ok(StreamFlags::default()),
        Ok(other) => Err(PyValueError::new_err(format!("{other} is no member of CudaStreamFlags"))),
        Err(_) => Err(PyTypeError::new_err(format!(
            "Argument 'flags' has incorrect type (expected CudaStreamFlags, got {})",
            flags.get_type().name()?
        ))),
    }
}

/// The stream that an object stands for: one of ours, one of the stream protocol, or one of a library that has a protocol of
/// its own. None of these libraries is imported to find out.
pub(super) fn handle_of(object: &Bound<'_, PyAny>) -> PyResult<Arc<StreamHandle>> {
    if let Ok(stream) = object.cast::<Stream>() {
        return Ok(Arc::clone(&stream.get().handle));
    }
    let py = object.py();
    prepare();
    if let Some(method) = object.getattr_opt(intern!(py, "__cuda_stream__"))? {
        return Ok(of_number(protocol_handle(&method.call0()?)?, object));
    }
    match foreign_number(object)? {
        Some(number) => Ok(of_number(number, object)),
        None => Err(PyTypeError::new_err(format!("Cannot create stream from {}", object.get_type().repr()?))),
    }
}

fn of_number(number: u64, owner: &Bound<'_, PyAny>) -> Arc<StreamHandle> {
    Arc::new(StreamHandle::from_number(number, Some(owner.clone().unbind())))
}

/// The handle in what `__cuda_stream__()` returned.
fn protocol_handle(answer: &Bound<'_, PyAny>) -> PyResult<u64> {
    let pair = answer.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let Some(pair) = pair else {
        return Err(PyTypeError::new_err("__cuda_stream__() must return a pair of a version and a handle"));
    };
    let version: i64 = pair.get_item(0)?.extract()?;
    if version != 0 {
        return Err(PyNotImplementedError::new_err(format!(
            "the stream protocol in version: '{version}' is not known, only version 0"
        )));
    }
    pair.get_item(1)?.extract()
}

/// The handle of a stream of Numba, CuPy or an older PyTorch, by the name of its type and the attribute that it has.
fn foreign_number(object: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let py = object.py();
    let kind = object.get_type();
    let module = kind.module()?;
    let module = module.to_cow()?;
    if module.starts_with("numba") && kind.name()?.to_cow()? == "Stream" {
        return py.import("builtins")?.getattr("int")?.call1((object,))?.extract().map(Some);
    }
    if module.starts_with("cupy") {
        return object.getattr(intern!(py, "ptr"))?.extract().map(Some);
    }
    match object.getattr_opt(intern!(py, "cuda_stream"))? {
        Some(number) => Ok(number.extract().ok()),
        None => Ok(None),
    }
}
