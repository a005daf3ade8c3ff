//! What the C functions do, without their ABI.

#![expect(unsafe_code, reason = "takes streams and blocks that C names by bare numbers")]

use std::sync::{Mutex, PoisonError};

use alluvion::driver::RawStream;
use alluvion::{AnyResource, Device, DevicePtr, Error, Frontier, Layout, Machine, Resource, Stream};
use pyo3::prelude::*;

use super::book::Live;
use super::{Book, bounds};
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
    let allocated = with_current(&device, || owner.allocate(layout, stream.as_ref()));
    match allocated {
        Ok(block) => {
            Book::of_this_process().insert(block.address(), Live::new(owner, layout));
            Ok(block.address())
        }
        Err(error) => {
            bounds::give_back(device.ordinal(), bytes);
            Err(error)
        }
    }
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

/// Gives a block back to the resource that it came from, behind the work on its stream and on those that were recorded. A block
/// that is not known is left alone: one that a parent process made, or no block.
///
/// # Safety
///
/// As [`stream_of`]. Nothing uses the block from now on but work that is submitted to these streams.
pub(super) unsafe fn deallocate(address: u64, raw: RawStream) {
    let Some(block) = DevicePtr::new(address) else { return };
    let machine = machine::active().ok();
    let Some(live) = Book::of_this_process().remove(address, machine.as_ref()) else { return };
    let device = live.owner.device().clone();
    bounds::give_back(device.ordinal(), live.layout.bytes());
    // SAFETY: the caller's promise.
    let freed = unsafe { stream_of(&device, raw) }.and_then(|stream| {
        for &user in &live.users {
            // SAFETY: who recorded the stream keeps it alive until the block is freed, as `record_stream` says.
            let user = unsafe { stream_of(&device, user) }?;
            stream.wait_for(&Frontier::of(user.release()))?;
        }
        // SAFETY:
        // - the book says that the block came from this resource with this layout and is out; it is out of the book now, so it goes
        //   back once;
        // - nobody uses it any more but work on these streams, as the caller promises, which the stream comes after.
        unsafe { live.owner.deallocate(block, live.layout, stream.as_ref()) };
        Ok(())
    });
    // Where the stream cannot be had or cannot wait, the block leaks: the device is lost, or the process is ending.
    drop(freed);
}

/// Notes that a stream uses a block besides its own.
///
/// # Safety
///
/// As [`stream_of`], until the block is freed.
pub(super) unsafe fn record_stream(address: u64, raw: RawStream) {
    let _is_known = Book::of_this_process().note_user(address, raw);
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
    let machine: Machine = match Book::of_this_process().owner(address) {
        Some(owner) => owner.device().machine().clone(),
        None => machine::active().ok()?,
    };
    let range = machine.driver().address_range(address).ok()??;
    Some((range.start, range.bytes))
}
