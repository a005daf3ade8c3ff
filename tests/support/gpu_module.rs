//! Kernels for a GPU as text, which the driver translates.

#![expect(unsafe_code, reason = "loads modules")]

use std::ffi::CString;

use alluvion::StreamRef;
use cudarc::driver::{result, sys};

/// For Turing, the oldest that current drivers translate for.
const HEAD: &str = "
.version 6.3
.target sm_75
.address_size 64
";

/// Begins a kernel that has `%wait` nanoseconds to spend: what comes behind this comes as late.
pub(crate) const WAIT: &str = "
    .reg .pred %early;
    .reg .b64 %begun, %now, %spent;
    mov.u64 %begun, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %spent, %now, %begun;
    setp.lt.u64 %early, %spent, %wait;
    @%early bra again;
";

/// Loads kernels into the context that is current. They stay loaded, as long as that lives.
pub(crate) fn load(kernels: &str) -> sys::CUmodule {
    let image = CString::new(format!("{HEAD}{kernels}")).expect("it has no zero byte");
    // SAFETY: the image is PTX and ends in a zero byte.
    unsafe { result::module::load_data(image.as_ptr().cast()) }.expect("it can be translated")
}

/// The kernel of that name.
pub(crate) fn function(module: sys::CUmodule, name: &str) -> sys::CUfunction {
    let name = CString::new(name).expect("it has no zero byte");
    // SAFETY: the module is loaded, and stays so.
    unsafe { result::module::get_function(module, name) }.expect("it is in the module")
}

/// The stream as cudarc has it.
pub(crate) fn raw(stream: StreamRef<'_>) -> sys::CUstream {
    std::ptr::with_exposed_provenance_mut(stream.raw().0 as usize)
}
