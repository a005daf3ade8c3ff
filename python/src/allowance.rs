//! What of a limit is set aside, and who hears that it is nearly used up?

use std::sync::{Arc, Mutex, PoisonError, Weak};

use alluvion::adaptor::{Allowance, Crossing, Reservation as Reserved};
use pyo3::prelude::*;

use crate::attached::{attach, drop_detached};

/// Bytes of a limit that are set aside. They go back at the end of a `with` block, by `release()`, or with the object.
#[pyclass(frozen, weakref, module = "alluvion")]
pub(crate) struct Reservation {
    /// Held for a look or an exchange, and never while anything goes back.
    held: Mutex<Option<Reserved>>,
}

impl Reservation {
    pub(crate) fn of(reserved: Reserved) -> Self {
        Self { held: Mutex::new(Some(reserved)) }
    }

    fn take(&self) -> Option<Reserved> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Reservation {
    /// The bytes that are still reserved, in whole units of 256.
    #[getter]
    fn bytes(&self) -> usize {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map_or(0, Reserved::bytes)
    }

    /// Gives the bytes back. Nothing if they are back.
    fn release(&self, py: Python<'_>) {
        let reserved = self.take();
        // A limit that processes share may have to be waited for.
        py.detach(move || drop(reserved));
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.release(py);
    }

    fn __repr__(&self) -> String {
        format!("Reservation({} bytes)", self.bytes())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(reserved) = self.take() {
            drop_detached(reserved);
        }
    }
}

/// Sets the soft limit of an allowance, if it is said, and has `observer` called each time that it is crossed. The caller keeps the
/// observer: once it is gone, nobody is called.
pub(crate) fn on_soft(allowance: &Allowance, soft: Option<usize>, observer: &Arc<Py<PyAny>>) {
    let observer = Arc::downgrade(observer);
    let mut allowance = allowance.clone();
    if let Some(soft) = soft {
        allowance = allowance.soft(soft);
    }
    drop(allowance.on_soft(move |crossing| tell(&observer, crossing)));
}

/// Calls an observer that is written in Python, on the thread of the request, which holds no lock of ours.
fn tell(observer: &Weak<Py<PyAny>>, crossing: &Crossing<'_>) {
    // Without an interpreter there is nobody to tell.
    let _ = attach(|py| {
        let Some(observer) = observer.upgrade() else { return };
        let allowance = crossing.allowance;
        let facts = (allowance.name(), crossing.used_bytes, crossing.soft_bytes, allowance.limit_bytes());
        if let Err(raised) = observer.bind(py).call1(facts) {
            raised.write_unraisable(py, Some(observer.bind(py)));
        }
    });
}
