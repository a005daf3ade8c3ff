//! What is asked of a block that is shared.

#![expect(unsafe_code, reason = "exports functions")]

use std::ffi::c_void;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use alluvion::Error;

use super::lent::{SharedHandle, SharedState, is_parked};
use crate::boundary::{self, null};
use crate::handle;
use crate::handle::by_contract::{lend, lend_or_null};
use crate::status::Status;
use crate::stream::{self, CudaStream, StreamHandle};

/// The bytes that other processes open the block by, which are sent by whatever means. `needed`, which may be null, gets how many they
/// are, at most `ALV_MESSAGE_BYTES`. With `room` 0 nothing is written, and `buffer` may be null; with less room than they need it is
/// `ALV_INVALID_ARGUMENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_shared_message(
    shared: *const SharedHandle,
    buffer: *mut c_void,
    room: usize,
    needed: *mut usize,
) -> Status {
    boundary::call(|| {
        let message = lend!(shared).message();
        if !needed.is_null() {
            // SAFETY: not null, so writable.
            unsafe { needed.write(message.len()) };
        }
        if room == 0 {
            return Ok(());
        }
        if buffer.is_null() {
            return Err(null("buffer"));
        }
        if room < message.len() {
            return Err(Error::invalid_argument("room", "the message is longer", "pass ALV_MESSAGE_BYTES"));
        }
        // SAFETY: the caller's buffer has `room` bytes, which are enough; the message is the library's own.
        unsafe { std::ptr::copy_nonoverlapping(message.as_ptr(), buffer.cast::<u8>(), message.len()) };
        Ok(())
    })
}

/// The descriptor that has to be sent beside the message, over a Unix socket; -1 for memory that needs none, and after the end. It is
/// the library's, and open until the block is ended or parked or the last handle is released: duplicate what is to be kept.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_shared_descriptor(shared: *const SharedHandle) -> i32 {
    boundary::unanswered("alv_shared_descriptor", -1, || {
        let Some(shared) = lend_or_null!(shared) else { return Ok(-1) };
        Ok(match shared.state().as_deref() {
            Ok(SharedState::Live(live)) => live.descriptor().map_or(-1, |descriptor| descriptor.as_raw_fd()),
            _ => -1,
        })
    })
}

/// How many processes have the block open. `ALV_IN_USE` if somebody has removed the file by which that is known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_shared_importers(shared: *const SharedHandle, out: *mut usize) -> Status {
    boundary::call(|| {
        let shared = lend!(shared);
        if out.is_null() {
            return Err(null("out"));
        }
        // SAFETY: not null, so writable.
        unsafe { out.write(0) };
        let importers = match &*shared.state()? {
            SharedState::Live(live) => live.importers()?,
            SharedState::Over => 0,
            SharedState::Parked => return Err(is_parked()),
        };
        // SAFETY: as above.
        unsafe { out.write(importers) };
        Ok(())
    })
}

/// Whether the share has ended, so that the block is the caller's alone. False for null, and for one that was parked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_shared_is_over(shared: *const SharedHandle) -> bool {
    boundary::unanswered("alv_shared_is_over", false, || {
        let shared = lend_or_null!(shared);
        Ok(shared.is_some_and(|shared| matches!(shared.state().as_deref(), Ok(SharedState::Over))))
    })
}

/// Waits until no process has the block open, and ends the share: nobody can open the block then, and the caller may free it.
/// `timeout_ms` is how long it waits, in milliseconds: 0 asks once, and -1 is as long as it takes. A process that has died has nothing
/// open; one that lives has it until it lets go. `ALV_IN_USE` if one still has it, or if nobody can know: it is shared as before.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_shared_end(shared: *const SharedHandle, timeout_ms: i64) -> Status {
    boundary::call(|| {
        let shared = lend!(shared);
        shared.end(u64::try_from(timeout_ms).ok().map(Duration::from_millis))
    })
}

/// Gives the block to the library, which frees it when no process has it any more: at once, or at a later share, or by
/// `alv_sharing_sweep`. Until then others can open it. Waits for the work on `stream`; on other streams the caller has ordered the uses
/// before. If the call fails, nothing has changed. Not for a block of a ledger, which counts it as out.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_shared_park_raw(shared: *const SharedHandle, stream: CudaStream) -> Status {
    boundary::call(|| {
        let shared = lend!(shared);
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(shared.device(), stream, |stream| shared.park(stream)) }
    })
}

/// As `alv_shared_park`, behind a stream that the library knows.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_shared_park_on(
    shared: *const SharedHandle,
    stream: *const StreamHandle,
) -> Status {
    boundary::call(|| {
        let shared = lend!(shared);
        let stream = lend!(stream).as_ref();
        shared.device().require(stream.device())?;
        shared.park(stream)
    })
}

/// One more count of a share, which it returns; null for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_shared_retain(shared: *mut SharedHandle) -> *mut SharedHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_shared_retain", std::ptr::null_mut(), || unsafe { handle::retain(shared) })
}

/// Takes a count of a share; null is allowed. After the last one nobody can open the block any more. Whoever has it open keeps it: so a
/// block whose share was neither ended nor parked must not be freed for as long as such a process may live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_shared_release(shared: *mut SharedHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_shared_release", (), || unsafe { handle::release(shared) });
}
