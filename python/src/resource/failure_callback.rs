//! The class `FailureCallbackResourceAdaptor`.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Weak};

use alluvion::{
    AnyResource, DeviceAccessible, DevicePtr, Error, Layout, Resource, StreamRef, forward_resource,
};
use pyo3::PyTraverseError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;

use super::base::{tower_over, upstream_of};
use super::{Owner, UpstreamResourceAdaptor};
use crate::attached::attach;
use crate::error::{keep_raised, raised_by};

/// Asks `callback(nbytes)` when its upstream is out of memory. If the answer is true, the request is tried again, and the callback asked
/// again if that fails; otherwise the error goes up.
///
/// The callback runs on the thread whose request failed. It may free and allocate; what it allocates itself asks no callback. An
/// exception of it is the cause of the `RuntimeError` that the caller gets.
#[pyclass(extends = UpstreamResourceAdaptor, subclass, frozen, module = "alluvion.rmm.pylibrmm.memory_resource._memory_resource")]
pub(crate) struct FailureCallbackResourceAdaptor {
    /// The stack calls it by a weak handle, so that the collector sees all that holds it: every object that allocates from the stack
    /// holds this one.
    callback: Arc<Py<PyAny>>,
}

#[pymethods]
impl FailureCallbackResourceAdaptor {
    #[new]
    #[pyo3(signature = (upstream_mr, callback))]
    fn new(upstream_mr: &Bound<'_, PyAny>, callback: Py<PyAny>) -> PyResult<PyClassInitializer<Self>> {
        let upstream = AnyResource::clone(upstream_of(upstream_mr)?);
        let tower = tower_over(upstream_mr, 1)?;
        let callback = Arc::new(callback);
        let owner = Owner::new(FailureCallback { upstream, callback: Arc::downgrade(&callback) });
        let base = UpstreamResourceAdaptor::over(tower, owner, upstream_mr);
        Ok(base.add_subclass(Self { callback }))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&*self.callback)
    }
}

/// The layer. The library's own asks at most three times in vain, and not for what no device can have; RMM's asks as long as the
/// answer is true.
struct FailureCallback {
    upstream: AnyResource,
    callback: Weak<Py<PyAny>>,
}

thread_local! {
    /// Whether this thread runs a callback.
    static ASKING: Cell<bool> = const { Cell::new(false) };
}

impl FailureCallback {
    /// Whether to try again.
    fn ask(&self, bytes: usize) -> Result<bool, Error> {
        if ASKING.get() {
            return Ok(false);
        }
        ASKING.set(true);
        let answer = attach(|py| {
            // Gone with the object of the stack, while the stack itself ends.
            let Some(callback) = self.callback.upgrade() else { return Ok(false) };
            let answer = callback.bind(py).call1((bytes,)).and_then(|answer| answer.is_truthy());
            answer.map_err(|raised| {
                let error = raised_by("a failure callback");
                keep_raised(raised);
                error
            })
        });
        ASKING.set(false);
        // Without an interpreter there is nobody to ask.
        answer.unwrap_or(Ok(false))
    }
}

// SAFETY: the blocks are the upstream's, whose id it has and which keeps the contract.
unsafe impl Resource for FailureCallback {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        loop {
            match self.upstream.allocate(layout, stream) {
                Err(error) if error.is_out_of_memory() => {
                    if !self.ask(layout.bytes())? {
                        return Err(error);
                    }
                }
                answer => return answer,
            }
        }
    }

    #[inline]
    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        self.upstream.allocate_at_once(layout, stream)
    }

    forward_resource!(upstream, except allocate, fmt_layer);

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FailureCallback")
    }
}

// SAFETY: the blocks are the upstream's, which are accessible to the device.
unsafe impl DeviceAccessible for FailureCallback {}
