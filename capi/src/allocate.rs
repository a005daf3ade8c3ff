//! How is memory asked for and given back?
//!
//! No function here takes a lock, formats or allocates where a pool serves the request from the cache of the stream.

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::c_void;

use alluvion::{DevicePtr, Error, Layout, Resource, StreamRef};

use crate::boundary::{self, null};
use crate::handle::by_contract::lend;
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream, StreamHandle};

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
    let mut place = Place { out, block: std::ptr::null_mut() };
    let layout = Layout::of_request(bytes, align)?;
    if bytes > 0 {
        place.block = pointer(allocate(layout)?);
    }
    Ok(())
}

/// The caller's place for a block, which is written once: where this is dropped, by a panic of a source, too.
struct Place {
    /// Writable.
    out: *mut *mut c_void,
    block: *mut c_void,
}

impl Drop for Place {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: writable, as the field says.
        unsafe { self.out.write(self.block) };
    }
}

/// A block as C has it.
#[inline]
pub(crate) fn pointer(block: DevicePtr) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(block.address() as usize)
}

/// # Safety
///
/// `stream` is a live stream of the resource's device, or names a default stream.
#[inline]
pub(crate) unsafe fn allocate(
    resource: &ResourceHandle,
    layout: Layout,
    stream: CudaStream,
) -> Result<DevicePtr, Error> {
    let at_once = |stream: StreamRef<'_>| resource.get().allocate_at_once(layout, stream).map(Ok);
    let allocate = |stream: StreamRef<'_>| resource.get().allocate(layout, stream);
    // SAFETY: the caller's promise.
    unsafe { stream::with_or_at_once(resource.device(), stream, at_once, allocate) }
}

/// Allocates `bytes` bytes for work on `stream`: a stream of the resource's device, or 0 for its legacy default stream. `align`
/// is 0, which means 256, or a power of two; up to 256 all are one. `*out` is null for no bytes, and if the call fails. While the
/// stream captures, blocks that are cached are served; a request that needs a driver call which the capture forbids is
/// `ALV_CAPTURE`, and the capture goes on.
#[must_use]
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
            let resource = lend!(resource);
            // SAFETY: a live stream of the device, by the function's text.
            unsafe { allocate(resource, layout, stream) }
        };
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, allocate) }
    })
}

/// Gives a block back, behind the work that is on `stream`, which may be another than it was allocated on: then the caller has
/// ordered the uses before. The allocation is one, also of a block that nothing has touched: its memory may have come behind work that
/// is still on the stream that it was allocated on, so that the other stream has to wait for that. `bytes` and `align` are those of the request; up to 256 alignments are one. Null is nothing to free,
/// whatever size it has. Never fails: a block whose stream cannot be had, as in a process that is ending or a child of a fork,
/// leaks. So does one whose arguments are none, such as a null resource or an alignment of 3; and what a layer refuses is left alone:
/// `alv_last_error_message` says so, and `alv_refused_frees` counts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_deallocate_raw(
    resource: *const ResourceHandle,
    block: *mut c_void,
    bytes: usize,
    align: usize,
    stream: CudaStream,
) {
    boundary::unanswered("alv_deallocate", (), || {
        let Some((block, layout)) = Layout::of_freed(block, bytes, align)? else { return Ok(()) };
        let resource = lend!(resource);
        // SAFETY: the block came from this resource with this size and is given up, by the function's text.
        let at_once =
            |stream: StreamRef<'_>| unsafe { resource.get().deallocate_at_once(block, layout, stream) };
        // SAFETY: a live stream of the device, by the function's text, on which the block's uses come before this point.
        if unsafe { stream::visit(resource.device(), stream, at_once) } {
            return Ok(());
        }
        let deallocate = |stream: StreamRef<'_>| {
            // SAFETY: the block came from this resource with this size and is given up; its uses come before the stream's point, by
            // the function's text. Alignments up to 256 are one layout, as in `alv_allocate`.
            resource.freeing(|| unsafe { resource.get().deallocate(block, layout, stream) })
        };
        // Where the stream cannot be had, the block leaks.
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(resource.device(), stream, deallocate) }
    });
}

/// As `alv_allocate`, for a block that every stream, and the host if it has access, may use as soon as the call returns.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_allocate_sync(
    resource: *const ResourceHandle,
    bytes: usize,
    align: usize,
    out: *mut *mut c_void,
) -> Status {
    boundary::call(|| {
        let allocate = |layout| lend!(resource).get().allocate_sync(layout);
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, allocate) }
    })
}

/// Gives a block back that no work uses any more, whichever call it came from. What was on the stream that it was allocated on, before
/// that, is over too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_deallocate_sync(
    resource: *const ResourceHandle,
    block: *mut c_void,
    bytes: usize,
    align: usize,
) {
    boundary::unanswered("alv_deallocate_sync", (), || {
        let Some((block, layout)) = Layout::of_freed(block, bytes, align)? else { return Ok(()) };
        let resource = lend!(resource);
        // SAFETY: the block came from this resource with this size and is given up, and nothing uses it, by the function's text.
        resource.freeing(|| unsafe { resource.get().deallocate_sync(block, layout) })
    });
}

/// As `alv_allocate`, on a stream that the library knows: without a look-up.
#[must_use]
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
            let resource = lend!(resource).get();
            let stream = lend!(stream);
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
    boundary::unanswered("alv_deallocate_on", (), || {
        let Some((block, layout)) = Layout::of_freed(block, bytes, align)? else { return Ok(()) };
        let resource = lend!(resource);
        let stream = lend!(stream);
        // A stream of another device could not come after the block's uses.
        resource.device().require(stream.as_ref().device())?;
        // SAFETY: as in `alv_deallocate_raw`.
        resource.freeing(|| unsafe { resource.get().deallocate(block, layout, stream.as_ref()) })
    });
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use alluvion::{DeviceAccessible, ResourceId, Sim, StreamRef};

    use super::*;
    use crate::handle;
    use crate::status::ALV_PANIC;

    /// A source that panics at every request and at every free.
    struct Panicking {
        device: alluvion::Device,
        id: ResourceId,
    }

    // SAFETY: it hands no block out.
    unsafe impl Resource for Panicking {
        fn allocate(&self, _: Layout, _: StreamRef<'_>) -> Result<DevicePtr, Error> {
            std::panic::resume_unwind(Box::new("no memory today"))
        }

        unsafe fn deallocate(&self, _: DevicePtr, _: Layout, _: StreamRef<'_>) {
            std::panic::resume_unwind(Box::new("and none back"))
        }

        fn device(&self) -> &alluvion::Device {
            &self.device
        }

        fn id(&self) -> ResourceId {
            self.id
        }

        fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Panicking")
        }
    }

    // SAFETY: as above.
    unsafe impl DeviceAccessible for Panicking {}

    #[test]
    fn a_source_that_panics_is_a_status_and_leaves_null() {
        let sim = Sim::new();
        let panicking = Panicking { device: sim.device(0), id: ResourceId::unique() };
        let resource = handle::give(ResourceHandle::new(alluvion::AnyResource::new(panicking)));
        let mut block = std::ptr::dangling_mut();
        // SAFETY: a live resource, and a place.
        let status = unsafe { alv_allocate_raw(resource, 512, 0, std::ptr::null_mut(), &raw mut block) };
        assert_eq!((status, block), (ALV_PANIC, std::ptr::null_mut()));
        // SAFETY: static text, or that of this thread's last failure.
        let said = unsafe { std::ffi::CStr::from_ptr(crate::alv_last_error_message()) };
        assert_eq!(said.to_str(), Ok("panic: no memory today"));
        block = std::ptr::dangling_mut();
        // SAFETY: as above.
        let status = unsafe { alv_allocate_sync(resource, 512, 0, &raw mut block) };
        assert_eq!((status, block), (ALV_PANIC, std::ptr::null_mut()));
        // A free has no status. What it would have freed leaks.
        let block = std::ptr::without_provenance_mut(4096);
        // SAFETY: the source keeps nothing, so it need not have given the block out.
        unsafe { alv_deallocate_raw(resource, block, 512, 0, std::ptr::null_mut()) };
        // SAFETY: as above.
        unsafe { alv_deallocate_sync(resource, block, 512, 0) };
        // SAFETY: the only count.
        unsafe { crate::alv_resource_release(resource) };
        sim.assert_clean();
    }
}
