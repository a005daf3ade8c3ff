//! The class `Event`.

use alluvion::Event as Recorded;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::pending;
use crate::attached::drop_detached;
use crate::error::{During, raise};

/// A point of a stream, recorded: other streams and the host can wait for it. Made by `Stream.record`.
///
/// A wait for an event includes all waits that its stream had made when it was recorded.
#[pyclass(frozen, weakref, module = "alluvion")]
pub(crate) struct Event {
    /// `None` in the destructor alone.
    recorded: Option<Recorded>,
}

impl Event {
    pub(super) fn of(recorded: Recorded) -> Self {
        Self { recorded: Some(recorded) }
    }

    pub(super) fn recorded(&self) -> Option<&Recorded> {
        self.recorded.as_ref()
    }
}

#[pymethods]
impl Event {
    /// Whether everything before the event is done. Does not wait.
    fn is_complete(&self, py: Python<'_>) -> PyResult<bool> {
        let is_complete = py.detach(|| self.recorded().map_or(Ok(true), Recorded::is_complete));
        raise(py, is_complete, During::Other)
    }

    /// Waits, on the host, until everything before the event is done.
    fn synchronize(&self, py: Python<'_>) -> PyResult<()> {
        let done = py.detach(|| self.recorded().map_or(Ok(()), Recorded::synchronize));
        pending::sweep(py);
        raise(py, done, During::Other)
    }

    /// The number of the device of the stream that it was recorded on.
    #[getter]
    fn device(&self) -> u32 {
        self.recorded().map_or(0, |recorded| recorded.device().ordinal())
    }

    fn __repr__(&self) -> String {
        format!("Event(gpu {})", self.device())
    }

    fn __reduce__(&self) -> PyResult<()> {
        Err(PyTypeError::new_err("an Event cannot be pickled or copied: it is a handle of this process"))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Some(recorded) = self.recorded.take() {
            // The driver may be asked to let go of the event.
            drop_detached(recorded);
        }
    }
}
