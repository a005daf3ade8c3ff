//! What of a limit is set aside, and who hears that it is nearly used up?

#![expect(unsafe_code, reason = "exports functions, and calls functions of C")]

use std::ffi::{CString, c_char, c_int, c_void};

use alluvion::adaptor::{Allowance, Reservation};
use alluvion::{Error, ResourceExt as _};

use crate::boundary::{self, null};
use crate::handle::by_contract::{give_to, lend};
use crate::handle::{self, Handle};
use crate::resource::ResourceHandle;
use crate::source::User;
use crate::status::Status;

/// Bytes of a limit that are set aside.
#[derive(Debug)]
pub struct ReservationHandle(Reservation);

impl Handle for ReservationHandle {
    const NAME: &'static str = "reservation";
}

/// The event that the live bytes under a limit exceed its soft limit.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SoftCrossing {
    /// `sizeof(alv_crossing)` of the library: a program that is older knows fewer fields.
    pub struct_size: usize,
    /// The live bytes then, with the request that crossed the soft limit.
    pub used_bytes: usize,
    /// The soft limit.
    pub soft_bytes: usize,
    /// The limit.
    pub limit_bytes: usize,
    /// The name of the limit: valid during the call.
    pub name: *const c_char,
}

/// The outermost limit of a stack.
///
/// # Safety
///
/// The contract of pointers.
unsafe fn limit<'a>(resource: *const ResourceHandle) -> Result<&'a Allowance, Error> {
    lend!(resource).get().find::<Allowance>().ok_or_else(|| {
        Error::unsupported("a limit", "the stack has no such layer", "name `limiting` in the recipe")
    })
}

/// Sets `bytes` bytes of the outermost layer `limiting` or `budget` aside, until the last release: for memory that somebody else takes, such
/// as a workspace of a library, so that the limit counts it. It is no memory. `ALV_OUT_OF_MEMORY` if the limit has not as much left, and
/// `ALV_UNSUPPORTED` without such a layer.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_reserve(
    resource: *const ResourceHandle,
    bytes: usize,
    out: *mut *mut ReservationHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            // SAFETY: the contract of pointers.
            let limit = unsafe { limit(resource) }?;
            Ok(ReservationHandle(limit.reserve(bytes)?))
        };
        give_to!(out, make)
    })
}

/// The bytes that a reservation holds, in whole units of 256; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_reservation_bytes(reservation: *const ReservationHandle) -> usize {
    boundary::unanswered("alv_reservation_bytes", 0, || {
        // SAFETY: the contract of pointers.
        let reservation = unsafe { handle::lend_or_null(reservation) }?;
        Ok(reservation.map_or(0, |reservation| reservation.0.bytes()))
    })
}

/// One more count of a reservation, which it returns; null for null. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_reservation_retain(
    reservation: *mut ReservationHandle,
) -> *mut ReservationHandle {
    boundary::unanswered("alv_reservation_retain", std::ptr::null_mut(), || {
        // SAFETY: the contract of pointers.
        unsafe { handle::retain(reservation) }
    })
}

/// Takes a count of a reservation, whose bytes go back with the last; null is allowed. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_reservation_release(reservation: *mut ReservationHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_reservation_release", (), || unsafe { handle::release(reservation) });
}

/// Has `observer` called each time that the live bytes exceed the soft limit of the outermost layer `limiting` or `budget`: once, on the
/// thread of the request, before the bytes are used, with no lock held. It may call the library, where its own requests call no observer, and
/// must not throw; its answer is not looked at. `soft` is the soft limit from now on, which refuses no request; with `SIZE_MAX` it stays what
/// it is. `drop`, which may be null, is called once when the limit goes, on any thread; not if the call fails. `ALV_UNSUPPORTED` without such
/// a layer.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_on_soft_limit(
    resource: *const ResourceHandle,
    soft: usize,
    observer: Option<unsafe extern "C" fn(user: *mut c_void, crossing: *const SoftCrossing) -> c_int>,
    drop: Option<unsafe extern "C" fn(user: *mut c_void)>,
    user: *mut c_void,
) -> Status {
    boundary::call(|| {
        let observer = observer.ok_or_else(|| null("observer"))?;
        // SAFETY: the contract of pointers.
        let mut limit = unsafe { limit(resource) }?.clone();
        if soft != usize::MAX {
            limit = limit.soft(soft);
        }
        let user = User::new(user, drop);
        let _ = limit.on_soft(move |crossing| {
            let name = CString::new(crossing.allowance.name()).unwrap_or_default();
            let crossing = SoftCrossing {
                struct_size: size_of::<SoftCrossing>(),
                used_bytes: crossing.used_bytes,
                soft_bytes: crossing.soft_bytes,
                limit_bytes: crossing.allowance.limit_bytes(),
                name: name.as_ptr(),
            };
            // SAFETY: the caller's function, called as its documentation says, and what it is called with; the crossing lives beyond the
            // call.
            let _ = unsafe { observer(user.get(), &raw const crossing) };
        });
        Ok(())
    })
}
