//! The functions of the table. `alluvion/door.h` says what each one promises and asks.

#![expect(unsafe_code, reason = "functions that C calls, with blocks and streams by bare numbers")]

use core::ffi::{c_char, c_void};

use alluvion::adaptor::Stats;
use alluvion::driver::RawStream;
use alluvion::suballoc::SuballocBook;
use alluvion::{DevicePtr, Error, ErrorKind, Layout, Resource, ResourceExt as _, StreamRef};

use super::failure::{self, call, contained, null};
use super::handle::Handle;
use super::status::{self, Status};
use super::table::{CudaStream, DetachedBody, DoorStats, SegmentVisitor};
use super::unattached::unattached;
use crate::machine;

fn raw(stream: CudaStream) -> RawStream {
    RawStream(stream.expose_provenance() as u64)
}

/// Answers a request in the caller's place: null for no bytes and for a failure.
///
/// # Safety
///
/// `out` is null or writable.
#[inline]
unsafe fn answer(
    bytes: usize,
    align: usize,
    out: *mut *mut c_void,
    allocate: impl FnOnce(Layout) -> Result<DevicePtr, Error>,
) -> Result<(), Error> {
    if out.is_null() {
        return Err(null("out"));
    }
    // Before anything may panic.
    // SAFETY: not null, so writable.
    unsafe { out.write(core::ptr::null_mut()) };
    let layout = Layout::of_request(bytes, align)?;
    if bytes > 0 {
        let address = allocate(layout)?.address();
        // SAFETY: as above.
        unsafe { out.write(core::ptr::with_exposed_provenance_mut(address as usize)) };
    }
    Ok(())
}

/// Keeps why a block was left alone. The first wrong free of a process is a line on standard error, because nobody asks for the failure of a
/// call that cannot fail. What comes of the end of the process, or of a fork, is no mistake.
fn freed(body: impl FnOnce() -> Result<(), Error>) {
    call(|| {
        body().inspect_err(|error| {
            use std::io::Write as _;
            use std::sync::Once;
            static FIRST: Once = Once::new();
            if error.kind() != ErrorKind::ShutDown {
                // Not `eprintln!`, which panics where there is no standard error.
                let line =
                    format!("alluvion: a free was refused, and those after it are not told of: {error}\n");
                FIRST.call_once(|| drop(std::io::stderr().write_all(line.as_bytes())));
            }
        })
    });
}

pub(super) unsafe extern "C" fn retain(handle: *const Handle) {
    // SAFETY: the contract of handles.
    contained((), || unsafe { Handle::retain(handle) });
}

pub(super) unsafe extern "C" fn release(handle: *const Handle) {
    // SAFETY: the contract of handles.
    contained((), || unsafe { Handle::release(handle) });
}

pub(super) unsafe extern "C" fn allocate(
    handle: *const Handle,
    bytes: usize,
    align: usize,
    stream: CudaStream,
    out: *mut *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        let request = |layout| {
            let at_once = |stream: StreamRef<'_>| handle.resource().allocate_at_once(layout, stream).map(Ok);
            let allocate = |stream: StreamRef<'_>| {
                unattached(|| {
                    machine::ensure_context(handle.device().machine());
                    handle.resource().allocate(layout, stream)
                })
            };
            // SAFETY: a live stream of the device, by the function's text.
            unsafe { handle.device().raw_streams().with_or_at_once(raw(stream), at_once, allocate) }?
        };
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, request) }
    })
}

pub(super) unsafe extern "C" fn deallocate(
    handle: *const Handle,
    address: *mut c_void,
    bytes: usize,
    align: usize,
    stream: CudaStream,
) {
    freed(|| {
        let Some((block, layout)) = Layout::of_freed(address, bytes, align)? else { return Ok(()) };
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        let at_once =
            // SAFETY: the block came from this stack with this size and is given up, by the function's text.
            |stream: StreamRef<'_>| unsafe { handle.resource().deallocate_at_once(block, layout, stream) };
        // SAFETY: a live stream of the device, by the function's text, on which the block's uses come before this point.
        if unsafe { handle.device().raw_streams().visit(raw(stream), at_once) } {
            return Ok(());
        }
        let deallocate = |stream: StreamRef<'_>| {
            // SAFETY: as above; the attempt before this one did nothing.
            let free = || unsafe { handle.resource().deallocate(block, layout, stream) };
            unattached(|| handle.freeing(free))
        };
        // SAFETY: as above. Where the stream cannot be had, the block leaks.
        unsafe { handle.device().raw_streams().with(raw(stream), deallocate) }?
    });
}

pub(super) unsafe extern "C" fn allocate_sync(
    handle: *const Handle,
    bytes: usize,
    align: usize,
    out: *mut *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        let request = |layout| {
            unattached(|| {
                machine::ensure_context(handle.device().machine());
                handle.resource().allocate_sync(layout)
            })
        };
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, request) }
    })
}

pub(super) unsafe extern "C" fn deallocate_sync(
    handle: *const Handle,
    address: *mut c_void,
    bytes: usize,
    align: usize,
) {
    freed(|| {
        let Some((block, layout)) = Layout::of_freed(address, bytes, align)? else { return Ok(()) };
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        // SAFETY: the block came from this stack with this size and is given up, and nothing uses it, by the function's text.
        let free = || unsafe { handle.resource().deallocate_sync(block, layout) };
        unattached(|| handle.freeing(free))
    });
}

pub(super) extern "C" fn last_error_message() -> *const c_char {
    contained(c"the message cannot be made".as_ptr(), failure::message)
}

pub(super) extern "C" fn last_error_status() -> Status {
    contained(status::PANIC, || failure::last().0)
}

pub(super) extern "C" fn last_requested_bytes() -> usize {
    contained(0, || failure::last().1)
}

pub(super) unsafe extern "C" fn device_of(handle: *const Handle) -> i32 {
    contained(-1, || {
        // SAFETY: the contract of handles.
        unsafe { Handle::lend(handle) }.map_or(-1, |handle| handle.device().ordinal().cast_signed())
    })
}

pub(super) unsafe extern "C" fn equal(one: *const Handle, other: *const Handle) -> i32 {
    contained(0, || {
        // SAFETY: the contract of handles.
        let first = unsafe { Handle::lend(one) };
        // SAFETY: as above.
        let second = unsafe { Handle::lend(other) };
        let is_equal = match (first, second) {
            (Ok(first), Ok(second)) => first.resource() == second.resource(),
            _ => one == other,
        };
        i32::from(is_equal)
    })
}

pub(super) unsafe extern "C" fn describe(handle: *const Handle, buffer: *mut c_char, room: usize) -> usize {
    contained(0, || {
        // SAFETY: the contract of handles.
        let text = unsafe { Handle::lend(handle) }
            .map(|handle| format!("{:#}", handle.resource().describe()).replace("\n> ", " | "))
            .unwrap_or_default();
        if !buffer.is_null() && room > 0 {
            let written = text.floor_char_boundary(room - 1);
            // SAFETY: the caller's buffer has `room` bytes, of which one is kept for the 0.
            unsafe { core::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), buffer, written) };
            // SAFETY: as above.
            let end = unsafe { buffer.add(written) };
            // SAFETY: as above.
            unsafe { end.write(0) };
        }
        text.len()
    })
}

pub(super) unsafe extern "C" fn trim(handle: *const Handle, keep: usize, trimmed: *mut usize) -> Status {
    call(|| {
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        let bytes = unattached(|| handle.resource().trim(keep))?;
        // SAFETY: null or writable, by the contract of pointers.
        if let Some(trimmed) = unsafe { trimmed.as_mut() } {
            *trimmed = bytes;
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn stats(handle: *const Handle, out: *mut DoorStats) -> Status {
    call(|| {
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        if out.is_null() {
            return Err(null("out"));
        }
        let counts = handle.resource().find::<Stats>().map(|book| book.counts()).ok_or_else(|| {
            Error::unsupported("stats", "the stack has no layer that counts", "put `stats` into the recipe")
        })?;
        let stats = DoorStats {
            current_bytes: counts.bytes.live,
            peak_bytes: counts.bytes.peak,
            total_bytes: counts.bytes.total,
            current_count: counts.allocations.live,
            peak_count: counts.allocations.peak,
            total_count: counts.allocations.total,
            failures: counts.failures,
        };
        // SAFETY: not null, so writable.
        unsafe { out.write(stats) };
        Ok(())
    })
}

pub(super) unsafe extern "C" fn memory_info(
    handle: *const Handle,
    free: *mut usize,
    total: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        let info = unattached(|| {
            machine::ensure_context(handle.device().machine());
            handle.resource().memory_info()
        })?;
        // SAFETY: null or writable, by the contract of pointers.
        if let Some(free) = unsafe { free.as_mut() } {
            *free = info.free_bytes;
        }
        // SAFETY: as above.
        if let Some(total) = unsafe { total.as_mut() } {
            *total = info.total_bytes;
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn refused_frees(handle: *const Handle) -> u64 {
    // SAFETY: the contract of handles.
    contained(0, || unsafe { Handle::lend(handle) }.map_or(0, Handle::refused))
}

/// The book of the outermost suballocator.
fn book(handle: &Handle) -> Result<&SuballocBook, Error> {
    handle.resource().find::<SuballocBook>().ok_or_else(|| {
        Error::unsupported("segments", "the stack has no suballocator", "put `pool` into the recipe")
    })
}

pub(super) unsafe extern "C" fn reserved_bytes(handle: *const Handle, bytes: *mut usize) -> Status {
    call(|| {
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        // SAFETY: null or writable, by the contract of pointers.
        let bytes = unsafe { bytes.as_mut() }.ok_or_else(|| null("bytes"))?;
        *bytes = book(handle)?.reserved_bytes();
        Ok(())
    })
}

pub(super) unsafe extern "C" fn segments(
    handle: *const Handle,
    visit: SegmentVisitor,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        // No lock is held any more when the visitor is called.
        let segments = unattached(|| book(handle).map(SuballocBook::segments))?;
        for segment in segments {
            let address = core::ptr::with_exposed_provenance_mut(segment.address.address() as usize);
            // SAFETY: the caller's own function, with the context that came with it.
            unsafe { visit(context, address, segment.bytes) };
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn address_range(
    handle: *const Handle,
    address: *const c_void,
    base: *mut *mut c_void,
    bytes: *mut usize,
) -> Status {
    call(|| {
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        let driver = handle.device().machine().driver();
        let range =
            unattached(|| driver.address_range(address.expose_provenance() as u64))?.ok_or_else(|| {
                Error::invalid_argument(
                    "address",
                    "it is in no memory of the driver",
                    "pass the address of a block",
                )
            })?;
        // SAFETY: null or writable, by the contract of pointers.
        if let Some(base) = unsafe { base.as_mut() } {
            *base = core::ptr::with_exposed_provenance_mut(range.start as usize);
        }
        // SAFETY: as above.
        if let Some(bytes) = unsafe { bytes.as_mut() } {
            *bytes = range.bytes;
        }
        Ok(())
    })
}

pub(super) unsafe extern "C" fn keep_stream(handle: *const Handle, stream: CudaStream) -> Status {
    call(|| {
        // SAFETY: the contract of handles.
        let handle = unsafe { Handle::lend(handle) }?;
        machine::ensure_context(handle.device().machine());
        // SAFETY: a stream of the device that is never destroyed, by the function's text.
        unsafe { handle.keep_stream(raw(stream)) }
    })
}

pub(super) unsafe extern "C" fn detached(body: DetachedBody, context: *mut c_void) -> Status {
    call(|| {
        // SAFETY: the caller's own function, with the context that came with it; it throws nothing, by the function's text.
        unattached(|| unsafe { body(context) });
        Ok(())
    })
}
