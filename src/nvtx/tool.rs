//! `Tool`: the tool that watches this process, and how it is found.

#![expect(unsafe_code, reason = "loads the library that the environment names")]

use core::ffi::{CStr, c_void};
use core::mem::size_of;
use core::ptr;

use super::abi::{Initialize, InitializeExtension};

/// The functions with which a tool begins.
pub(super) struct Tool {
    pub(super) initialize: Option<Initialize>,
    pub(super) initialize_extension: Option<InitializeExtension>,
    library: *mut c_void,
}

#[cfg(unix)]
impl Tool {
    /// The library that the environment names; else a tool that is part of the program, and says so by two variables that point to
    /// its functions.
    pub(super) fn find() -> Option<Self> {
        use std::ffi::CString;
        use std::os::unix::ffi::OsStringExt;

        let variable =
            if size_of::<usize>() == 8 { "NVTX_INJECTION64_PATH" } else { "NVTX_INJECTION32_PATH" };
        let Some(path) = crate::environment::variable(variable).filter(|path| !path.is_empty()) else {
            return Self::built_in();
        };
        let path = CString::new(path.into_vec()).ok()?;
        // SAFETY: the path ends with a null. What the library runs when it is loaded is the environment's, which this process
        // trusts: `variable` has asked.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        if library.is_null() {
            return None;
        }
        let tool = Self {
            initialize: symbol(library, c"InitializeInjectionNvtx2")
                // SAFETY: by this name the headers know a function of this type.
                .map(|function| unsafe { core::mem::transmute::<*mut c_void, Initialize>(function) }),
            initialize_extension: symbol(library, c"InitializeInjectionNvtxExtension")
                // SAFETY: as above.
                .map(|function| unsafe {
                    core::mem::transmute::<*mut c_void, InitializeExtension>(function)
                }),
            library,
        };
        Some(tool)
    }

    fn built_in() -> Option<Self> {
        let variable = |name| {
            let variable = symbol(libc::RTLD_DEFAULT, name)?.cast::<*mut c_void>();
            // SAFETY: by these names the headers know variables that hold the address of a function, or null.
            let function = unsafe { variable.read() };
            (!function.is_null()).then_some(function)
        };
        let initialize = variable(c"InitializeInjectionNvtx2_fnptr")
            // SAFETY: such a function has this type.
            .map(|function| unsafe { core::mem::transmute::<*mut c_void, Initialize>(function) });
        let initialize_extension = variable(c"InitializeInjectionNvtxExtension_fnptr")
            // SAFETY: as above.
            .map(|function| unsafe { core::mem::transmute::<*mut c_void, InitializeExtension>(function) });
        let is_there = initialize.is_some() || initialize_extension.is_some();
        is_there.then_some(Self { initialize, initialize_extension, library: ptr::null_mut() })
    }

    pub(super) fn unload(&self) {
        if !self.library.is_null() {
            // SAFETY: it was loaded once, in `find`; the tool has said that it has not begun, and all slots are empty.
            unsafe { libc::dlclose(self.library) };
        }
    }
}

#[cfg(unix)]
fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the handle is one of `dlopen`, or stands for all libraries; the name ends with a null.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

#[cfg(not(unix))]
impl Tool {
    /// No tool is looked for on this system.
    pub(super) fn find() -> Option<Self> {
        None
    }

    pub(super) fn unload(&self) {
        debug_assert!(self.library.is_null());
    }
}
