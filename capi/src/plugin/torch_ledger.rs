//! The functions of PyTorch's `CUDAPluggableAllocator`, over the ledger of the device.

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::{c_int, c_void};

use alluvion::{Device, Layout, StreamRef};

use super::{PluginDevice, block_or_null};
use crate::boundary;
use crate::ledger::address;
use crate::stream::{self, CudaStream};

/// As `alluvion_torch_malloc`, from the resource that is current for the device at each request. The ledger of the device
/// remembers the resource and the size of the block, at the cost of a lock and a step of a table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_torch_ledger_malloc(
    size: usize,
    device: c_int,
    stream: CudaStream,
) -> *mut c_void {
    block_or_null(|| {
        if size == 0 {
            return Ok(None);
        }
        let layout = Layout::of_request(size, 0)?;
        let device = PluginDevice::numbered(device)?;
        let resource = device.current()?;
        let taken = device.live.take(size)?;
        let allocate = |stream: StreamRef<'_>| device.device.ledger().allocate(&resource, layout, stream);
        // SAFETY: a live stream of the device, by the function's text.
        let block = unsafe { stream::with(&device.device, stream, allocate) }?;
        taken.keep();
        Ok(Some(block))
    })
}

/// Frees a block of `alluvion_torch_ledger_malloc` to the resource that it came from, behind the work on `stream` and on the
/// streams that were recorded for it. The ledger knows its size. What is not out is left alone, and a block that cannot be freed
/// stays out: `alv_last_error_message` says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_torch_ledger_free(
    block: *mut c_void,
    size: usize,
    device: c_int,
    stream: CudaStream,
) {
    let _ = size;
    boundary::unanswered("alluvion_torch_ledger_free", (), || {
        let Some(block) = address(block) else { return Ok(()) };
        let device = PluginDevice::numbered(device)?;
        let free = |owner: &Device| {
            // SAFETY: the block is given up, and its uses come before the stream's point or are recorded, by the function's text.
            let free = |stream: StreamRef<'_>| unsafe { owner.ledger().free(block, stream) };
            // SAFETY: a live stream of the block's device, by the function's text.
            unsafe { stream::with(owner, stream, free) }
        };
        device.live.give_back(device.free_of_ledgers(block, free)?);
        Ok(())
    });
}

/// For `set_record_stream_fn`, as `alluvion_torch_record_stream` for a block of `alluvion_torch_ledger_malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_torch_ledger_record_stream(block: *mut c_void, stream: CudaStream) {
    boundary::unanswered("alluvion_torch_ledger_record_stream", (), || {
        let Some(block) = address(block) else { return Ok(()) };
        let device = PluginDevice::of_ledger_block(block)?;
        let ledger = device.device.ledger();
        // SAFETY: a live stream until the block is freed, by the function's text.
        let recorded = unsafe { device.users(stream::raw(stream)) }
            .and_then(|users| users.iter().try_for_each(|user| ledger.record_stream(block, user.as_ref())));
        if recorded.is_err() {
            // A block that a stream uses which nobody knows is not freed. A stranger is forgotten already.
            let _ = ledger.forget(block);
        }
        recorded
    });
}
