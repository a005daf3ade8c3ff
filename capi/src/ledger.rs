//! How is memory freed without its size?
//!
//! By a ledger over a resource: it costs a lock and a step of a table at each call, which `alv_allocate` and `alv_deallocate` do
//! not.

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::c_void;

use alluvion::{AnyResource, Device, DevicePtr, Layout, Ledger, StreamRef};

use crate::allocate::{answer, pointer};
use crate::boundary::{self, null};
use crate::handle::by_contract::{give_to, lend};
use crate::handle::{self, Handle};
use crate::resource::ResourceHandle;
use crate::status::Status;
use crate::stream::{self, CudaStream, StreamHandle};

/// A resource with the sizes of its blocks: for frees that name none.
#[derive(Debug)]
pub struct LedgerHandle {
    ledger: Ledger<AnyResource>,
    /// That of the resource, at hand.
    device: Device,
}

impl Handle for LedgerHandle {
    const NAME: &'static str = "ledger";
}

/// The address of a block as C has it; `None` for null.
pub(crate) fn address(block: *const c_void) -> Option<DevicePtr> {
    DevicePtr::new(block.expose_provenance() as u64)
}

/// A ledger in front of a resource, of which it keeps a count: it enters the blocks that go out through it. What is out when the
/// ledger is released for good stays allocated.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_over(
    resource: *const ResourceHandle,
    out: *mut *mut LedgerHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let resource = lend!(resource);
            Ok(LedgerHandle {
                ledger: Ledger::new(resource.get().clone()),
                device: resource.device().clone(),
            })
        };
        give_to!(out, make)
    })
}

/// One more count of a ledger, which it returns; null for null. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_retain(ledger: *mut LedgerHandle) -> *mut LedgerHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_ledger_retain", std::ptr::null_mut(), || unsafe { handle::retain(ledger) })
}

/// Takes a count of a ledger; null is allowed. From any thread, but not from a host function of a stream, as
/// `alv_resource_release`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_release(ledger: *mut LedgerHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_ledger_release", (), || unsafe { handle::release(ledger) });
}

/// The resource that a ledger stands in front of. The caller releases it. A block that comes from it directly is a stranger to
/// the ledger.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_resource(
    ledger: *const LedgerHandle,
    out: *mut *mut ResourceHandle,
) -> Status {
    boundary::call(|| {
        let make = || Ok(ResourceHandle::new(lend!(ledger).ledger.resource().clone()));
        give_to!(out, make)
    })
}

/// As `alv_allocate`, for a block that is freed by `alv_ledger_free`.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_allocate_raw(
    ledger: *const LedgerHandle,
    bytes: usize,
    align: usize,
    stream: CudaStream,
    out: *mut *mut c_void,
) -> Status {
    boundary::call(|| {
        let allocate = |layout: Layout| {
            let LedgerHandle { ledger, device } = lend!(ledger);
            let allocate = |stream: StreamRef<'_>| ledger.allocate(layout, stream);
            // SAFETY: a live stream of the device, by the function's text.
            unsafe { stream::with(device, stream, allocate) }
        };
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, allocate) }
    })
}

/// As `alv_ledger_allocate`, on a stream that the library knows.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_allocate_on(
    ledger: *const LedgerHandle,
    bytes: usize,
    align: usize,
    stream: *const StreamHandle,
    out: *mut *mut c_void,
) -> Status {
    boundary::call(|| {
        let allocate = |layout| {
            let ledger = &lend!(ledger).ledger;
            ledger.allocate(layout, lend!(stream).as_ref())
        };
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, allocate) }
    })
}

/// As `alv_ledger_allocate`, for a block that every stream, and the host if it has access, may use as soon as the call returns.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_allocate_sync(
    ledger: *const LedgerHandle,
    bytes: usize,
    align: usize,
    out: *mut *mut c_void,
) -> Status {
    boundary::call(|| {
        let allocate = |layout| lend!(ledger).ledger.allocate_sync(layout);
        // SAFETY: the contract of pointers.
        unsafe { answer(bytes, align, out, allocate) }
    })
}

/// Gives a block back by its address alone, behind the work that is on `stream` and on the streams that were recorded for it.
/// Null is nothing to free. `ALV_MISUSE` for what is not out, such as a block that is free already or the middle of a block. If
/// the call fails, nothing is freed, and the block stays out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_free_raw(
    ledger: *const LedgerHandle,
    block: *mut c_void,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let Some(block) = address(block) else { return Ok(()) };
        let LedgerHandle { ledger, device } = lend!(ledger);
        // SAFETY: the block is given up, and its uses come before the stream's point, by the function's text.
        let free = |stream: StreamRef<'_>| unsafe { ledger.free(block, stream) };
        // SAFETY: a live stream of the device, by the function's text.
        unsafe { stream::with(device, stream, free) }.map(drop)
    })
}

/// As `alv_ledger_free`, on a stream that the library knows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_free_on(
    ledger: *const LedgerHandle,
    block: *mut c_void,
    stream: *const StreamHandle,
) -> Status {
    boundary::call(|| {
        let Some(block) = address(block) else { return Ok(()) };
        let ledger = &lend!(ledger).ledger;
        let stream = lend!(stream).as_ref();
        // SAFETY: as in `alv_ledger_free_raw`.
        unsafe { ledger.free(block, stream) }.map(drop)
    })
}

/// Gives a block back that no work uses any more, but for that of the streams that were recorded for it, which the call waits for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_free_sync(ledger: *const LedgerHandle, block: *mut c_void) -> Status {
    boundary::call(|| {
        let Some(block) = address(block) else { return Ok(()) };
        let ledger = &lend!(ledger).ledger;
        // SAFETY: the block is given up, and its uses are over or recorded, by the function's text.
        unsafe { ledger.free_sync(block) }.map(drop)
    })
}

/// The start of the block that an address lies in, and the bytes that it was asked for with: for its start, its middle and its
/// last byte. `bytes` and `base` may be null. `ALV_MISUSE` with 0 and null for an address that no block which is out has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_size(
    ledger: *const LedgerHandle,
    block: *const c_void,
    bytes: *mut usize,
    base: *mut *mut c_void,
) -> Status {
    boundary::call(|| {
        let find = || {
            let ledger = &lend!(ledger).ledger;
            ledger.block_at(address(block).ok_or_else(|| null("block"))?)
        };
        let (answer, start, size) = match find() {
            Ok(found) => (Ok(()), pointer(found.block), found.layout.bytes()),
            Err(error) => (Err(error), std::ptr::null_mut(), 0),
        };
        // SAFETY: null or writable, by the contract of pointers.
        if let Some(bytes) = unsafe { bytes.as_mut() } {
            *bytes = size;
        }
        // SAFETY: as above.
        if let Some(base) = unsafe { base.as_mut() } {
            *base = start;
        }
        answer
    })
}

/// How many blocks are out, and the bytes that they were asked for with. Both places may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ledger_live(
    ledger: *const LedgerHandle,
    blocks: *mut usize,
    bytes: *mut usize,
) -> Status {
    boundary::call(|| {
        let ledger = &lend!(ledger).ledger;
        // SAFETY: null or writable, by the contract of pointers.
        if let Some(blocks) = unsafe { blocks.as_mut() } {
            *blocks = ledger.live_blocks();
        }
        // SAFETY: as above.
        if let Some(bytes) = unsafe { bytes.as_mut() } {
            *bytes = ledger.live_bytes();
        }
        Ok(())
    })
}

/// Notes that work on `stream` uses the block that an address lies in, besides the stream that it will be freed on: the free
/// waits for what is on `stream` by then, on the device. The stream stays valid until the block is free; it is of the resource's
/// device. `ALV_MISUSE` for an address that no block which is out has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_record_stream_raw(
    ledger: *const LedgerHandle,
    block: *const c_void,
    stream: CudaStream,
) -> Status {
    boundary::call(|| {
        let LedgerHandle { ledger, device } = lend!(ledger);
        let block = address(block).ok_or_else(|| null("block"))?;
        let record = |stream: StreamRef<'_>| ledger.record_stream(block, stream);
        // SAFETY: a live stream of the device, which lives until the block is free, by the function's text.
        unsafe { stream::with(device, stream, record) }
    })
}

/// As `alv_record_stream`, for a stream that the library knows, of any device of the machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_record_stream_on(
    ledger: *const LedgerHandle,
    block: *const c_void,
    stream: *const StreamHandle,
) -> Status {
    boundary::call(|| {
        let ledger = &lend!(ledger).ledger;
        let block = address(block).ok_or_else(|| null("block"))?;
        ledger.record_stream(block, lend!(stream).as_ref())
    })
}
