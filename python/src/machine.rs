//! Which machine and which device does a call mean?
//!
//! A call means the simulated machine that was entered last, in any thread, and otherwise the machine that `ALLUVION_DRIVER` names, or
//! that of CUDA. The device is the
//! one that is current for the calling thread.

use std::sync::{OnceLock, PoisonError, RwLock};

use alluvion::{Device, Error, Machine};
use pyo3::prelude::*;

use crate::error::{During, raise};

/// The simulated machines that were entered and not left, the last one last.
static ENTERED: RwLock<Vec<Machine>> = RwLock::new(Vec::new());

/// The machine of hardware, once there is one. A look at the environment and its text cost as much as an allocation.
static HARDWARE: OnceLock<Machine> = OnceLock::new();

/// The machine that calls mean.
pub(crate) fn active() -> Result<Machine, Error> {
    // The lock is held for a clone or a push, and never while anything is waited for.
    if let Some(machine) = ENTERED.read().unwrap_or_else(PoisonError::into_inner).last() {
        return Ok(machine.clone());
    }
    if let Some(machine) = HARDWARE.get() {
        return Ok(machine.clone());
    }
    let machine = Machine::of_environment()?;
    Ok(HARDWARE.get_or_init(|| machine).clone())
}

/// Whether calls mean a simulated machine.
pub(crate) fn is_simulated() -> bool {
    !ENTERED.read().unwrap_or_else(PoisonError::into_inner).is_empty()
}

/// Makes `machine` the one that calls mean.
pub(crate) fn enter(machine: Machine) {
    ENTERED.write().unwrap_or_else(PoisonError::into_inner).push(machine);
}

/// Ends the meaning of the newest entry of `machine`.
pub(crate) fn leave(machine: &Machine) {
    let mut entered = ENTERED.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(place) = entered.iter().rposition(|entry| entry == machine) {
        entered.remove(place);
    }
}

/// The device that is current for the calling thread.
pub(crate) fn device() -> Result<Device, Error> {
    active()?.current_device()
}

/// The device that is current for the calling thread, with a context that is current too: for a call after which RMM leaves one.
pub(crate) fn device_in_context() -> Result<Device, Error> {
    let machine = active()?;
    ensure_context(&machine);
    machine.current_device()
}

/// Makes a context current on the calling thread if none is, as every call of CUDA's runtime does: programs for RMM go on with the
/// driver right after a call of its. What needs a context says why there is none.
pub(crate) fn ensure_context(machine: &Machine) {
    let _ = machine.driver().ensure_context();
}

/// A device by its number, and the current one without a number.
pub(crate) fn device_or_current(ordinal: Option<u32>) -> Result<Device, Error> {
    match ordinal {
        Some(ordinal) => active()?.device(ordinal),
        None => device(),
    }
}

/// The number of the device that is current for the calling thread.
#[pyfunction]
pub(crate) fn current_device(py: Python<'_>) -> PyResult<u32> {
    raise(py, py.detach(device), During::Other).map(|device| device.ordinal())
}

/// Makes a device current for the calling thread.
#[pyfunction]
pub(crate) fn set_current_device(py: Python<'_>, device: u32) -> PyResult<()> {
    raise(py, py.detach(|| active()?.device(device)?.make_current()), During::Other)
}

/// How many devices the machine has: none without a driver.
#[pyfunction]
pub(crate) fn device_count(py: Python<'_>) -> usize {
    py.detach(|| active().map_or(0, |machine| machine.devices().len()))
}

/// The free and the total bytes of a device.
#[pyfunction]
#[pyo3(signature = (device=None))]
pub(crate) fn memory_info(py: Python<'_>, device: Option<u32>) -> PyResult<(usize, usize)> {
    let info = py.detach(|| {
        let device = device_or_current(device)?;
        ensure_context(device.machine());
        device.memory_info()
    });
    raise(py, info, During::Other).map(|info| (info.free_bytes, info.total_bytes))
}
