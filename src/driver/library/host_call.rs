//! A Rust closure as a function that a vendor's library calls.

#![expect(unsafe_code, reason = "passes a closure through a C pointer")]

use core::ffi::c_void;

use crate::contain::contain;

/// Converted to a pointer in a second box, which is a thin pointer.
type Closure = Box<dyn FnOnce() + Send>;

/// The closure as a pointer, to be given to [`call`] or to [`take_back`], once.
pub(in crate::driver) fn into_raw(function: Closure) -> *mut c_void {
    Box::into_raw(Box::new(function)).cast()
}

/// The closure again.
///
/// # Safety
///
/// `data` came from [`into_raw`] and nobody else uses it now or later.
pub(in crate::driver) unsafe fn take_back(data: *mut c_void) -> Closure {
    // SAFETY: `into_raw` made it from a `Box<Closure>`, and the caller hands it over.
    *unsafe { Box::from_raw(data.cast::<Closure>()) }
}

/// Calls the closure, and catches a panic, because no panic may unwind through a thread of the library. The panic hook has printed it.
///
/// # Safety
///
/// As [`take_back`].
pub(in crate::driver) unsafe extern "C" fn call(data: *mut c_void) {
    // SAFETY: the caller's promise is the same.
    let function = unsafe { take_back(data) };
    contain(function);
}
