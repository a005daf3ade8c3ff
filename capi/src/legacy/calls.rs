//! The functions that begin and end, allocate and free.

#![expect(unsafe_code, reason = "exports functions, and frees blocks that C names by their addresses")]

use std::ffi::{c_char, c_long, c_void};

use alluvion::{DevicePtr, Error, Layout, Ledger, StreamRef};

use super::answer::{Refusal, RmmError, call};
use super::log::{Caller, Event, Log, Row};
use super::options::{Options, RmmOptions};
use super::state;
use crate::allocate::pointer;
use crate::boundary::{self, null};
use crate::stream::{self, CudaStream};

/// A call that is to be logged.
#[derive(Clone, Copy)]
struct Call {
    event: Event,
    stream: CudaStream,
    caller: Caller,
}

impl Call {
    fn row(&self, device: u32, block: Option<DevicePtr>, bytes: usize, start: u64) -> Row {
        Row {
            event: self.event,
            device,
            address: block.map_or(0, DevicePtr::address),
            stream: self.stream.addr() as u64,
            bytes,
            start,
        }
    }
}

/// Begins with these options; null means those of the last time, else `Options::DEFAULT`. A second call ends what the first has
/// begun, unless a block of it is live: then nothing has changed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmmInitialize(options: *const RmmOptions) -> RmmError {
    call(|| {
        let options = if options.is_null() {
            None
        } else {
            // SAFETY: the contract of pointers; any bits are a value.
            Some(Options::of_c(unsafe { options.read() })?)
        };
        Ok(state::initialize(options)?)
    })
}

/// Waits for the devices, gives every block that is live back, and the pools, and drops the log. Cannot fail.
#[unsafe(no_mangle)]
pub extern "C" fn rmmFinalize() -> RmmError {
    call(|| {
        state::finalize();
        Ok(())
    })
}

/// Whether there was an initialize without a finalize. `options`, if not null, gets the options in force.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmmIsInitialized(options: *mut RmmOptions) -> bool {
    boundary::contained(false, || {
        let (is_initialized, in_force) = state::is_initialized();
        if !options.is_null() {
            // SAFETY: not null, so writable.
            unsafe { options.write(in_force.to_c()) };
        }
        is_initialized
    })
}

/// Allocates on the current device, for work on a stream of it. `*ptr` is null for no bytes, and if the call fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmmAlloc(
    ptr: *mut *mut c_void,
    size: usize,
    stream: CudaStream,
    file: *const c_char,
    line: u32,
) -> RmmError {
    call(|| {
        if !ptr.is_null() {
            // SAFETY: not null, so writable.
            unsafe { ptr.write(std::ptr::null_mut()) };
        }
        if size == 0 {
            return Ok(());
        }
        if ptr.is_null() {
            return Err(null("ptr").into());
        }
        let of = Call { event: Event::Alloc, stream, caller: Caller::new(file, line) };
        // SAFETY: the caller's stream and file, by the contract of pointers.
        let block = unsafe { allocate(of, Layout::from_bytes(size)?, 1, None) }?;
        // SAFETY: as above.
        unsafe { ptr.write(pointer(block)) };
        Ok(())
    })
}

/// Frees the block at `*ptr`, if that is not null, and allocates another. The contents are not kept. If the new block cannot be
/// had, the old one is gone all the same, and `*ptr` is null; what is refused for its arguments has changed nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmmRealloc(
    ptr: *mut *mut c_void,
    new_size: usize,
    stream: CudaStream,
    file: *const c_char,
    line: u32,
) -> RmmError {
    call(|| {
        if ptr.is_null() {
            return if new_size == 0 { Ok(()) } else { Err(null("ptr").into()) };
        }
        let of = Call { event: Event::Realloc, stream, caller: Caller::new(file, line) };
        let layout = Layout::from_bytes(new_size)?;
        // SAFETY: not null, so readable and writable.
        let old = unsafe { ptr.read() };
        let Some(old) = DevicePtr::new(old.expose_provenance() as u64) else {
            if new_size == 0 {
                return Ok(());
            }
            // SAFETY: as in `rmmAlloc`.
            let block = unsafe { allocate(of, layout, 1, None) }?;
            // SAFETY: as above.
            unsafe { ptr.write(pointer(block)) };
            return Ok(());
        };
        let session = state::session()?;
        let start = session.log().map(Log::now);
        let (ledger, _) = session.owner(old).ok_or_else(stranger)?;
        if new_size > 0 {
            // Asked before anything is freed: what is allocated belongs to the current device, and so must the stream.
            let device = session.machine().current_device()?;
            // SAFETY: the caller's stream, by the contract of pointers.
            unsafe { stream::with(&device, stream, |_| Ok(())) }?;
        }
        // SAFETY: as above; the block is given up.
        unsafe { free(ledger, old, stream) }?;
        // SAFETY: not null, so writable.
        unsafe { ptr.write(std::ptr::null_mut()) };
        if new_size > 0 {
            // SAFETY: as in `rmmAlloc`.
            let block = unsafe { allocate(of, layout, 0, start) }?;
            // SAFETY: as above.
            unsafe { ptr.write(pointer(block)) };
        } else if let Some((log, start)) = session.log().zip(start) {
            let device = ledger.resource().device();
            let memory = session.memory_for(log, device);
            // SAFETY: the caller's file, by the contract of pointers.
            unsafe { log.add(of.row(device.ordinal(), None, 0, start), memory, -1, of.caller) };
        }
        Ok(())
    })
}

/// Frees a block behind the work that is on the stream. Null is nothing to free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmmFree(
    ptr: *mut c_void,
    stream: CudaStream,
    file: *const c_char,
    line: u32,
) -> RmmError {
    call(|| {
        let Some(block) = DevicePtr::new(ptr.expose_provenance() as u64) else { return Ok(()) };
        let of = Call { event: Event::Free, stream, caller: Caller::new(file, line) };
        let session = state::session()?;
        let start = session.log().map(Log::now);
        let (ledger, bytes) = session.owner(block).ok_or_else(stranger)?;
        let Some((log, start)) = session.log().zip(start) else {
            // SAFETY: the caller's stream, by the contract of pointers; the block is given up.
            return Ok(unsafe { free(ledger, block, stream) }?);
        };
        // Before the block goes back, or a row of a thread that gets it next may come first.
        let device = ledger.resource().device();
        // SAFETY: the caller's file, by the contract of pointers.
        let pending =
            unsafe { log.begin(of.row(device.ordinal(), Some(block), bytes, start), -1, of.caller) };
        // SAFETY: as above.
        match unsafe { free(ledger, block, stream) } {
            Ok(()) => {
                log.end(pending, session.memory_for(log, device));
                Ok(())
            }
            Err(error) => {
                log.take_out(pending, -1);
                Err(error.into())
            }
        }
    })
}

/// How far an address lies behind the start of the driver's allocation around it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmmGetAllocationOffset(
    offset: *mut c_long,
    ptr: *mut c_void,
    _stream: CudaStream,
) -> RmmError {
    call(|| {
        if offset.is_null() || ptr.is_null() {
            return Err(null(if offset.is_null() { "offset" } else { "ptr" }).into());
        }
        let address = ptr.expose_provenance() as u64;
        let session = state::session()?;
        let found = session.machine().driver().address_range(address);
        let Some(range) = found.map_err(|error| Error::of_driver(error, 0))? else {
            let instead = "pass an address of a block";
            return Err(
                Error::invalid_argument("ptr", "the driver knows no allocation there", instead).into()
            );
        };
        // SAFETY: not null, so writable. An allocation is shorter than half of all addresses.
        unsafe { offset.write((address - range.start) as c_long) };
        Ok(())
    })
}

/// The free and the total bytes of the current device; with a pool, what the pool has free counts as free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rmmGetInfo(
    free_size: *mut usize,
    total_size: *mut usize,
    _stream: CudaStream,
) -> RmmError {
    call(|| {
        if free_size.is_null() || total_size.is_null() {
            return Err(null(if free_size.is_null() { "free_size" } else { "total_size" }).into());
        }
        let session = state::session()?;
        let info = session.memory_info(&session.machine().current_device()?)?;
        // SAFETY: not null, so writable.
        unsafe { free_size.write(info.free_bytes) };
        // SAFETY: not null, so writable.
        unsafe { total_size.write(info.total_bytes) };
        Ok(())
    })
}

/// Allocates on the current device, and logs it; `change` is by how many blocks more are live after it, and `began` when a call
/// that has freed a block before has begun.
///
/// # Safety
///
/// The stream is live or names a default stream; the file is null or ends in 0.
unsafe fn allocate(of: Call, layout: Layout, change: i8, began: Option<u64>) -> Result<DevicePtr, Refusal> {
    loop {
        let session = state::session()?;
        let start = session.log().map(|log| began.unwrap_or_else(|| log.now()));
        let device = session.machine().current_device()?;
        // SAFETY: the caller's promise.
        let allocated = unsafe { session.allocate(&device, layout, of.stream) };
        // The session has ended meanwhile, and another may have begun.
        let Some(allocated) = allocated.transpose() else { continue };
        if let Some((log, start)) = session.log().zip(start) {
            let row = of.row(device.ordinal(), allocated.as_ref().ok().copied(), layout.bytes(), start);
            let memory = session.memory_for(log, &device);
            let change = if allocated.is_ok() { change } else { change - 1 };
            // SAFETY: the caller's promise.
            unsafe { log.add(row, memory, change, of.caller) };
        }
        return Ok(allocated?);
    }
}

/// Frees a block of a ledger, behind the work that is on a stream of its device.
///
/// # Safety
///
/// The stream is live or names a default stream, and the uses of the block come before this point of it.
unsafe fn free(ledger: &Ledger, block: DevicePtr, stream: CudaStream) -> Result<(), Error> {
    let free = |stream: StreamRef<'_>| {
        // SAFETY: the caller's promise.
        unsafe { ledger.free(block, stream) }.map(drop)
    };
    // SAFETY: the caller's promise.
    unsafe { stream::with(ledger.resource().device(), stream, free) }
}

/// That an address is of no block.
#[cold]
fn stranger() -> Error {
    Error::invalid_argument("ptr", "no block begins there that is out", "free what rmmAlloc gave, once")
}
