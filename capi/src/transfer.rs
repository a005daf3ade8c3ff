//! How does data move?
//!
//! For programs without the runtime of CUDA, and for simulated machines, which no other copy reaches.

#![expect(unsafe_code, reason = "copies between addresses that C names")]

use std::ffi::c_void;

use alluvion::driver::{Code, FillValue, Location};
use alluvion::{Error, StreamRef};

use crate::boundary::{self, null};
use crate::handle::by_contract::lend;
use crate::ledger;
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream};

/// Queues a copy of `bytes` bytes on a stream of the resource's device. Either side may be memory of a device or of the host.
/// Both stay valid until the copy has run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_copy_raw(
    resource: *const ResourceHandle,
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let device = lend!(resource).device();
        if bytes == 0 {
            return Ok(());
        }
        let to = ledger::address(to).ok_or_else(|| null("to"))?.address();
        let from = ledger::address(from).ok_or_else(|| null("from"))?.address();
        let (driver, ordinal) = (device.driver(), device.ordinal());
        let copy = |stream: StreamRef<'_>| {
            // SAFETY: both ranges are valid until the copy has run, and the caller orders the work on them.
            let copied = unsafe { driver.copy_async(ordinal, to, from, bytes, stream.raw()) };
            copied.map_err(|error| Error::of_driver(error, bytes))
        };
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(device, stream, copy) }
    })
}

/// Queues a fill of `bytes` bytes with `value` on a stream of the resource's device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_fill_raw(
    resource: *const ResourceHandle,
    to: *mut c_void,
    value: u8,
    bytes: usize,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let device = lend!(resource).device();
        if bytes == 0 {
            return Ok(());
        }
        let to = ledger::address(to).ok_or_else(|| null("to"))?.address();
        let (driver, ordinal) = (device.driver(), device.ordinal());
        let fill = |stream: StreamRef<'_>| {
            // SAFETY: the range is valid until the fill has run, and the caller orders the work on it.
            let filled = unsafe { driver.fill_async(ordinal, to, FillValue::U8(value), bytes, stream.raw()) };
            filled.map_err(|error| Error::of_driver(error, bytes))
        };
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(device, stream, fill) }
    })
}

/// Queues the migration of managed memory on a stream of the resource's device: to the device `to`, or to the host if that is
/// negative. The memory stays valid until it has run. Memory that does not migrate stays where it is, which is no failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_prefetch_raw(
    resource: *const ResourceHandle,
    address: *const c_void,
    bytes: usize,
    to: i32,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let device = lend!(resource).device();
        let to = match u32::try_from(to) {
            Ok(number) => Location::Device(device.machine().device(number)?.ordinal()),
            Err(_) => Location::Host,
        };
        if bytes == 0 {
            return Ok(());
        }
        let address = ledger::address(address).ok_or_else(|| null("address"))?.address();
        let (driver, ordinal) = (device.driver(), device.ordinal());
        let migrate = |stream: StreamRef<'_>| {
            // SAFETY: the range is valid until the migration has run.
            match unsafe { driver.prefetch_async(ordinal, address, bytes, to, stream.raw()) } {
                // The device was found: it is the memory that does not migrate.
                Err(error) if error.code == Code::INVALID_VALUE => Ok(()),
                queued => queued.map_err(|error| Error::of_driver(error, bytes)),
            }
        };
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(device, stream, migrate) }
    })
}

/// Waits for the work on a stream of the resource's device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_synchronize_raw(resource: *const ResourceHandle, stream: CudaStream) -> Status {
    boundary::call(|| {
        let device = lend!(resource).device();
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(device, stream, |stream| stream.synchronize()) }
    })
}

/// Makes the work that is submitted to `stream` from now on come after the work that is on `other`: both are streams of the
/// resource's device. The host does not wait. `ALV_CAPTURE`, and nothing has changed, where one of them captures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_wait_for_raw(
    resource: *const ResourceHandle,
    stream: CudaStream,
    other: CudaStream,
) -> Status {
    boundary::call(|| {
        let device = lend!(resource).device();
        let wait = |later: StreamRef<'_>| {
            // SAFETY: a live stream of the device, by the function's text.
            unsafe { stream::with(device, other, |earlier| later.wait_for_stream(earlier)) }
        };
        // SAFETY: as above.
        unsafe { stream::with(device, stream, wait) }
    })
}

/// Waits for all work of the resource's device, on every stream, those of others too. While a stream of the device captures it is
/// an error, and breaks the capture.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_synchronize_device(resource: *const ResourceHandle) -> Status {
    boundary::call(|| lend!(resource).device().synchronize())
}
