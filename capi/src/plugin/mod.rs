//! Who loads functions by their names?
//!
//! Frameworks take the names of two functions, or their addresses, and bring no handle of this library with a call. Blocks come
//! from the current resource of the device that a call names, and go back to the resource that they came from.
//!
//! | functions | for | a block's resource |
//! |---|---|---|
//! | `alluvion_torch_*` | `CUDAPluggableAllocator` of PyTorch | that of the first request for the device |
//! | `alluvion_torch_ledger_*` | the same | the current one of each request, in the ledger of the device |
//! | `alluvion_cupy_*` | `CFunctionAllocator` of CuPy | as above |
//! | `alluvion_ort_*` | options of the CUDA execution provider of ONNX Runtime | as above |
//! | `alluvion_handler_*` | memory handlers of cuStateVec, cuTensorNet, cuDSS | the given one, or that of the first request for the device |
//!
//! Where the size comes back with a free, no book is needed; the others pay for a ledger, see `alv_ledger`. A function that fails
//! answers null, or another number than 0, and `alv_last_error_message` says why on the same thread. They load without a GPU and
//! without CUDA.
//!
//! They may be called by any thread, while the process ends, and in children of forks. What cannot be freed then leaks, and
//! nothing waits.

mod cupy;
mod handler;
mod live_bytes;
mod ort;
mod plugin_device;
mod recorded;
mod torch;
mod torch_ledger;

pub use cupy::*;
pub use handler::*;
pub use ort::*;
pub use torch::*;
pub use torch_ledger::*;

use live_bytes::LiveBytes;
use plugin_device::PluginDevice;
use recorded::Recorded;

use std::ffi::c_void;

use alluvion::DevicePtr;

use crate::allocate::pointer;
use crate::boundary;
use crate::status::ALV_OK;

/// The block of a request, or null: where `allocate` fails, and says why, and where it answers that there is nothing to allocate.
fn block_or_null(allocate: impl FnOnce() -> Result<Option<DevicePtr>, alluvion::Error>) -> *mut c_void {
    let mut block = std::ptr::null_mut();
    let status = boundary::call(|| {
        block = allocate()?.map_or(std::ptr::null_mut(), pointer);
        Ok(())
    });
    if status == ALV_OK { block } else { std::ptr::null_mut() }
}
