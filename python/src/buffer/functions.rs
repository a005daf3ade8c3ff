//! Copies by address, and into `bytes`.

#![expect(unsafe_code, reason = "writes into bytes that nobody else has yet")]

use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::Memory;
use super::Snapshot;
use super::host_buffer::{Direction, HostBuffer};
use super::transfer::{Copy, Settled};
use crate::error::{During, raise};
use crate::machine;
use crate::stream::{StreamArgument, StreamHandle};

/// Copies `len(hb)` bytes from the address `db` of a device into `hb`.
#[pyfunction]
#[pyo3(signature = (db, hb, stream=StreamArgument::Missing), text_signature = "(db, hb, stream=...)")]
pub(crate) fn copy_ptr_to_host(
    py: Python<'_>,
    db: u64,
    hb: &Bound<'_, PyAny>,
    stream: StreamArgument,
) -> PyResult<()> {
    let host = HostBuffer::writable(hb, "hb")?;
    let (bytes, device) = (host.bytes(), raise(py, machine::device(), During::Other)?);
    host.copy(py, Direction::ToHost, db, bytes, None, stream.handle(), &device)
}

/// Copies the bytes of `hb` to the address `db` of a device.
#[pyfunction]
#[pyo3(signature = (hb, db, stream=StreamArgument::Missing), text_signature = "(hb, db, stream=...)")]
pub(crate) fn copy_host_to_ptr(
    py: Python<'_>,
    hb: &Bound<'_, PyAny>,
    db: u64,
    stream: StreamArgument,
) -> PyResult<()> {
    let host = HostBuffer::new(hb, "hb")?;
    let (bytes, device) = (host.bytes(), raise(py, machine::device(), During::Other)?);
    host.copy(py, Direction::ToDevice, db, bytes, None, stream.handle(), &device)
}

/// Copies `count` bytes from one address of a device to another. Does not wait.
#[pyfunction]
#[pyo3(signature = (d_src, d_dst, count, stream=StreamArgument::Missing), text_signature = "(d_src, d_dst, count, stream=...)")]
pub(crate) fn copy_device_to_ptr(
    py: Python<'_>,
    d_src: u64,
    d_dst: u64,
    count: usize,
    stream: StreamArgument,
) -> PyResult<()> {
    if count == 0 {
        return Ok(());
    }
    let copy = Copy { to: d_dst, from: d_src, bytes: count };
    let copied = py.detach(|| stream.handle().with(&machine::device()?, |stream| copy.submit(stream)));
    raise(py, copied, During::Copy)
}

/// The bytes of a buffer, copied into one allocation of the host.
pub(super) fn bytes_of<'py>(
    py: Python<'py>,
    of: &Snapshot,
    stream: &StreamHandle,
) -> PyResult<Bound<'py, PyBytes>> {
    let Some(memory) = of.memory.as_ref().filter(|_| of.size > 0) else { return Ok(PyBytes::new(py, b"")) };
    let length = isize::try_from(of.size).map_err(|_| PyMemoryError::new_err(of.size))?;
    // SAFETY: a null pointer asks for bytes that are not initialised; the answer is null with an exception, or a new reference.
    let bytes = unsafe { ffi::PyBytes_FromStringAndSize(core::ptr::null(), length) };
    // SAFETY: as above.
    let bytes = unsafe { Bound::from_owned_ptr_or_err(py, bytes) }?;
    // SAFETY: the object is `bytes`.
    let start = unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) };
    // The object is nobody else's until it is returned, and the collector does not look at bytes: it may be written to.
    let to = start.expose_provenance() as u64;
    let copy = Copy { to, from: memory.address(), bytes: of.size };
    let settled = py.detach(|| {
        let settled = stream.with(memory.device(), |stream| {
            memory.order(stream)?;
            Ok(copy.run(stream))
        });
        settled.unwrap_or_else(|error| Settled::Over(Err(error)))
    });
    match settled {
        Settled::Over(outcome) => {
            raise(py, outcome, During::Copy)?;
            Ok(bytes.cast_into()?)
        }
        Settled::Open(error) => {
            // The device may write to it at any time.
            core::mem::forget(bytes);
            Err(crate::error::exception(py, &error, During::Copy))
        }
    }
}

pub(super) fn require_writable(memory: &Memory) -> PyResult<()> {
    if memory.is_read_only() {
        return Err(PyBufferError::new_err(
            "the buffer is read-only: the library that lent it says so; copy it",
        ));
    }
    Ok(())
}
