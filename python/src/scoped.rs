//! Which resource has a scope of this thread chosen?
//!
//! The scopes are in Python, in a context variable: a thread and an `asyncio` task have their own.

use alluvion::Device;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::resource::DeviceMemoryResource;

/// The context variable with the scopes: `None`, or a pair of a resource and the scopes around it. Not set before the first scope.
static SCOPES: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Follows the scopes in a context variable from now on. The first variable stays.
#[pyfunction]
pub(crate) fn follow_resources(variable: Bound<'_, PyAny>) {
    let _ = SCOPES.set(variable.py(), variable.unbind());
}

/// The resource that the innermost scope of the calling thread has chosen for `device`, if there is one.
#[inline]
pub(crate) fn resource(py: Python<'_>, device: &Device) -> PyResult<Option<Py<DeviceMemoryResource>>> {
    match SCOPES.get(py) {
        None => Ok(None),
        Some(scopes) => find(scopes.bind(py), device),
    }
}

fn find(scopes: &Bound<'_, PyAny>, device: &Device) -> PyResult<Option<Py<DeviceMemoryResource>>> {
    let py = scopes.py();
    let mut at = scopes.call_method0(pyo3::intern!(py, "get"))?;
    while let Ok(pair) = at.cast_into::<PyTuple>() {
        if let Ok(resource) = pair.get_item(0)?.cast_into::<DeviceMemoryResource>()
            && resource.get().owner(py)?.device() == device
        {
            return Ok(Some(resource.unbind()));
        }
        at = pair.get_item(1)?;
    }
    Ok(None)
}
