//! The functions of sharing.

#![expect(unsafe_code, reason = "duplicates a descriptor that a caller names by its number")]

use std::os::fd::{BorrowedFd, OwnedFd};

use alluvion::share::{self, Import, Message};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::buffer::{DeviceBuffer, Memory, Opened};
use crate::error::{During, raise};
use crate::machine;
use crate::stream::StreamArgument;

/// Opens memory that another process shares: see `alluvion.open_shared`.
#[pyfunction]
#[pyo3(signature = (message, fd=None, stream=StreamArgument::Missing, device=None, writable=false, peer=false))]
pub(crate) fn open_shared(
    py: Python<'_>,
    message: &[u8],
    fd: Option<i32>,
    stream: StreamArgument,
    device: Option<u32>,
    writable: bool,
    peer: bool,
) -> PyResult<DeviceBuffer> {
    let message = raise(py, Message::from_bytes(message), During::Other)?;
    let descriptor = fd.map(duplicate).transpose()?;
    let opened = py.detach(|| {
        let device = machine::device_or_current(device)?;
        let stream = stream.into_handle().pinned_to_thread(&device)?;
        let mut import = Import::new(&message);
        if let Some(descriptor) = descriptor {
            import = import.descriptor(descriptor);
        }
        if peer {
            import = import.peer();
        }
        let opened = stream.with(&device, |named| {
            device.require(named.device())?;
            if writable {
                import.open_bytes_mut(named).map(Opened::Writable)
            } else {
                import.open_bytes(named).map(Opened::ReadOnly)
            }
        })?;
        Ok((opened, device, stream))
    });
    let (opened, device, stream) = raise(py, opened, During::Other)?;
    let bytes = message.bytes();
    let memory = Memory::opened(opened, device, stream.clone());
    Ok(DeviceBuffer::lent(Some(memory), bytes, stream))
}

/// A copy of a descriptor: the caller keeps his own.
fn duplicate(fd: i32) -> PyResult<OwnedFd> {
    if fd < 0 {
        return Err(PyValueError::new_err(format!("{fd} is no descriptor")));
    }
    // SAFETY: the descriptor is open during the call, if it is one; if it is not, the system refuses to duplicate it, and nothing else
    // is done with it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned().map_err(PyErr::from)
}

/// Frees what was shared and let go while other processes had it, if they have it no longer. Returns how many that were.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub(crate) fn sweep_shared(py: Python<'_>, device: Option<u32>) -> PyResult<usize> {
    let swept = py.detach(|| Ok(share::sweep(&machine::device_or_current(device)?)));
    raise(py, swept, During::Other)
}

/// The imports of a device and their bytes; what it has let go while others had it, and the bytes of that.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub(crate) fn share_figures(py: Python<'_>, device: Option<u32>) -> PyResult<(usize, usize, usize, usize)> {
    let status = py.detach(|| Ok(share::status(&machine::device_or_current(device)?)));
    let status = raise(py, status, During::Other)?;
    Ok((status.imports, status.imported_bytes, status.parked, status.parked_bytes))
}

/// Whose devices a process means, and the numbers by which every process knows those that a device reaches, itself first: so that
/// another process can tell whether what it shares can be opened here.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub(crate) fn sharing_devices(py: Python<'_>, device: Option<u32>) -> PyResult<(bool, Vec<String>)> {
    let found = py.detach(|| {
        let device = machine::device_or_current(device)?;
        let Some(sharing) = device.driver().sharing() else { return Ok(Vec::new()) };
        let mut reached = vec![hexadecimal(sharing.device_uuid(device.ordinal())?)];
        for other in device.machine().devices().filter(|other| *other != device) {
            if device.can_reach(&other)? {
                reached.push(hexadecimal(sharing.device_uuid(other.ordinal())?));
            }
        }
        Ok(reached)
    });
    Ok((machine::is_simulated(), raise(py, found, During::Other)?))
}

/// A number as people write it.
pub(super) fn hexadecimal(number: [u8; 16]) -> String {
    number.iter().map(|byte| format!("{byte:02x}")).collect()
}
