//! The functions of ONNX Runtime's CUDA execution provider, over the ledger of the device.

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::{c_int, c_void};

use alluvion::{Layout, StreamRef};

use super::torch::trim_all;
use super::{PluginDevice, block_or_null};
use crate::boundary;
use crate::ledger::address;
use crate::status::Status;
use crate::stream::{self, CudaStream};

/// Allocates for ONNX Runtime, whose CUDA provider takes the address of this function in its option `gpu_external_alloc`: `void
/// *(size_t)`. From the resource that is current for the current device of the thread. Every stream may use the block at once,
/// unless `alluvion_ort_set_stream` has named one. Null for no bytes, and for a failure, of which `alv_last_error_message` tells.
#[unsafe(no_mangle)]
pub extern "C" fn alluvion_ort_alloc(size: usize) -> *mut c_void {
    block_or_null(|| {
        if size == 0 {
            return Ok(None);
        }
        let layout = Layout::of_request(size, 0)?;
        let device = PluginDevice::current_device()?;
        let resource = device.current()?;
        let ledger = device.device.ledger();
        let Some(stream) = device.ort_stream() else {
            return ledger.allocate_sync(&resource, layout).map(Some);
        };
        // SAFETY: a live stream of the device or a default stream, as who has set it promises.
        unsafe {
            device.device.raw_streams().with(stream, |stream| ledger.allocate(&resource, layout, stream))
        }?
        .map(Some)
    })
}

/// Frees a block of `alluvion_ort_alloc` to the resource that it came from, for the option `gpu_external_free`: `void (void *)`.
/// Waits for all work of the device, as `cudaFree` does, because the call does not say on which streams the block was used; so no
/// stream of the device may capture. With `alluvion_ort_set_stream` it does not wait. What is not out is left alone, and a block
/// that cannot be freed stays out: `alv_last_error_message` says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_ort_free(block: *mut c_void) {
    boundary::unanswered("alluvion_ort_free", (), || {
        let Some(block) = address(block) else { return Ok(()) };
        let device = PluginDevice::of_ledger_block(block)?;
        let ledger = device.device.ledger();
        let Some(stream) = device.ort_stream() else {
            if ledger.is_out(block) {
                device.device.synchronize()?;
            }
            // SAFETY: the block is given up, and all work of the device is over; a stranger is refused.
            return unsafe { ledger.free_sync(block) }.map(drop);
        };
        // SAFETY: the block is given up, and all of its uses are on this stream, as who has set it promises.
        let free = |stream: StreamRef<'_>| unsafe { ledger.free(block, stream) };
        // SAFETY: a live stream of the device or a default stream, as who has set it promises.
        unsafe { device.device.raw_streams().with(stream, free) }?.map(drop)
    });
}

/// For the option `gpu_external_empty_cache`: `void (void)`. Gives unused memory of every device that blocks were asked for back
/// to the driver.
#[unsafe(no_mangle)]
pub extern "C" fn alluvion_ort_empty_cache() {
    trim_all();
}

/// Orders the blocks of `alluvion_ort_alloc` for a device on a stream from now on, so that neither call waits: the stream of the
/// provider's option `user_compute_stream`. Every use of such a block is on this stream, or the stream waits for it. The stream
/// stays valid for as long as blocks are asked for or freed, or until another one is named.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_ort_set_stream_raw(device: c_int, stream: CudaStream) -> Status {
    boundary::call(|| {
        let device = PluginDevice::numbered(device)?;
        // A stream of another device is refused.
        // SAFETY: a live stream or a default stream, by the function's text.
        unsafe { stream::with(&device.device, stream, |_| Ok(())) }?;
        device.set_ort_stream(stream::raw(stream));
        Ok(())
    })
}
