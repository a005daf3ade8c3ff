//! What is an allocation for?
//!
//! The scopes of tags are in Python, in a context variable, so that they follow coroutines and threads as Python has them. The
//! library has a tag for each thread. It is set at the borders of a scope, and once more before an allocation, because a coroutine
//! may have been exchanged for another in between.

use alluvion::tag::Tag as CoreTag;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// The context variable with the scopes: `None`, or a pair of the innermost tag and the scopes around it. Not set before the first
/// scope, so that a program without tags pays for a look at an empty cell.
static SCOPES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The name of a scope within another.
#[pyclass(frozen, module = "alluvion._alluvion")]
pub(crate) struct Tag(CoreTag);

#[pymethods]
impl Tag {
    #[new]
    #[pyo3(signature = (name, around=None))]
    fn new(name: &str, around: Option<&Bound<'_, Self>>) -> Self {
        Self(around.map_or(CoreTag::NONE, |around| around.get().0).within(name))
    }

    /// Makes this the tag of the calling thread.
    fn make_current(&self) {
        self.0.make_current();
    }

    /// Leaves the calling thread without a tag.
    #[staticmethod]
    fn make_none_current() {
        CoreTag::NONE.make_current();
    }

    /// The names from the outermost scope on, with semicolons between them.
    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Tag('{}')", self.0)
    }
}

/// Follows the scopes in a context variable from now on. The first variable stays.
#[pyfunction]
pub(crate) fn follow_tags(variable: Bound<'_, PyAny>) {
    let _ = SCOPES.set(variable.py(), variable.unbind());
}

/// Gives the calling thread the tag that its context has now. Called before an allocation.
#[inline]
pub(crate) fn follow(py: Python<'_>) {
    if let Some(scopes) = SCOPES.get(py) {
        follow_in(scopes.bind(py));
    }
}

fn follow_in(scopes: &Bound<'_, PyAny>) {
    let py = scopes.py();
    let innermost = scopes
        .call_method0(pyo3::intern!(py, "get"))
        .ok()
        .and_then(|pair| pair.cast_into::<PyTuple>().ok())
        .and_then(|pair| pair.get_item(0).ok())
        .and_then(|tag| tag.cast_into::<Tag>().ok());
    innermost.map_or(CoreTag::NONE, |tag| tag.get().0).make_current();
}
