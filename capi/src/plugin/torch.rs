//! The functions of PyTorch's `CUDAPluggableAllocator`, without a book.
//!
//! PyTorch hands the size, the device and the stream of the allocation back with each free. So the first request for a device
//! fixes the resource of its blocks for the process: the current one at that time. `alluvion_torch_ledger_malloc` follows the
//! current resource.

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::{c_int, c_void};

use alluvion::{DevicePtr, Error, Layout, Resource, StreamRef};

use super::{PluginDevice, block_or_null};
use crate::allocate::{self, pointer};
use crate::boundary;
use crate::ledger::address;
use crate::machine;
use crate::stream::{self, CudaStream};

/// Allocates for PyTorch, whose `CUDAPluggableAllocator` takes the name of this function: `void *(size_t, int, cudaStream_t)`.
/// The block is of the resource that was current for the device at the first call. Null for no bytes, and for a failure, of which
/// `alv_last_error_message` tells.
///
/// `stream` is a live stream of the device, or a default stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_torch_malloc(
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
        let resource = device.fixed()?;
        let taken = device.live.take(size)?;
        // SAFETY: a live stream of the device, by the function's text.
        let block = unsafe { allocate::allocate(resource, layout, stream) }?;
        taken.keep();
        Ok(Some(block))
    })
}

/// Frees a block of `alluvion_torch_malloc`, behind the work on `stream` and on the streams that were recorded for it. `size` and
/// `device` are those of the request. Null is nothing to free. A block that cannot be freed leaks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_torch_free(
    block: *mut c_void,
    size: usize,
    device: c_int,
    stream: CudaStream,
) {
    boundary::unanswered("alluvion_torch_free", (), || {
        let Some((block, layout)) = Layout::of_freed(block, size, 0)? else { return Ok(()) };
        let device = PluginDevice::numbered(device)?;
        // Without a resource no block came from here.
        let Some(resource) = device.known_fixed() else { return Ok(()) };
        device.require_same_process()?;
        let free = |stream: StreamRef<'_>| {
            if let Some(users) = device.recorded.take(block) {
                PluginDevice::wait_for_users(&users, stream)?;
            }
            // SAFETY: the block came from this resource with this size, and is given up; its uses come before the stream's point,
            // or are on the streams that it has waited for: by the function's text.
            resource.freeing(|| unsafe { resource.get().deallocate(block, layout, stream) })?;
            device.live.give_back(size);
            Ok(())
        };
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(&device.device, stream, free) }
    });
}

/// For `set_init_fn` of PyTorch's allocator: nothing, because the library finds the devices by itself, when they are used.
#[unsafe(no_mangle)]
pub extern "C" fn alluvion_torch_init(device_count: c_int) {
    let _ = device_count;
}

/// For `set_reset_fn`, which `torch.cuda.empty_cache()` calls: gives unused memory of every device that blocks were asked for
/// back to the driver.
#[unsafe(no_mangle)]
pub extern "C" fn alluvion_torch_empty_cache() {
    trim_all();
}

/// Gives unused memory of every device back that blocks were asked for; each device, though another one fails.
pub(super) fn trim_all() {
    for device in PluginDevice::known() {
        let _ = boundary::call(|| device.trim());
    }
}

/// For `set_memory_fraction_fn`: at most this fraction of the device's memory is out to PyTorch at a time, by either pair of
/// functions. A fraction of 1 or more bounds nothing.
#[unsafe(no_mangle)]
pub extern "C" fn alluvion_torch_memory_fraction(fraction: f64, device: c_int) {
    let _ = boundary::call(|| {
        let device = PluginDevice::numbered(device)?;
        let total = device.device.memory_info()?.total_bytes;
        // What is no number bounds nothing.
        let limit = if fraction < 1.0 { (total as f64 * fraction.max(0.0)) as u64 } else { u64::MAX };
        device.live.set_limit(limit);
        Ok(())
    });
}

/// For `set_record_stream_fn`: the free of a block of `alluvion_torch_malloc` waits for the work that is on `stream` by then,
/// too, on the device. The stream is live until the block is freed. A default stream is that of the block's device and of the
/// current one. If the stream cannot be used, as one of another context, the block is never freed: it leaks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_torch_record_stream(block: *mut c_void, stream: CudaStream) {
    boundary::unanswered("alluvion_torch_record_stream", (), || {
        let Some(block) = address(block) else { return Ok(()) };
        let device = PluginDevice::of_block(block)?;
        if device.known_fixed().is_none() {
            return Ok(());
        }
        device.require_same_process()?;
        // SAFETY: a live stream until the block is freed, by the function's text.
        let (users, failure) = match unsafe { device.users(stream::raw(stream)) } {
            Ok(users) => (Some(users), Ok(())),
            // A block that a stream uses which nobody knows is not freed.
            Err(error) => (None, Err(error)),
        };
        device.recorded.add(block, users);
        failure
    });
}

/// For `set_base_alloc_fn`: the start of the driver's allocation that a block lies in, and its size, for memory that processes
/// share. Where the driver does not know, the block itself, and `*size` is 0; `size` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_torch_base_alloc(block: *mut c_void, size: *mut usize) -> *mut c_void {
    let find = || -> Result<Option<(DevicePtr, usize)>, Error> {
        let Some(block) = address(block) else { return Ok(None) };
        let device = machine::device(-1)?;
        // In a child of a fork the driver is not asked.
        device.require(&device)?;
        let range = device.driver().address_range(block.address())?;
        Ok(range.and_then(|range| Some((DevicePtr::new(range.start)?, range.bytes))))
    };
    let mut found = None;
    let _ = boundary::call(|| {
        found = find()?;
        Ok(())
    });
    if !size.is_null() {
        // SAFETY: not null, so writable, by the contract of pointers. PyTorch hands a place over that nobody has written to.
        unsafe { size.write(found.map_or(0, |(_, bytes)| bytes)) };
    }
    found.map_or(block, |(start, _)| pointer(start))
}
