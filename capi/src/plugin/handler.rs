//! The functions of the memory handlers of cuStateVec, cuTensorNet and cuDSS.

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::{c_char, c_int, c_void};

use alluvion::{DevicePtr, Error, Layout, Resource, StreamRef};

use super::PluginDevice;
use crate::allocate::{self, answer};
use crate::boundary::{self, null};
use crate::handle;
use crate::handle::by_contract::lend;
use crate::record;
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream};

/// A handler of device memory, in the shape that `custatevecDeviceMemHandler_t`, `cutensornetDeviceMemHandler_t` and
/// `cudssDeviceMemHandler_t` have: copy it into one of them, or point to it by a cast.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct DeviceMemHandler {
    /// What the functions are called with: an `alv_resource`, or null.
    pub ctx: *mut c_void,
    /// `alluvion_handler_alloc`.
    pub device_alloc: Option<
        unsafe extern "C" fn(
            ctx: *mut c_void,
            block: *mut *mut c_void,
            size: usize,
            stream: CudaStream,
        ) -> c_int,
    >,
    /// `alluvion_handler_free`.
    pub device_free: Option<
        unsafe extern "C" fn(ctx: *mut c_void, block: *mut c_void, size: usize, stream: CudaStream) -> c_int,
    >,
    /// The name of the handler, ended by 0.
    pub name: [c_char; 64],
}

/// Fills a handler with the functions below, over `resource`, of which it keeps no count: release it after the library that has
/// the handler. Null means the resource that is current for a device at its first request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_handler_init(
    resource: *mut ResourceHandle,
    out: *mut DeviceMemHandler,
) -> Status {
    boundary::call(|| {
        if out.is_null() {
            return Err(null("out"));
        }
        if !resource.is_null() {
            let _is_one = lend!(resource.cast_const());
        }
        let made = DeviceMemHandler {
            ctx: resource.cast(),
            device_alloc: Some(alluvion_handler_alloc),
            device_free: Some(alluvion_handler_free),
            name: record::fixed("alluvion"),
        };
        // SAFETY: not null, so writable.
        unsafe { out.write(made) };
        Ok(())
    })
}

/// `device_alloc` of a memory handler, with an `alv_resource` as its context; null means the resource of the current device,
/// which is the one that was current at the first request for it. 0 for success, else an `alv_status`; `*block` is null for no
/// bytes and for a failure.
///
/// `stream` is a live stream of the device, or a default stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_handler_alloc(
    ctx: *mut c_void,
    block: *mut *mut c_void,
    size: usize,
    stream: CudaStream,
) -> c_int {
    boundary::call(|| {
        let allocate = |layout| {
            // SAFETY: the contract of pointers.
            let resource = match unsafe { given(ctx) }? {
                Some(resource) => resource,
                None => PluginDevice::current_device()?.fixed()?,
            };
            // SAFETY: a live stream of the device, by the function's text.
            unsafe { allocate::allocate(resource, layout, stream) }
        };
        // SAFETY: the contract of pointers.
        unsafe { answer(size, 0, block, allocate) }
    })
}

/// `device_free` of a memory handler: gives a block of `alluvion_handler_alloc` back with the context and the size of its
/// request, behind the work on `stream`. 0 for success and for null; else an `alv_status`, and the block leaks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alluvion_handler_free(
    ctx: *mut c_void,
    block: *mut c_void,
    size: usize,
    stream: CudaStream,
) -> c_int {
    boundary::call(|| {
        let Some((block, layout)) = Layout::of_freed(block, size, 0)? else { return Ok(()) };
        // SAFETY: the contract of pointers.
        let resource = match unsafe { given(ctx) }? {
            Some(resource) => resource,
            None => of_block(block)?,
        };
        let free = |stream: StreamRef<'_>| {
            // SAFETY: the block came from this resource with this size, and is given up; its uses come before the stream's point:
            // by the function's text.
            resource.freeing(|| unsafe { resource.get().deallocate(block, layout, stream) })
        };
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(resource.device(), stream, free) }
    })
}

/// The resource of a context, if it has one.
///
/// # Safety
///
/// As [`handle::lend`] for a resource.
unsafe fn given<'a>(ctx: *mut c_void) -> Result<Option<&'a ResourceHandle>, Error> {
    if ctx.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    Ok(Some(unsafe { handle::lend(ctx.cast::<ResourceHandle>().cast_const()) }?))
}

/// The resource that a block of no given resource came from: that of the block's device, whichever is current by now.
fn of_block(block: DevicePtr) -> Result<&'static ResourceHandle, Error> {
    PluginDevice::of_block(block)?.known_fixed().ok_or_else(|| {
        Error::invalid_argument(
            "block",
            "no block was asked for on its device",
            "free it by the function that it came with",
        )
    })
}
