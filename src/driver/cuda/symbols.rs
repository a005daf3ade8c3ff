//! The functions of libcuda, found once by their exact names.
//!
//! Those that the runtime libraries have by the same type are in `library/functions.rs`.
//!
//! cudarc opens the library, and would find functions too, but it panics where one is missing. Here a missing function is a value:
//! loading fails without the required functions, and a call without its optional function returns an error.

#![expect(unsafe_code, reason = "gives the functions of a foreign library their types")]

use core::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};

use cudarc::driver::sys;

use crate::driver::library::functions::{FindFunctions, Functions, Names};

macro_rules! symbols {
    (
        required { $($name:ident = $symbol:literal($($argument:ty),*);)+ }
        optional { $($optional:ident = $optional_symbol:literal($($optional_argument:ty),*);)+ }
    ) => {
        /// The functions of libcuda that this crate calls. Each returns a `CUresult`; handles are `usize`, as wide as the pointers
        /// that they are; a `CUdeviceptr` is `u64`.
        pub(super) struct Symbols {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> c_uint,)+
            $(pub(super) $optional: Option<unsafe extern "C" fn($($optional_argument),*) -> c_uint>,)+
            pub(super) shared: Functions,
        }

        impl Symbols {
            /// Finds all functions; the error names a required one that is missing.
            ///
            /// # Safety
            ///
            /// The library can be loaded.
            pub(super) unsafe fn find() -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the caller's promise; and the type is that of the function in every CUDA version
                        // from 12.0 on, because a function whose type changes gets a new suffix.
                        unsafe { symbol($symbol) }
                            .ok_or(concat!("the loaded libcuda has no function ", $symbol))?
                    },)+
                    $($optional: {
                        // SAFETY: as above.
                        unsafe { symbol($optional_symbol) }
                    },)+
                    // SAFETY: as above.
                    shared: unsafe { Functions::find(&mut Library) }?,
                })
            }
        }
    };
}

symbols! {
    required {
        init = "cuInit"(c_uint);
        device_get_count = "cuDeviceGetCount"(*mut c_int);
        device_get = "cuDeviceGet"(*mut c_int, c_int);
        device_get_attribute = "cuDeviceGetAttribute"(*mut c_int, c_uint, c_int);
        primary_context_retain = "cuDevicePrimaryCtxRetain"(*mut usize, c_int);
        context_get_current = "cuCtxGetCurrent"(*mut usize);
        context_push = "cuCtxPushCurrent_v2"(usize);
        context_pop = "cuCtxPopCurrent_v2"(*mut usize);
        context_get_device = "cuCtxGetDevice"(*mut c_int);
        context_set_current = "cuCtxSetCurrent"(usize);
        stream_is_capturing = "cuStreamIsCapturing"(usize, *mut c_uint);
        copy = "cuMemcpy"(u64, u64, usize);
        copy_async = "cuMemcpyAsync"(u64, u64, usize, usize);
        fill_1_async = "cuMemsetD8Async"(u64, c_uchar, usize, usize);
        fill_2_async = "cuMemsetD16Async"(u64, c_ushort, usize, usize);
        fill_4_async = "cuMemsetD32Async"(u64, c_uint, usize, usize);
    }
    optional {
        pointer_get_attribute = "cuPointerGetAttribute"(*mut c_void, c_uint, u64);
        get_error_name = "cuGetErrorName"(c_uint, *mut *const c_char);
        get_error_string = "cuGetErrorString"(c_uint, *mut *const c_char);
        primary_context_get_state = "cuDevicePrimaryCtxGetState"(c_int, *mut c_uint, *mut c_int);
        stream_get_context = "cuStreamGetCtx"(usize, *mut usize);
        stream_get_contexts = "cuStreamGetCtx_v2"(usize, *mut usize, *mut usize);
        pointer_get_attributes = "cuPointerGetAttributes"(c_uint, *const c_uint, *mut *mut c_void, u64);
        copy_peer_async = "cuMemcpyPeerAsync"(u64, usize, u64, usize, usize, usize);
        stream_get_capture_info = "cuStreamGetCaptureInfo_v2"(
            usize,
            *mut c_uint,
            *mut c_ulonglong,
            *mut usize,
            *mut *const usize,
            *mut usize
        );
        pool_export = "cuMemPoolExportToShareableHandle"(*mut c_void, usize, c_uint, c_ulonglong);
        pool_import = "cuMemPoolImportFromShareableHandle"(*mut usize, *mut c_void, c_uint, c_ulonglong);
        context_enable_peer_access = "cuCtxEnablePeerAccess"(usize, c_uint);
    }
}

/// Whether a libcuda is installed where the dynamic linker looks. Loads it.
pub(super) fn is_library_present() -> bool {
    // SAFETY: loading a library runs its initialisers. libcuda's, and a stub's, do nothing but set themselves up; that
    // a library of that name is CUDA's is what every CUDA program relies on.
    unsafe { sys::is_culib_present() }
}

/// The CUDA version of the loaded driver, or its error code. `None` if the library is no libcuda.
///
/// # Safety
///
/// The library can be loaded.
pub(super) unsafe fn driver_version() -> Option<Result<c_int, c_uint>> {
    // SAFETY: the caller's promise; the function takes a pointer to an `int` in every version.
    let get_version: unsafe extern "C" fn(*mut c_int) -> c_uint = unsafe { symbol("cuDriverGetVersion") }?;
    let mut version = 0;
    // SAFETY: `version` is writable; the function may be called before `cuInit`.
    let code = unsafe { get_version(&raw mut version) };
    Some(if code == super::abi::SUCCESS { Ok(version) } else { Err(code) })
}

/// The library, which can be loaded.
struct Library;

impl FindFunctions for Library {
    const IS_LIBCUDA: bool = true;

    fn of(&self, names: &Names) -> &'static str {
        names.libcuda
    }

    unsafe fn find<F: Copy>(&mut self, names: &Names) -> Option<F> {
        // SAFETY: the caller's promise.
        unsafe { symbol(names.libcuda) }
    }
}

/// One function by its name.
///
/// # Safety
///
/// The library can be loaded: cudarc panics otherwise. `F` is the type of that function.
unsafe fn symbol<F: Copy>(name: &'static str) -> Option<F> {
    // SAFETY: the caller's promise. cudarc never unloads the library again.
    let library = unsafe { sys::culib() };
    // SAFETY: `F` is the function's type, as the caller promises.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
}
