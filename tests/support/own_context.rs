//! A context that is not the primary one, as some applications make.

#![expect(unsafe_code, reason = "calls the driver")]

use cudarc::driver::{result, sys};

/// Makes a context on device 0 and makes it current on this thread. It is the caller's to destroy.
pub(crate) fn own_context() -> (sys::CUdevice, sys::CUcontext) {
    let device = result::device::get(0).expect("there is a device");
    let mut context: sys::CUcontext = std::ptr::null_mut();
    // cudarc declares it for some versions of CUDA only; the driver has it in all of them.
    // SAFETY: the library is loaded: the device came from it.
    let library = unsafe { sys::culib() };
    type Create = unsafe extern "C" fn(*mut sys::CUcontext, u32, sys::CUdevice) -> u32;
    // SAFETY: this is the function's type.
    let create = unsafe { library.get::<Create>(b"cuCtxCreate_v2\0") }.expect("every driver has it");
    // SAFETY: the pointer is writable, no flag is set, the device came from the driver.
    assert_eq!(unsafe { create(&raw mut context, 0, device) }, 0);
    (device, context)
}
