//! How is memory asked for and given back?
//!
//! No function here takes a lock, formats or allocates where a pool serves the request from the cache of the stream.

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::c_void;

use alluvion::{AnyResource, DevicePtr, Error, Layout, Resource};

use crate::boundary::{self, null};
use crate::handle;
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream, StreamHandle};

/// The layout of a request. Alignments up to 256 are one, and 0 means that one.
#[inline]
pub(crate) fn layout(bytes: usize, align: usize) -> Result<Layout, Error> {
    if align != 0 && !align.is_power_of_two() {
        return Err(Error::invalid_alignment(align));
    }
    Layout::new(bytes, align.max(Layout::MIN_ALIGN))
}

/// Answers a request in the caller's place: null for no bytes and for a failure.
///
/// # Safety
///
/// `out` is null or writable.
#[inline]
pub(crate) unsafe fn answer(
    bytes: usize,
    align: usize,
    out: *mut *mut c_void,
    allocate: impl FnOnce(Layout) -> Result<DevicePtr, Error>,
) -> Result<(), Error> {
    if out.is_null() {
        return Err(null("out"));
    }
    let allocated = layout(bytes, align).and_then(|layout| match bytes {
        0 => Ok(std::ptr::null_mut()),
        _ => allocate(layout).map(pointer),
    });
    let (block, answer) = match allocated {
        Ok(block) => (block, Ok(())),
        Err(error) => (std::ptr::null_mut(), Err(error)),
    };
    // SAFETY: not null, so writable.
    unsafe { out.write(block) };
    answer
}

/// A block as C has it.
#[inline]
pub(crate) fn pointer(block: DevicePtr) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(block.address() as usize)
}

/// A block that comes back, with its layout; `None` if there is nothing to free.
#[inline]
pub(crate) fn block(block: *mut c_void, bytes: usize, align: usize) -> Option<(DevicePtr, Layout)> {
    let block = DevicePtr::new(block.expose_provenance() as u64)?;
    let layout = layout(bytes, align).ok()?;
    (!layout.is_empty()).then_some((block, layout))
}

/// # Safety
///
/// `stream` is a live stream of the resource's device, or names a default stream.
#[inline]
pub(crate) unsafe fn allocate(
    resource: &AnyResource,
    layout: Layout,
    stream: CudaStream,
) -> Result<DevicePtr, Error> {
    // SAFETY: the caller's promise.
    let stream = unsafe { stream::of_handle(resource.device(), stream) }?;
    resource.allocate(layout, stream.as_ref())
}

/// Allocates `bytes` bytes for work on `stream`: a stream of the resource's device, or 0 for its legacy default stream. `align` is 0, which
/// means 256, or a power of two; up to 256 all are one. `*out` is null for no bytes, and if the call fails. While the stream captures,
/// blocks that are cached are served; a request that needs a driver call which the capture forbids is `ALV_CAPTURE`, and the capture goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_allocate_raw(
    resource: *const ResourceHandle,
    bytes: usize,
    align: usize,
    stream: CudaStream,
    out: *mut *mut c_void,
) -> Status {
    boundary::call(|| {
        let allocate = |layout| {
            // SAFETY: the contract of pointers.
            let resource = unsafe { handle::lend(resource) }?.get();
            // SAFETY: a live stream of the device, by the function's text.
            unsafe { allocate(resource, layout, stream) }
        };
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, allocate) }
    })
}

/// Gives a block back, behind the work that is on `stream`, which may be another than it was allocated on: then the caller has ordered
/// the uses before. `bytes` and `align` are those of the request; up to 256 alignments are one. Null is nothing to free, whatever size it
/// has. Never fails: a block whose stream cannot be had, as in a process that is ending or a child of a fork, leaks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_deallocate_raw(
    resource: *const ResourceHandle,
    block: *mut c_void,
    bytes: usize,
    align: usize,
    stream: CudaStream,
) {
    boundary::contained((), || {
        let Some((block, layout)) = self::block(block, bytes, align) else { return };
        // SAFETY: the contract of pointers.
        let Ok(resource) = (unsafe { handle::lend(resource) }) else { return };
        let resource = resource.get();
        // SAFETY: a live stream of the device, by the function's text.
        let Ok(stream) = (unsafe { stream::of_handle(resource.device(), stream) }) else { return };
        // SAFETY: the block came from this resource with this size and is given up; its uses come before the stream's point, by the
        // function's text. Alignments up to 256 are one layout, as in `alv_allocate`.
        unsafe { resource.deallocate(block, layout, stream.as_ref()) };
    });
}

/// As `alv_allocate`, for a block that every stream, and the host if it has access, may use as soon as the call returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_allocate_sync(
    resource: *const ResourceHandle,
    bytes: usize,
    align: usize,
    out: *mut *mut c_void,
) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        let allocate = |layout| unsafe { handle::lend(resource) }?.get().allocate_sync(layout);
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, allocate) }
    })
}

/// Gives a block back that no work uses any more, whichever call it came from.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_deallocate_sync(
    resource: *const ResourceHandle,
    block: *mut c_void,
    bytes: usize,
    align: usize,
) {
    boundary::contained((), || {
        let Some((block, layout)) = self::block(block, bytes, align) else { return };
        // SAFETY: the contract of pointers.
        let Ok(resource) = (unsafe { handle::lend(resource) }) else { return };
        // SAFETY: the block came from this resource with this size and is given up, and nothing uses it, by the function's text.
        unsafe { resource.get().deallocate_sync(block, layout) };
    });
}

/// As `alv_allocate`, on a stream that the library knows: without a look-up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_allocate_on(
    resource: *const ResourceHandle,
    bytes: usize,
    align: usize,
    stream: *const StreamHandle,
    out: *mut *mut c_void,
) -> Status {
    boundary::call(|| {
        let allocate = |layout| {
            // SAFETY: the contract of pointers.
            let resource = unsafe { handle::lend(resource) }?.get();
            // SAFETY: the contract of pointers.
            let stream = unsafe { handle::lend(stream) }?;
            resource.allocate(layout, stream.as_ref())
        };
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, allocate) }
    })
}

/// As `alv_deallocate`, on a stream that the library knows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_deallocate_on(
    resource: *const ResourceHandle,
    block: *mut c_void,
    bytes: usize,
    align: usize,
    stream: *const StreamHandle,
) {
    boundary::contained((), || {
        let Some((block, layout)) = self::block(block, bytes, align) else { return };
        // SAFETY: the contract of pointers.
        let (Ok(resource), Ok(stream)) = (unsafe { handle::lend(resource) }, unsafe { handle::lend(stream) })
        else {
            return;
        };
        // A stream of another device could not come after the block's uses.
        if resource.get().device().require(stream.as_ref().device()).is_err() {
            return;
        }
        // SAFETY: as in `alv_deallocate_raw`.
        unsafe { resource.get().deallocate(block, layout, stream.as_ref()) };
    });
}
