//! `Library`: a vendor's library, opened, and how its functions are found.

#![expect(unsafe_code, reason = "opens a library, and asks it for functions")]

use core::ffi::{CStr, c_char, c_uint, c_ulonglong, c_void};
use core::mem::{self, ManuallyDrop};
use core::ptr;
use std::ffi::{CString, OsStr};

use super::symbols::Named;

/// `cudaEnableLegacyStream`: null is the legacy stream in the functions that are found.
const LEGACY_STREAM: c_ulonglong = 1;
/// `cudaDriverEntryPointSuccess`.
const FOUND: c_uint = 0;

/// A function of cudart that finds one of the driver: since CUDA 12.5 the one whose type is of a version that is named.
type EntryPointByVersion =
    unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_uint, c_ulonglong, *mut c_uint) -> c_uint;
/// The one before, which finds functions of the version that cudart has.
type EntryPoint = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_ulonglong, *mut c_uint) -> c_uint;

/// A library that is never closed: its threads run, and its exit handler is registered, until the process ends.
#[derive(Debug)]
pub(super) struct Library {
    handle: ManuallyDrop<libloading::Library>,
    by_version: Option<EntryPointByVersion>,
    latest: Option<EntryPoint>,
}

impl Library {
    /// Opens a library; `None` if there is none by that name, or it cannot be loaded.
    ///
    /// # Safety
    ///
    /// What has that name is a vendor's runtime library, and its initialisers may run.
    pub(super) unsafe fn open(name: &OsStr) -> Option<Self> {
        // SAFETY: the caller's promise.
        let handle = unsafe { libloading::Library::new(name) }.ok()?;
        let mut library = Self { handle: ManuallyDrop::new(handle), by_version: None, latest: None };
        // SAFETY: the type is that of the function in every version that has it.
        library.by_version = unsafe { library.own(c"cudaGetDriverEntryPointByVersion") };
        // SAFETY: the type is that of the function since CUDA 12.0; older ones are refused before it is called.
        library.latest = unsafe { library.own(c"cudaGetDriverEntryPoint") };
        Some(library)
    }

    /// One function.
    ///
    /// # Safety
    ///
    /// `F` is the type of that function.
    pub(super) unsafe fn find<F: Copy>(&self, named: Named) -> Option<F> {
        let name = CString::new(named.name).ok()?;
        match named.of_driver {
            // SAFETY: the caller's promise.
            None => unsafe { self.own(&name) },
            // SAFETY: the caller's promise.
            Some(version) => unsafe { self.of_driver(&name, version) },
        }
    }

    /// # Safety
    ///
    /// `F` is the type of that function.
    unsafe fn own<F: Copy>(&self, name: &CStr) -> Option<F> {
        // SAFETY: the caller's promise.
        unsafe { self.handle.get::<F>(name.to_bytes_with_nul()) }.ok().map(|symbol| *symbol)
    }

    /// A function of the driver behind cudart, with the type that it has in `version` of CUDA.
    ///
    /// # Safety
    ///
    /// `F` is the type of that function there.
    unsafe fn of_driver<F: Copy>(&self, name: &CStr, version: u32) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let (mut function, mut status): (*mut c_void, c_uint) = (ptr::null_mut(), c_uint::MAX);
        let code = match (self.by_version, self.latest) {
            // SAFETY: the name ends in a zero byte; both places are writable.
            (Some(find), _) => unsafe {
                find(name.as_ptr(), &raw mut function, version, LEGACY_STREAM, &raw mut status)
            },
            // It finds what cudart was built with, which is 12.0 to 12.4. SAFETY: as above.
            (None, Some(find)) if version <= 12_000 => unsafe {
                find(name.as_ptr(), &raw mut function, LEGACY_STREAM, &raw mut status)
            },
            _ => return None,
        };
        if code != 0 || status != FOUND || function.is_null() {
            return None;
        }
        // SAFETY: `F` is a pointer to a function, as wide as `function`, and has the function's type, as the caller promises.
        Some(unsafe { mem::transmute_copy::<*mut c_void, F>(&function) })
    }
}
