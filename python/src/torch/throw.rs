//! A C++ exception from Rust.

#![expect(unsafe_code, reason = "looks a function of the C++ library up")]

use std::ffi::c_void;
use std::sync::OnceLock;

/// `std::__throw_bad_alloc()` of libstdc++.
type Throw = extern "C-unwind" fn() -> !;

/// The function that throws `std::bad_alloc`, in the C++ library that the process has. `None` without one: nobody could catch it.
pub(super) fn throw_bad_alloc() -> Option<Throw> {
    static FOUND: OnceLock<Option<Throw>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let name = c"_ZSt17__throw_bad_allocv".as_ptr();
        // SAFETY: both are strings that end in null. The library is one that is loaded already, so nothing of it runs.
        let library =
            unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        // Python loads modules such that their libraries are not found by a search of the whole process.
        let place = if library.is_null() { libc::RTLD_DEFAULT } else { library };
        // SAFETY: a handle that was found above, or the process; the name ends in null.
        let found: *mut c_void = unsafe { libc::dlsym(place, name) };
        if found.is_null() {
            return None;
        }
        // SAFETY: by the C++ ABI the name is of a function without arguments that throws and does not return.
        Some(unsafe { core::mem::transmute::<*mut c_void, Throw>(found) })
    })
}
