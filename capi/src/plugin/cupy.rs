//! The functions of CuPy's `CFunctionAllocator`, over the ledger of the device.

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::{c_int, c_void};

use alluvion::{Device, Layout, StreamRef};

use super::{PluginDevice, block_or_null};
use crate::boundary;
use crate::ledger::address;
use crate::stream::{self, CudaStream};

/// Allocates for CuPy, whose `CFunctionAllocator(param, malloc, free, owner)` takes the address of this function: `void *(void *,
/// size_t, int)`. From the resource that is current for the device at each request.
///
/// `param` is the stream that the blocks are ordered on: 0 for the legacy default stream, 2 for that of each thread, or a live
/// stream of the device. Work on a stream that does not wait for it has to be over before a block is freed. Null for no bytes,
/// and for a failure, of which `alv_last_error_message` tells.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_cupy_malloc(param: *mut c_void, size: usize, device: c_int) -> *mut c_void {
    block_or_null(|| {
        if size == 0 {
            return Ok(None);
        }
        let layout = Layout::of_request(size, 0)?;
        let device = PluginDevice::numbered(device)?;
        let resource = device.current()?;
        let allocate = |stream: StreamRef<'_>| device.device.ledger().allocate(&resource, layout, stream);
        // SAFETY: a live stream of the device or a default stream, by the function's text.
        unsafe { stream::with(&device.device, stream_of(param), allocate) }.map(Some)
    })
}

/// Frees a block of `alluvion_cupy_malloc` to the resource that it came from, behind the work on the stream `param`: `void (void
/// *, void *, int)`. What is not out is left alone, and a block that cannot be freed stays out: `alv_last_error_message` says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_cupy_free(param: *mut c_void, block: *mut c_void, device: c_int) {
    boundary::unanswered("alluvion_cupy_free", (), || {
        let Some(block) = address(block) else { return Ok(()) };
        let free = |owner: &Device| {
            // SAFETY: the block is given up, and its uses come before the stream's point, by the function's text.
            let free = |stream: StreamRef<'_>| unsafe { owner.ledger().free(block, stream) };
            // SAFETY: a live stream of the device or a default stream, by the function's text.
            unsafe { stream::with(owner, stream_of(param), free) }
        };
        PluginDevice::numbered(device)?.free_of_ledgers(block, free).map(drop)
    });
}

fn stream_of(param: *mut c_void) -> CudaStream {
    param.cast()
}
