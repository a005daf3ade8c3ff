//! What the C functions do, without their ABI.

#![expect(unsafe_code, reason = "takes streams and blocks that C names by bare numbers")]

use std::sync::{Mutex, PoisonError};

use alluvion::driver::RawStream;
use alluvion::{AnyResource, Device, DevicePtr, Error, ErrorKind, Layout, Resource, Stream};
use pyo3::prelude::*;

use super::bounds;
use crate::error::forget_raised;
use crate::machine;

/// What went wrong last, for who wonders why PyTorch got nothing. Held to store or to copy a text.
static LAST_ERROR: Mutex<Option<String>> = Mutex::new(None);

/// What the last request of PyTorch failed by that did, in words: PyTorch itself is only told that there is no memory.
#[pyfunction]
pub(crate) fn torch_last_error() -> Option<String> {
    LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The stream of a raw handle.
///
/// # Safety
///
/// `raw` is a live stream of the device, or names a default stream. It is live until the stream is dropped.
unsafe fn stream_of(device: &Device, raw: RawStream) -> Result<Stream, Error> {
    // SAFETY: the caller's promise.
    unsafe { device.raw_streams().stream(raw) }
}

/// A device by the number that C passes; the current one for a negative number.
fn device_of(ordinal: i32) -> Result<Device, Error> {
    machine::device_or_current(u32::try_from(ordinal).ok())
}

/// Allocates from the current resource of a device. No bytes, and a failure, are address 0; `Err` is a failure.
///
/// # Safety
///
/// As [`stream_of`].
pub(super) unsafe fn allocate(bytes: usize, ordinal: i32, raw: RawStream) -> Result<u64, ()> {
    if bytes == 0 {
        return Ok(0);
    }
    // SAFETY: the caller's promise.
    unsafe { try_allocate(bytes, ordinal, raw) }.map_err(|error| {
        let text = error.to_string();
        *LAST_ERROR.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        // No caller in Python is told of it, and the next request of this thread must not be.
        forget_raised();
    })
}

/// # Safety
///
/// As [`stream_of`].
unsafe fn try_allocate(bytes: usize, ordinal: i32, raw: RawStream) -> Result<u64, Error> {
    let layout = Layout::from_bytes(bytes)?;
    let device = device_of(ordinal)?;
    let owner = device.current_resource()?;
    // SAFETY: the caller's promise.
    let stream = unsafe { stream_of(&device, raw) }?;
    bounds::take(device.ordinal(), bytes).map_err(|_| Error::out_of_memory(bytes))?;
    let allocated = with_current(&device, || device.ledger().allocate(&owner, layout, stream.as_ref()));
    if allocated.is_err() {
        bounds::give_back(device.ordinal(), bytes);
    }
    Ok(allocated?.address())
}

/// Calls `body` with `device` current for this thread, and makes the device before it current again. A resource written in Python
/// may ask which one is.
fn with_current<T>(device: &Device, body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let before = device.machine().current_device()?;
    if before == *device {
        return body();
    }
    device.make_current()?;
    let done = body();
    before.make_current()?;
    done
}

/// The device whose ledger has a block: the one that the call names, or another one of the machine.
fn device_with(block: DevicePtr, ordinal: i32) -> Option<Device> {
    let has = |device: &Device| device.ledger().is_out(block);
    let machine = machine::active().ok()?;
    let named = u32::try_from(ordinal).ok().and_then(|ordinal| machine.device(ordinal).ok());
    named.filter(has).or_else(|| machine.devices().find(has))
}

/// Gives a block back to the resource that it came from, behind the work on its stream and on those that were recorded. A block
/// that is not known is left alone: one that a parent process made or that is of another machine, or no block.
///
/// # Safety
///
/// As [`stream_of`]. Nothing uses the block from now on but work that is submitted to these streams.
pub(super) unsafe fn deallocate(address: u64, ordinal: i32, raw: RawStream) {
    let Some(block) = DevicePtr::new(address) else { return };
    let Some(device) = device_with(block, ordinal) else { return };
    // SAFETY: the caller's promise.
    let freed = unsafe { stream_of(&device, raw) }.and_then(|stream| {
        // SAFETY: nobody uses the block any more but work on these streams, as the caller promises.
        unsafe { device.ledger().free(block, stream.as_ref()) }
    });
    // Where the stream cannot be had or cannot wait, the block stays out: the device is lost, or the process is ending.
    if let Ok(bytes) = freed {
        bounds::give_back(device.ordinal(), bytes);
    }
}

/// Notes that a stream, of any device, uses a block besides its own.
///
/// # Safety
///
/// As [`stream_of`], until the block is freed.
pub(super) unsafe fn record_stream(address: u64, raw: RawStream) {
    let Some(block) = DevicePtr::new(address) else { return };
    let Some(device) = device_with(block, -1) else { return };
    // SAFETY: the caller's promise.
    let mut user = unsafe { stream_of(&device, raw) };
    for other in device.machine().devices() {
        if user.as_ref().is_err_and(|error| error.kind() == ErrorKind::DeviceMismatch) {
            // SAFETY: as above.
            user = unsafe { stream_of(&other, raw) };
        }
    }
    let noted = user.and_then(|user| device.ledger().record_stream(block, user.as_ref()));
    if noted.is_err() {
        // Its free could not wait for the stream: the block leaks.
        let _ = device.ledger().forget(block);
    }
}

/// Gives unused memory of every device that blocks were asked for back to the driver: `torch.cuda.empty_cache()`.
pub(super) fn trim() {
    for ordinal in bounds::devices() {
        let trimmed = device_of(ordinal as i32)
            .and_then(|device| device.current_resource())
            .and_then(|resource: AnyResource| resource.trim(0));
        // A device that does not answer has nothing to give.
        drop(trimmed);
    }
}

/// Bounds what may be out of a device to a fraction of its memory.
pub(super) fn set_memory_fraction(fraction: f64, ordinal: i32) {
    let info = device_of(ordinal).and_then(|device| Ok((device.ordinal(), device.memory_info()?)));
    if let Ok((ordinal, info)) = info {
        // A fraction of 1 or more, and one that is no number, bound nothing.
        let bytes =
            if fraction < 1.0 { (info.total_bytes as f64 * fraction.max(0.0)) as u64 } else { u64::MAX };
        bounds::set_limit(ordinal, bytes);
    }
}

/// The start and the size of the driver's allocation that an address lies in.
pub(super) fn base(address: u64) -> Option<(u64, usize)> {
    let range = machine::active().ok()?.driver().address_range(address).ok()??;
    Some((range.start, range.bytes))
}
