//! Which Python exception says what went wrong?
//!
//! The classes are Python's, in `alluvion/errors.py`: a stable module cannot derive from built-in exceptions before Python 3.12. An
//! error of the library is turned into an instance there, by the name of its kind and the place where it happened.

use std::cell::RefCell;

use alluvion::tag::Tag;
use alluvion::{Error, ErrorKind};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::attached::{attach, interrupt};
use crate::ending::prepare;

/// What was being done when an error came. The same error is another exception in another place, as RMM has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum During {
    /// A request for memory: whatever the driver says is `MemoryError`.
    Allocation,
    /// The making of a resource: what cannot be is `RuntimeError`.
    Construction,
    /// A copy that the driver was asked for.
    Copy,
    /// Anything else.
    Other,
}

impl During {
    const fn name(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Construction => "construction",
            Self::Copy => "copy",
            Self::Other => "other",
        }
    }
}

/// The exception for an error.
pub(crate) fn exception(py: Python<'_>, error: &Error, during: During) -> PyErr {
    prepare();
    match instance(py, error, during) {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// `result`, with its error as an exception.
pub(crate) fn raise<T>(py: Python<'_>, result: Result<T, Error>, during: During) -> PyResult<T> {
    // What a function raised in a request that was served in the end is no cause of anything.
    let raised = if during == During::Other { None } else { take_raised() };
    result.map_err(|error| match raised {
        Some(raised) => caused(py, &raised),
        None => exception(py, &error, during),
    })
}

thread_local! {
    /// What a function of the user's has raised in the request that this thread makes now.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Keeps what a function of the user's has raised, so that the request which called it can say so: an error of the library carries no
/// object of Python.
pub(crate) fn keep_raised(raised: PyErr) {
    // A thread that is ending keeps none. Attached.
    let before = RAISED.try_with(|place| place.replace(Some(raised)));
    drop(before);
}

/// What a function has raised on this thread since the last look.
fn take_raised() -> Option<PyErr> {
    RAISED.try_with(RefCell::take).ok().flatten()
}

/// The error of a request whose function, `what` by name, has raised another exception than one of memory: nobody tries it again.
pub(crate) fn raised_by(what: &str) -> Error {
    Error::foreign(format!("{what} has raised an exception"))
}

/// Forgets what was raised before, on a thread that is attached.
pub(crate) fn forget_raised() {
    drop(take_raised());
}

/// What was raised before, for people: on a thread that may not be attached. An interrupt of the keyboard is raised again in the main
/// thread, because nobody passes it on.
pub(crate) fn tell_raised() -> Option<String> {
    let raised = take_raised()?;
    let mut raised = Some(raised);
    let told = attach(|py| {
        let raised = raised.take()?;
        if raised.is_instance_of::<PyKeyboardInterrupt>(py) {
            interrupt(py);
        }
        Some(raised.to_string())
    });
    // Without an interpreter there is nobody to give it back to.
    core::mem::forget(raised);
    told.flatten()
}

/// The exception of a request that failed because a function of the user's raised another.
fn caused(py: Python<'_>, raised: &PyErr) -> PyErr {
    prepare();
    let exception =
        py.import("alluvion.errors").and_then(|errors| errors.getattr("_caused")?.call1((raised.value(py),)));
    match exception {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

/// An exception of a class of `alluvion.errors`, by the name of the class.
pub(crate) fn named(py: Python<'_>, class: &str, message: &str) -> PyErr {
    let exception = py.import("alluvion.errors").and_then(|errors| errors.getattr(class)?.call1((message,)));
    match exception {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
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
    let mut message = error.to_string();
    if let Some(report) = error.out_of_memory_report() {
        facts.set_item("report", report.to_string())?;
        facts.set_item("layer", report.refused_by)?;
        let memory = report.upstream_memory.filter(|_| report.reserved_bytes == 0);
        facts.set_item("free", memory.map_or(report.free_bytes, |memory| memory.free_bytes))?;
        facts.set_item("largest", report.largest_bytes)?;
        facts.set_item("tag", Tag::current().to_string())?;
        if let Some(limit) = report.maximum_bytes {
            // The report counts in units for people; a program looks for the figures.
            let (wanted, live) = (report.requested_bytes, report.live_bytes);
            message = format!("{message} (requested {wanted} bytes, allocated {live}, limit {limit})");
        }
    }
    build.bind(py).call1((kind_name(error.kind()), during.name(), message, facts))
}

/// The name of a kind, which is that of its class.
fn kind_name(kind: ErrorKind) -> String {
    format!("{kind:?}")
}
