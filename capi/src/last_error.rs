//! What went wrong last on this thread?

#![expect(unsafe_code, reason = "exports functions, and writes structs of the caller")]

use std::ffi::c_char;

use alluvion::Error;
use alluvion::error::OutOfMemory;

use crate::boundary;
use crate::failure::{self, Failure, FromProgram};
use crate::record::{self, Record};
use crate::status::{ALV_OK, ALV_PANIC, ALV_UNSUPPORTED, Status, of_kind};

/// The message of the calling thread's last failed call: valid until the next failing call of the thread, and `""` before the
/// first. A call that succeeds does not touch it, as with `errno`. Never null.
#[unsafe(no_mangle)]
pub extern "C" fn alv_last_error_message() -> *const c_char {
    boundary::contained(c"the message cannot be made".as_ptr(), failure::message)
}

/// What is known of the calling thread's last failed call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ErrorInfo {
    /// `sizeof(alv_error_info)`.
    pub struct_size: usize,
    /// Its status; `ALV_OK` if no call has failed.
    pub status: Status,
    /// The code of the CUDA driver; 0 if the driver was not the cause.
    pub cuda_code: i32,
    /// The bytes that were asked for; 0 if that is not what failed.
    pub requested_bytes: usize,
    /// The limit that was met; `SIZE_MAX` without one.
    pub limit: usize,
    /// The line of a file, from 1; 0 without one.
    pub line: usize,
    /// The column of a recipe or a line, from 1; 0 without one.
    pub column: usize,
    /// The name of the driver's function that failed, such as `cuMemAlloc`; empty without one.
    pub call: [c_char; 48],
    /// What a function of the program's answered, if that led to the failure; `ALV_OK` without one.
    pub foreign_status: Status,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: repr(C), a size first, numbers and an array of bytes.
unsafe impl Record for ErrorInfo {
    const NAME: &'static str = "out, an alv_error_info";
}

/// Writes what is known of the calling thread's last failed call. Its own failure does not replace that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_last_error(out: *mut ErrorInfo) -> Status {
    boundary::contained(ALV_PANIC, || {
        let mut info = ErrorInfo {
            struct_size: 0,
            status: 0,
            cuda_code: 0,
            requested_bytes: 0,
            limit: usize::MAX,
            line: 0,
            column: 0,
            call: [0; 48],
            foreign_status: ALV_OK,
            reserved: 0,
        };
        if let Some(failure) = failure::last() {
            info.status = failure.status();
            if let Failure::Error(error) = &failure {
                info.cuda_code = error.code().map_or(0, |code| code.0.cast_signed());
                info.requested_bytes = error.requested_bytes().unwrap_or(0);
                info.limit = error.limit().unwrap_or(usize::MAX);
                info.line = error.line().unwrap_or(0);
                info.column = error.column().unwrap_or(0);
                info.foreign_status = FromProgram::of(error).unwrap_or(ALV_OK);
                info.call = error.call().map_or([0; 48], |call| record::fixed(call.symbol()));
            }
        }
        // SAFETY: the caller's struct, by the contract of pointers.
        answer(unsafe { record::write(out, &info) })
    })
}

/// What a resource said when it ran out of memory. What is not known is `SIZE_MAX`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OomReport {
    /// `sizeof(alv_oom_report)`.
    pub struct_size: usize,
    /// The bytes that were asked for.
    pub requested_bytes: usize,
    /// The alignment that was asked for.
    pub align: usize,
    /// The number of the device; -1 if it is not known.
    pub device: i32,
    /// Why: one of the constants `ALV_CAUSE_`.
    pub cause: i32,
    /// The number of attempts for this request, from 1: more than one if a handler freed memory and it was not enough.
    pub attempt: u32,
    /// Zero.
    pub reserved: u32,
    /// The bytes of live blocks.
    pub live_bytes: usize,
    /// Free, and usable by the stream that asked.
    pub free_bytes: usize,
    /// Free, but still behind work that is not known to be over.
    pub pending_bytes: usize,
    /// Taken from the upstream and not given back.
    pub reserved_bytes: usize,
    /// The largest block that the stream that asked could get.
    pub largest_bytes: usize,
    /// The limit.
    pub maximum_bytes: usize,
    /// The free memory of the upstream.
    pub upstream_free_bytes: usize,
    /// The total memory of the upstream.
    pub upstream_total_bytes: usize,
    /// The layer or the source that refused, such as `Pool`.
    pub refused_by: [c_char; 32],
    /// The name of the limit that refused; empty without one.
    pub name: [c_char; 64],
}

// SAFETY: repr(C), a size first, numbers and arrays of bytes.
unsafe impl Record for OomReport {
    const NAME: &'static str = "out, an alv_oom_report";
}

/// The request alone is more than can ever be had.
pub const ALV_CAUSE_TOO_LARGE: i32 = 1;
/// The request, on top of what is live, is more than the limit.
pub const ALV_CAUSE_LIMIT: i32 = 2;
/// There are enough free bytes, but not in one piece.
pub const ALV_CAUSE_FRAGMENTATION: i32 = 3;
/// There are enough free bytes, but some are behind work that could not be waited for.
pub const ALV_CAUSE_PENDING: i32 = 4;
/// The upstream has no more, and the memory that it gave is live here.
pub const ALV_CAUSE_FULL: i32 = 5;
/// The upstream has no more, and others have more of it.
pub const ALV_CAUSE_OTHERS: i32 = 6;
/// The layer that refused is frozen: it takes no more memory.
pub const ALV_CAUSE_FROZEN: i32 = 7;

impl OomReport {
    pub(crate) fn of(report: &OutOfMemory) -> Self {
        use alluvion::error::Cause;
        Self {
            struct_size: size_of::<Self>(),
            requested_bytes: report.requested_bytes,
            align: report.align,
            device: report.device.map_or(-1, u32::cast_signed),
            cause: match report.cause {
                Cause::TooLarge => ALV_CAUSE_TOO_LARGE,
                Cause::Limit => ALV_CAUSE_LIMIT,
                Cause::Fragmentation => ALV_CAUSE_FRAGMENTATION,
                Cause::Pending => ALV_CAUSE_PENDING,
                Cause::Full => ALV_CAUSE_FULL,
                Cause::Others => ALV_CAUSE_OTHERS,
                Cause::Frozen => ALV_CAUSE_FROZEN,
                // A cause that this table does not know yet.
                _ => 0,
            },
            attempt: report.attempt,
            reserved: 0,
            live_bytes: report.live_bytes,
            free_bytes: report.free_bytes,
            pending_bytes: report.pending_bytes,
            reserved_bytes: report.reserved_bytes,
            largest_bytes: report.largest_bytes,
            maximum_bytes: report.maximum_bytes.unwrap_or(usize::MAX),
            upstream_free_bytes: report.upstream_memory.map_or(usize::MAX, |memory| memory.free_bytes),
            upstream_total_bytes: report.upstream_memory.map_or(usize::MAX, |memory| memory.total_bytes),
            refused_by: record::fixed(report.refused_by),
            name: report.name.as_deref().map_or([0; 64], record::fixed),
        }
    }
}

/// Writes the report of the resource that ran out of memory in the calling thread's last failed call. `ALV_UNSUPPORTED` if that
/// was not such a failure; the last failure stays what it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_last_out_of_memory(out: *mut OomReport) -> Status {
    boundary::contained(ALV_PANIC, || {
        let report = match failure::last() {
            Some(Failure::Error(error)) => error.out_of_memory_report().map(OomReport::of),
            _ => None,
        };
        let Some(report) = report else { return ALV_UNSUPPORTED };
        // SAFETY: the caller's struct, by the contract of pointers.
        answer(unsafe { record::write(out, &report) })
    })
}

/// The status of a question about the last failure, which stays what it was.
fn answer(written: Result<(), Error>) -> Status {
    written.map_or_else(|error| of_kind(error.kind()), |()| ALV_OK)
}
