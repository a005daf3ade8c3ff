//! Pinned memory of the host, for arrays.

#![expect(unsafe_code, reason = "hands memory out by the buffer protocol, and frees it")]

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use alluvion::source::{Pinned, PinnedConfig};
use alluvion::suballoc::Growth;
use alluvion::{Device, DevicePtr, Error, Frontier, Layout, Machine, Pool, PoolConfig, Resource};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::{During, raise};
use crate::machine;
use crate::stream::StreamArgument;

/// The pool of a device, and its device.
type Pooled = (Device, Arc<Pool<Pinned>>);

/// The pools that were asked for. Held for a look, and never while memory is pinned.
static POOLS: Mutex<Vec<Pooled>> = Mutex::new(Vec::new());

fn known(device: &Device) -> Option<Arc<Pool<Pinned>>> {
    let pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    pools.iter().find(|(of, _)| of == device).map(|(_, pool)| Arc::clone(pool))
}

/// The pool of a device's pinned memory.
pub(crate) fn pool_of(device: &Device) -> Result<Arc<Pool<Pinned>>, Error> {
    if let Some(pool) = known(device) {
        return Ok(pool);
    }
    // Exact: the time of a large array is that of touching its pages, and none is touched to spare.
    let source = Pinned::with_config(device, PinnedConfig::default())?;
    let made = Arc::new(Pool::new(source, PoolConfig::default().growth(Growth::Exact))?);
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    // Of two threads that make one, the second takes that of the first.
    match pools.iter().find(|(of, _)| of == device) {
        Some((_, pool)) => Ok(Arc::clone(pool)),
        None => {
            pools.push((device.clone(), Arc::clone(&made)));
            Ok(made)
        }
    }
}

/// Forgets the pools of a machine that was left. The memory goes when the last array over it goes.
pub(crate) fn forget(py: Python<'_>, machine: &Machine) {
    let gone: Vec<Pooled> = {
        let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
        pools.extract_if(.., |(device, _)| device.machine() == machine).collect()
    };
    py.detach(|| drop(gone));
}

/// A block of pinned memory, with the buffer protocol. It goes back to its pool when the last view of it goes: behind the work on
/// the legacy default stream and the streams that wait for it, and behind the streams that it was told of.
#[pyclass(frozen, weakref, module = "alluvion.pinned")]
pub(crate) struct PinnedBlock {
    pool: Arc<Pool<Pinned>>,
    address: DevicePtr,
    layout: Layout,
    uses: Mutex<Frontier>,
}

#[pymethods]
impl PinnedBlock {
    #[new]
    fn new(py: Python<'_>, nbytes: usize) -> PyResult<Self> {
        let made = py.detach(|| {
            let layout = Layout::from_bytes(nbytes)?;
            let pool = pool_of(&machine::device()?)?;
            let address = pool.allocate_sync(layout)?;
            Ok(Self { pool, address, layout, uses: Mutex::new(Frontier::quiescent()) })
        });
        raise(py, made, During::Allocation)
    }

    /// Where the memory is, for the host and for the devices: 0 if there is none.
    #[getter]
    fn ptr(&self) -> u64 {
        if self.layout.is_empty() { 0 } else { self.address.address() }
    }

    /// How many bytes it has.
    #[getter]
    fn nbytes(&self) -> usize {
        self.layout.bytes()
    }

    /// Notes that the work submitted to a stream so far uses the block: the free waits for it, on the device.
    fn used_on(&self, py: Python<'_>, stream: StreamArgument) -> PyResult<()> {
        let noted = py.detach(|| {
            let stream = stream.into_handle().to_stream(self.pool.device())?;
            self.uses.lock().unwrap_or_else(PoisonError::into_inner).extend(stream.release());
            Ok(())
        });
        raise(py, noted, During::Other)
    }

    /// # Safety
    ///
    /// Called by the interpreter, with a view to fill.
    unsafe fn __getbuffer__(slf: &Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let block = slf.get();
        let address = usize::try_from(block.address.address()).unwrap_or(0);
        let bytes = ffi::Py_ssize_t::try_from(block.layout.bytes()).unwrap_or(0);
        // SAFETY:
        // - `view` is not null, and the interpreter passes one that may be written;
        // - the memory is the host's, has that many bytes, and lives while the object does, which the view holds;
        // - it may be written, as flag 0 says: nobody has a reference into it but the views.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(
                view,
                slf.as_ptr(),
                core::ptr::with_exposed_provenance_mut(address),
                bytes,
                0,
                flags,
            )
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }

    fn __repr__(&self) -> String {
        format!("PinnedBlock({} bytes at {:#x})", self.nbytes(), self.ptr())
    }
}

impl Drop for PinnedBlock {
    fn drop(&mut self) {
        let mut free = || {
            let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
            let stream = self.pool.device().default_stream();
            // Where the stream cannot wait, the block leaks: the device is lost, or the process is another one.
            if !uses.is_empty() && stream.as_ref().wait_for(uses).is_err() {
                return;
            }
            // SAFETY:
            // - the block came from this pool with this layout, and goes with `self`;
            // - no view is left, because each holds the object: the host uses it no more. Copies that the package made were
            //   submitted to blocking streams, which the legacy default stream comes behind, or noted in `uses`.
            unsafe { self.pool.deallocate(self.address, self.layout, stream.as_ref()) };
        };
        if Python::try_attach(|py| py.detach(&mut free)).is_none() {
            // The interpreter is going, and with it the process: its memory goes, too.
        }
    }
}

/// Gives the pinned memory that no array uses back to the system. Returns how many bytes went.
#[pyfunction]
pub(crate) fn trim_pinned(py: Python<'_>, keep: usize) -> PyResult<usize> {
    let trimmed = py.detach(|| known(&machine::device()?).map_or(Ok(0), |pool| pool.trim(keep)));
    raise(py, trimmed, During::Other)
}

/// How many bytes of pinned memory the pool of the current device holds, and how many of them are in arrays.
#[pyfunction]
pub(crate) fn pinned_bytes(py: Python<'_>) -> PyResult<(usize, usize)> {
    let held = py.detach(|| {
        Ok(known(&machine::device()?).map_or((0, 0), |pool| {
            let status = pool.status();
            (status.reserved_bytes, status.live_bytes)
        }))
    });
    raise(py, held, During::Other)
}
