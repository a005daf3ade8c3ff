//! `Table`: the struct of functions, laid out as `alluvion/door.h` has it.
//!
//! It grows at its end, and `size` says how far. What is there stays as it is: anything else is another `abi_version`.

use core::ffi::{c_char, c_void};

use super::calls;
use super::handle::Handle;
use super::status::Status;

/// A bare stream of CUDA: 0 and 1 are the legacy default stream, 2 is that of the calling thread.
pub(super) type CudaStream = *mut c_void;

/// What `segments` calls with each one: its context, the address, and the bytes.
pub(super) type SegmentVisitor = unsafe extern "C" fn(*mut c_void, *mut c_void, usize);

/// What `detached` calls with its context.
pub(super) type DetachedBody = unsafe extern "C" fn(*mut c_void);

/// `struct alv_door_stats`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct DoorStats {
    pub(super) current_bytes: i64,
    pub(super) peak_bytes: i64,
    pub(super) total_bytes: i64,
    pub(super) current_count: i64,
    pub(super) peak_count: i64,
    pub(super) total_count: i64,
    pub(super) failures: u64,
}

/// `struct alv_door_table`.
#[repr(C)]
pub(super) struct Table {
    size: usize,
    abi_version: u32,
    reserved: u32,
    retain: unsafe extern "C" fn(*const Handle),
    release: unsafe extern "C" fn(*const Handle),
    allocate: unsafe extern "C" fn(*const Handle, usize, usize, CudaStream, *mut *mut c_void) -> Status,
    deallocate: unsafe extern "C" fn(*const Handle, *mut c_void, usize, usize, CudaStream),
    allocate_sync: unsafe extern "C" fn(*const Handle, usize, usize, *mut *mut c_void) -> Status,
    deallocate_sync: unsafe extern "C" fn(*const Handle, *mut c_void, usize, usize),
    last_error_message: extern "C" fn() -> *const c_char,
    last_error_status: extern "C" fn() -> Status,
    last_requested_bytes: extern "C" fn() -> usize,
    device_of: unsafe extern "C" fn(*const Handle) -> i32,
    equal: unsafe extern "C" fn(*const Handle, *const Handle) -> i32,
    describe: unsafe extern "C" fn(*const Handle, *mut c_char, usize) -> usize,
    trim: unsafe extern "C" fn(*const Handle, usize, *mut usize) -> Status,
    stats: unsafe extern "C" fn(*const Handle, *mut DoorStats) -> Status,
    memory_info: unsafe extern "C" fn(*const Handle, *mut usize, *mut usize) -> Status,
    refused_frees: unsafe extern "C" fn(*const Handle) -> u64,
    reserved_bytes: unsafe extern "C" fn(*const Handle, *mut usize) -> Status,
    segments: unsafe extern "C" fn(*const Handle, SegmentVisitor, *mut c_void) -> Status,
    address_range: unsafe extern "C" fn(*const Handle, *const c_void, *mut *mut c_void, *mut usize) -> Status,
    keep_stream: unsafe extern "C" fn(*const Handle, CudaStream) -> Status,
    detached: unsafe extern "C" fn(DetachedBody, *mut c_void) -> Status,
}

impl Table {
    /// What the capsule of a handle calls.
    pub(super) const RELEASE: unsafe extern "C" fn(*const Handle) = calls::release;
}

/// The one table of the process.
pub(super) static TABLE: Table = Table {
    size: size_of::<Table>(),
    abi_version: 1,
    reserved: 0,
    retain: calls::retain,
    release: calls::release,
    allocate: calls::allocate,
    deallocate: calls::deallocate,
    allocate_sync: calls::allocate_sync,
    deallocate_sync: calls::deallocate_sync,
    last_error_message: calls::last_error_message,
    last_error_status: calls::last_error_status,
    last_requested_bytes: calls::last_requested_bytes,
    device_of: calls::device_of,
    equal: calls::equal,
    describe: calls::describe,
    trim: calls::trim,
    stats: calls::stats,
    memory_info: calls::memory_info,
    refused_frees: calls::refused_frees,
    reserved_bytes: calls::reserved_bytes,
    segments: calls::segments,
    address_range: calls::address_range,
    keep_stream: calls::keep_stream,
    detached: calls::detached,
};
