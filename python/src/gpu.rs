//! What does the driver say of itself, of devices and of its errors?
//!
//! The functions raise nothing of their own: a failure is the number of the driver's code, and `rmm._cuda.gpu` has the exceptions.

use alluvion::driver::Code;
use alluvion::{Error, ErrorKind};
use pyo3::prelude::*;

use crate::machine;

/// The driver's number for an error of the library.
fn code_of(error: &Error) -> u32 {
    match (error.code(), error.kind()) {
        (Some(code), _) => code.0,
        (None, ErrorKind::NoDevice) => Code::INVALID_DEVICE.0,
        (None, ErrorKind::OutOfMemory) => Code::OUT_OF_MEMORY.0,
        (None, ErrorKind::ShutDown) => Code::DEINITIALIZED.0,
        (None, ErrorKind::NoDriver) => NO_DRIVER,
        (None, _) => Code::UNKNOWN.0,
    }
}

/// `cudaErrorInsufficientDriver`, which the runtime says without a driver.
const NO_DRIVER: u32 = 35;

/// A value and no code, or no value and a code.
type Answer<T> = (Option<T>, u32);

fn answer<T>(result: Result<T, Error>) -> Answer<T> {
    match result {
        Ok(value) => (Some(value), 0),
        Err(error) => (None, code_of(&error)),
    }
}

/// The number of the device that is current for the calling thread.
#[pyfunction]
pub(crate) fn gpu_current(py: Python<'_>) -> Answer<u32> {
    answer(py.detach(|| machine::device().map(|device| device.ordinal())))
}

/// Makes a device current for the calling thread.
#[pyfunction]
pub(crate) fn gpu_set_current(py: Python<'_>, ordinal: u32) -> Answer<()> {
    answer(py.detach(|| machine::active()?.device(ordinal)?.make_current()))
}

/// How many devices there are.
#[pyfunction]
pub(crate) fn gpu_count(py: Python<'_>) -> Answer<usize> {
    answer(py.detach(|| Ok(machine::active()?.devices().len())))
}

/// The version of the driver, as CUDA numbers it: 0 without one.
#[pyfunction]
pub(crate) fn driver_version(py: Python<'_>) -> u32 {
    py.detach(|| machine::active().map_or(0, |machine| machine.driver().version()))
}

/// One property of a device, by its number in CUDA.
#[pyfunction]
pub(crate) fn gpu_attribute(py: Python<'_>, number: i32, ordinal: u32) -> Answer<i32> {
    answer(py.detach(|| {
        let device = machine::active()?.device(ordinal)?;
        Ok(device.driver().attribute_by_number(device.ordinal(), number)?)
    }))
}

/// The name of a device.
#[pyfunction]
pub(crate) fn gpu_name(py: Python<'_>, ordinal: u32) -> Answer<String> {
    answer(py.detach(|| machine::active()?.device(ordinal)?.name()))
}

/// The name and the words of a code of the driver.
#[pyfunction]
pub(crate) fn gpu_error(py: Python<'_>, code: u32) -> (Option<String>, Option<String>) {
    let code = Code(code);
    let asked = py.detach(|| {
        let machine = machine::active().ok()?;
        Some((machine.driver().code_name(code), machine.driver().code_text(code)))
    });
    asked.unwrap_or_else(|| (code.name().map(str::to_owned), code.text().map(str::to_owned)))
}
