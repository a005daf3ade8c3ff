//! The class `Shared`.

use core::time::Duration;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use alluvion::share::{Message, ShareConfig};
use alluvion::{Device, Error};
use pyo3::exceptions::{PyTimeoutError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::functions::hexadecimal;
use super::lent::{Loan, lend};
use crate::buffer::Snapshot;
use crate::error::{During, named, raise};
use crate::stream::StreamArgument;

/// Whoever waits for the end asks again after so long, and then after twice as long, up to the second: an end is noticed soon, and a
/// long wait costs little. A signal is noticed as late as that, too.
const FIRST_NAP: Duration = Duration::from_micros(100);
const LONGEST_NAP: Duration = Duration::from_millis(10);

/// Memory of a buffer that other processes can open: what `DeviceBuffer.share` returns.
#[pyclass(frozen, weakref, module = "alluvion")]
pub(crate) struct Shared {
    /// `None` once it has ended. Waited for by detached threads alone, and held while the system is asked who has the memory.
    loan: Mutex<Option<Loan>>,
    /// Set with `loan`, for those that cannot wait. Relaxed: it orders nothing.
    is_over: AtomicBool,
    message: Message,
    /// Of the memory. Knows a child of a fork, where another thread of the parent may have the lock for ever.
    device: Device,
}

impl Shared {
    /// Shares what a buffer has.
    pub(crate) fn of(
        py: Python<'_>,
        of: &Snapshot,
        stream: StreamArgument,
        is_writable: bool,
    ) -> PyResult<Self> {
        if of.memory.as_ref().is_some_and(|memory| memory.block().is_none()) {
            let message = "memory that another library or another process lends cannot be shared: copy it to a buffer of this process";
            return Err(named(py, "Unsupported", message));
        }
        let config = ShareConfig::default();
        let config = if is_writable { config.writable() } else { config };
        let stream = stream.into_handle();
        let loan = py.detach(|| {
            let device = of.device()?;
            let loan = stream.with(&device, |stream| {
                if let Some(memory) = &of.memory {
                    of.stream.with(&device, |own| {
                        memory.used_on(own);
                        Ok(())
                    })?;
                }
                lend(of.memory.clone(), of.size, config, stream)
            })?;
            Ok((loan, device))
        });
        let (loan, device) = raise(py, loan, During::Other)?;
        let message = loan.message().clone();
        Ok(Self { loan: Mutex::new(Some(loan)), is_over: AtomicBool::new(false), message, device })
    }

    fn loan(&self) -> Result<MutexGuard<'_, Option<Loan>>, Error> {
        self.device.require(&self.device)?;
        Ok(self.loan.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What comes of the descriptor, which is open meanwhile.
    fn descriptor(
        &self,
        py: Python<'_>,
        look: impl FnOnce(BorrowedFd<'_>) -> std::io::Result<i32> + Send,
    ) -> PyResult<i32> {
        if !self.message.needs_descriptor() {
            return Err(PyValueError::new_err(
                "the memory needs no descriptor: the message is all that is sent",
            ));
        }
        let seen = py.detach(|| Ok(self.loan()?.as_ref().and_then(|loan| loan.descriptor()).map(look)));
        match raise(py, seen, During::Other)? {
            Some(number) => Ok(number?),
            None => Err(PyValueError::new_err("it is over: nobody can open the memory any more")),
        }
    }

    /// Ends it if no process has the memory, and returns whether it has ended. The calling thread is detached.
    fn try_end(&self) -> Result<bool, Error> {
        let ended = {
            let mut loan = self.loan()?;
            let Some(shared) = loan.take() else { return Ok(true) };
            match shared.try_end() {
                Ok(buffer) => {
                    self.is_over.store(true, Ordering::Relaxed);
                    buffer
                }
                Err(shared) => {
                    let known = shared.importers();
                    *loan = Some(shared);
                    return known.map(|_| false);
                }
            }
        };
        // Without the lock: it may be the last handle of a block of anybody's resource.
        drop(ended);
        Ok(true)
    }
}

#[pymethods]
impl Shared {
    /// The bytes to send, by which another process opens the memory.
    #[getter]
    fn message<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.message.to_bytes())
    }

    /// How many bytes are shared.
    #[getter]
    fn nbytes(&self) -> usize {
        self.message.bytes()
    }

    /// How many bytes become visible to an importer, at least: all of the allocation, or of the pages, that the memory lies in.
    #[getter]
    fn visible_bytes(&self) -> usize {
        self.message.visible_bytes()
    }

    /// Whether importers may write.
    #[getter]
    fn is_writable(&self) -> bool {
        self.message.is_writable()
    }

    /// Whether a descriptor must be sent beside the message, over a Unix socket.
    #[getter]
    fn needs_descriptor(&self) -> bool {
        self.message.needs_descriptor()
    }

    /// The number by which every process knows the device of the memory, in hexadecimal.
    #[getter]
    fn device_uuid(&self) -> String {
        hexadecimal(self.message.device_uuid())
    }

    /// Whether it has ended. Nobody can open the memory then.
    #[getter]
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// How many processes have the memory open.
    #[getter]
    fn importers(&self, py: Python<'_>) -> PyResult<usize> {
        let counted = py.detach(|| self.loan()?.as_ref().map_or(Ok(0), |loan| loan.importers()));
        raise(py, counted, During::Other)
    }

    /// The descriptor to send beside the message, which is open as long as this is not over.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        self.descriptor(py, |descriptor| Ok(descriptor.as_raw_fd()))
    }

    /// A descriptor of the caller's own to send: the other one may be closed by a thread that ends this, and its number be another's.
    fn _descriptor(&self, py: Python<'_>) -> PyResult<i32> {
        self.descriptor(py, |descriptor| Ok(descriptor.try_clone_to_owned()?.into_raw_fd()))
    }

    /// Waits until no process has the memory open, and ends it.
    #[pyo3(signature = (timeout=None))]
    fn end(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let deadline = match timeout {
            None => None,
            Some(seconds) if seconds >= 0.0 => Duration::try_from_secs_f64(seconds)
                .ok()
                .and_then(|timeout| Instant::now().checked_add(timeout)),
            Some(seconds) => {
                return Err(PyValueError::new_err(format!(
                    "timeout is a number of seconds, 0 or more, and not {seconds}"
                )));
            }
        };
        let mut nap = FIRST_NAP;
        loop {
            let ended = py.detach(|| self.try_end());
            if raise(py, ended, During::Other)? {
                return Ok(());
            }
            py.check_signals()?;
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(PyTimeoutError::new_err(
                    "a process still has the memory open: it is shared as before",
                ));
            }
            let now = left.map_or(nap, |left| left.min(nap));
            py.detach(|| thread::sleep(now));
            nap = (2 * nap).min(LONGEST_NAP);
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Waits as `end` does, unless an exception is on its way.
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        _value: Option<&Bound<'_, PyAny>>,
        _traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        if kind.is_some() { Ok(()) } else { self.end(py, None) }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import(intern!(py, "alluvion._sharing"))?.call_method1(intern!(py, "_reduce"), (slf,))
    }

    fn __repr__(&self) -> String {
        let access = if self.message.is_writable() { "to be written" } else { "to be read" };
        let over = if self.is_over() { ", over" } else { "" };
        format!("Shared({} bytes {access}, by {:?}{over})", self.message.bytes(), self.message.way())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(loan) = self.loan.get_mut().unwrap_or_else(PoisonError::into_inner).take() else { return };
        // Attached already, wherever the collector runs this; `None` where the interpreter is going: the closure is dropped then, with
        // the loan in it.
        let _ = Python::try_attach(|py| py.detach(|| drop(loan)));
    }
}
