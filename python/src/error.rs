//! Which Python exception says what went wrong?
//!
//! The classes are Python's, in `alluvion/errors.py`: a stable module cannot derive from built-in exceptions before Python 3.12. An
//! error of the library is turned into an instance there, by the name of its kind and the place where it happened.

use alluvion::{Error, ErrorKind};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

/// What was being done when an error came. The same error is another exception in another place, as RMM has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum During {
    /// A request for memory: whatever the driver says is `MemoryError`.
    Allocation,
    /// The making of a resource: what cannot be is `RuntimeError`.
    Construction,
    /// Anything else.
    Other,
}

impl During {
    const fn name(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Construction => "construction",
            Self::Other => "other",
        }
    }
}

/// The exception for an error.
pub(crate) fn exception(py: Python<'_>, error: &Error, during: During) -> PyErr {
    match instance(py, error, during) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// `result`, with its error as an exception.
pub(crate) fn raise<T>(py: Python<'_>, result: Result<T, Error>, during: During) -> PyResult<T> {
    result.map_err(|error| exception(py, &error, during))
}

fn instance<'py>(py: Python<'py>, error: &Error, during: During) -> PyResult<Bound<'py, PyAny>> {
    static BUILD: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let build =
        BUILD.get_or_try_init(py, || py.import("alluvion.errors")?.getattr("_build").map(Bound::unbind))?;
    let facts = PyDict::new(py);
    facts.set_item("requested", error.requested_bytes())?;
    facts.set_item("limit", error.limit())?;
    facts.set_item("code", error.code().map(|code| code.0))?;
    facts.set_item("line", error.line())?;
    facts.set_item("column", error.column())?;
    facts.set_item("report", error.out_of_memory_report().map(ToString::to_string))?;
    build.bind(py).call1((kind_name(error.kind()), during.name(), error.to_string(), facts))
}

/// The name of a kind, which is that of its class.
fn kind_name(kind: ErrorKind) -> String {
    format!("{kind:?}")
}
