//! The functions, by the names and types that PyTorch calls.
//!
//! | symbol | given to |
//! |---|---|
//! | `alluvion_torch_allocate`, `alluvion_torch_deallocate` | an allocator for `MemPool`: null where there is no memory |
//! | `alluvion_torch_allocate_or_throw`, the same free | an allocator for `change_current_allocator`, which does not look for null |
//! | `alluvion_torch_init` | `set_init_fn` |
//! | `alluvion_torch_reset` | `set_reset_fn`: `empty_cache()` |
//! | `alluvion_torch_memory_fraction` | `set_memory_fraction_fn` |
//! | `alluvion_torch_base_allocation` | `set_base_alloc_fn`: for memory shared between processes |
//! | `alluvion_torch_record_stream` | `set_record_stream_fn` |

#![expect(unsafe_code, reason = "functions that C calls")]

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;

use alluvion::driver::RawStream;

use super::{calls, throw};

/// What `body` returns, or `otherwise` if it panics: nothing unwinds into C.
fn contained<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

fn raw(stream: *mut c_void) -> RawStream {
    RawStream(stream as u64)
}

/// Allocates `size` bytes on `stream` from the current resource of `device`. Null for no bytes, and where there is no memory.
///
/// # Safety
///
/// `stream` is a live stream of the device, or names a default stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn alluvion_torch_allocate(
    size: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let allocated = contained(Err(()), || unsafe { calls::allocate(size, device, raw(stream)) });
    allocated.map_or(null_mut(), |address| address as *mut c_void)
}

/// As [`alluvion_torch_allocate`], and throws `std::bad_alloc` where there is no memory.
///
/// # Safety
///
/// As there. The caller is C++, or whatever C++ exceptions may unwind.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn alluvion_torch_allocate_or_throw(
    size: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    // Nothing in this function is left to drop when the exception passes through it.
    // SAFETY: the caller's promise.
    let block = unsafe { alluvion_torch_allocate(size, device, stream) };
    if block.is_null()
        && size > 0
        && let Some(throw) = throw::throw_bad_alloc()
    {
        throw()
    }
    block
}

/// Frees a block, behind the work on `stream`, to the resource that it came from.
///
/// # Safety
///
/// As [`alluvion_torch_allocate`]; nothing uses the block from now on but work that is submitted to the stream or to those that
/// were recorded.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn alluvion_torch_deallocate(
    block: *mut c_void,
    _size: usize,
    device: c_int,
    stream: *mut c_void,
) {
    // SAFETY: the caller's promise.
    contained((), || unsafe { calls::deallocate(block as u64, device, raw(stream)) });
}

/// Nothing: the library finds the devices by itself.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn alluvion_torch_init(_device_count: c_int) {}

/// Gives unused memory back to the driver.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn alluvion_torch_reset() {
    contained((), calls::trim);
}

/// Bounds what may be out of a device to a fraction of its memory.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn alluvion_torch_memory_fraction(fraction: f64, device: c_int) {
    contained((), || calls::set_memory_fraction(fraction, device));
}

/// The start of the driver's allocation that a block lies in, and its size. The block itself and
/// 0 bytes where the driver does not know.
///
/// # Safety
///
/// `size` is null, or may be written.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn alluvion_torch_base_allocation(
    block: *mut c_void,
    size: *mut usize,
) -> *mut c_void {
    let (start, bytes) = contained(None, || calls::base(block as u64)).unwrap_or((block as u64, 0));
    // SAFETY: the caller's promise.
    if let Some(size) = unsafe { size.as_mut() } {
        *size = bytes;
    }
    start as *mut c_void
}

/// Notes that work on another stream uses a block: the free waits for it, on the device.
///
/// # Safety
///
/// `stream` is a live stream of the block's device, or names a default stream, until the block is freed.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn alluvion_torch_record_stream(block: *mut c_void, stream: *mut c_void) {
    // SAFETY: the caller's promise.
    contained((), || unsafe { calls::record_stream(block as u64, raw(stream)) });
}
