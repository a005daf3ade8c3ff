//! Memory of another process, open in this one.

#![expect(
    unsafe_code,
    reason = "exports functions, and duplicates a descriptor that a caller names by its number"
)]

use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};

use alluvion::share::{Import, Imported, ImportedMut};
use alluvion::{Error, StreamRef};

use super::{directory, message, require_known};
use crate::boundary;
use crate::handle::by_contract::{give_to, lend};
use crate::handle::{self, Handle};
use crate::machine;
use crate::record::{self, Record};
use crate::status::Status;
use crate::stream::{self, CudaStream, StreamHandle};

/// In `flags`: the memory is opened to be written. An error for what is shared to be read.
pub const ALV_OPEN_WRITABLE: u32 = 1;
/// In `flags`: memory of another device may be opened, which the stream's device reaches over the bus.
pub const ALV_OPEN_PEER: u32 = 2;

/// How memory of another process is opened. What is 0 or null has the value that the text names.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct OpenOptions {
    /// `sizeof(alv_open_options)`.
    pub struct_size: usize,
    /// 0 to be read on its own device, or constants `ALV_OPEN_`.
    pub flags: u32,
    /// Zero.
    pub reserved: u32,
    /// The directory that the exporter named; null means `/dev/shm`.
    pub directory: *const c_char,
}

// SAFETY: repr(C), a size first, numbers and a pointer, for which all bits zero are null.
unsafe impl Record for OpenOptions {
    const NAME: &'static str = "options, an alv_open_options";
}

/// Memory of another process, open in this one.
#[derive(Debug)]
pub struct ImportedHandle {
    memory: ImportedBytes,
    visible_bytes: usize,
    device: u32,
}

impl Handle for ImportedHandle {
    const NAME: &'static str = "imported";
}

#[derive(Debug)]
enum ImportedBytes {
    ReadOnly(Imported<u8>),
    Writable(ImportedMut<u8>),
}

/// Where memory is that is open, and what may be done with it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ImportedRange {
    /// `sizeof(alv_range)`.
    pub struct_size: usize,
    /// The first byte, for work of the device; null for no bytes.
    pub data: *mut c_void,
    /// The bytes that are shared.
    pub bytes: usize,
    /// The bytes of the allocation or the pages that they lie in: what lies beside them is the exporter's.
    pub visible_bytes: usize,
    /// The number of the device that opened it.
    pub device: i32,
    /// `ALV_OPEN_WRITABLE` if it was opened to be written, else 0.
    pub flags: u32,
}

// SAFETY: repr(C), a size first, numbers and a pointer, for which all bits zero are null.
unsafe impl Record for ImportedRange {
    const NAME: &'static str = "out, an alv_range";
}

/// # Safety
///
/// The contract of pointers: `message` has `length` readable bytes, and `options` a directory that ends in 0, or they are null.
unsafe fn open(
    message: *const c_void,
    length: usize,
    descriptor: c_int,
    options: *const OpenOptions,
    stream: StreamRef<'_>,
) -> Result<ImportedHandle, Error> {
    // SAFETY: the caller's promise.
    let message = unsafe { message::parse(message, length) }?;
    let mut import = Import::new(&message);
    let mut flags = 0;
    if !options.is_null() {
        // SAFETY: the caller's promise.
        let options = unsafe { record::read(options) }?;
        flags = options.flags;
        require_known(flags, ALV_OPEN_WRITABLE | ALV_OPEN_PEER)?;
        // SAFETY: the caller's promise.
        if let Some(directory) = unsafe { directory(options.directory) }? {
            import = import.directory(directory);
        }
    }
    if flags & ALV_OPEN_PEER != 0 {
        import = import.peer();
    }
    if descriptor >= 0 {
        import = import.descriptor(duplicate(descriptor)?);
    }
    let memory = if flags & ALV_OPEN_WRITABLE == 0 {
        ImportedBytes::ReadOnly(import.open_bytes(stream)?)
    } else {
        ImportedBytes::Writable(import.open_bytes_mut(stream)?)
    };
    Ok(ImportedHandle { memory, visible_bytes: message.visible_bytes(), device: stream.device().ordinal() })
}

/// A copy of a descriptor: the caller keeps his own.
fn duplicate(descriptor: c_int) -> Result<OwnedFd, Error> {
    // SAFETY: it is not negative. If it is open, it is so during the call; if it is not, the system refuses to duplicate it, and nothing
    // else is done with it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    borrowed.try_clone_to_owned().map_err(|error| match error.raw_os_error() {
        Some(libc::EBADF) => {
            Error::invalid_argument("descriptor", "it is not open", "pass the one that was sent, or -1")
        }
        _ => Error::unwritable("a copy of the descriptor", &error),
    })
}

/// Opens memory that another process shares, as bytes, on a device of the chosen machine: a message of `length` bytes, and the
/// `descriptor` that came with it, or -1. The descriptor is duplicated: the caller keeps his own. `options` may be null.
///
/// Waits, on the host, for what the exporter had done with the memory when it shared it. Work on `stream`, a live stream of the device,
/// may use the memory from then on; the stream stays valid until the last handle of `*out` is released.
///
/// `ALV_STALE` if the exporter has ended or has taken it back, `ALV_OWN_PROCESS` in the process that shares it, `ALV_DEVICE_MISMATCH`
/// if it is on another device.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_open_shared_raw(
    device: i32,
    message: *const c_void,
    length: usize,
    descriptor: i32,
    options: *const OpenOptions,
    stream: CudaStream,
    out: *mut *mut ImportedHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let device = machine::device(device)?;
            // SAFETY: the contract of pointers.
            let open = |stream: StreamRef<'_>| unsafe { open(message, length, descriptor, options, stream) };
            // SAFETY: a live stream of the device, by the function's text.
            unsafe { stream::with(&device, stream, open) }
        };
        give_to!(out, make)
    })
}

/// As `alv_open_shared`, on the device of a stream that the library knows, which the new handle keeps.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_open_shared_on(
    stream: *const StreamHandle,
    message: *const c_void,
    length: usize,
    descriptor: i32,
    options: *const OpenOptions,
    out: *mut *mut ImportedHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let stream = lend!(stream);
            // SAFETY: the contract of pointers.
            unsafe { open(message, length, descriptor, options, stream.as_ref()) }
        };
        give_to!(out, make)
    })
}

/// Where the memory is, and what may be done with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_imported_range(
    imported: *const ImportedHandle,
    out: *mut ImportedRange,
) -> Status {
    boundary::call(|| {
        let imported = lend!(imported);
        let (slice, flags) = match &imported.memory {
            ImportedBytes::ReadOnly(bytes) => (bytes.as_slice(), 0),
            ImportedBytes::Writable(bytes) => (bytes.as_slice(), ALV_OPEN_WRITABLE),
        };
        let bytes = slice.len();
        let address = if bytes == 0 { 0 } else { slice.as_device_ptr().address() as usize };
        let range = ImportedRange {
            struct_size: size_of::<ImportedRange>(),
            data: std::ptr::with_exposed_provenance_mut(address),
            bytes,
            visible_bytes: imported.visible_bytes,
            device: imported.device.cast_signed(),
            flags,
        };
        // SAFETY: the caller's struct, by the contract of pointers.
        unsafe { record::write(out, &range) }
    })
}

/// One more count of imported memory, which it returns; null for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_imported_retain(imported: *mut ImportedHandle) -> *mut ImportedHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_imported_retain", std::ptr::null_mut(), || unsafe { handle::retain(imported) })
}

/// Takes a count of imported memory; null is allowed. The last one waits, on the host, for the work on the stream that the memory was
/// opened on, behind which the caller has ordered all uses, and closes the memory: the exporter may free it then. If the end of that
/// work cannot be known, as while the stream captures, the memory stays open for as long as the process lives. From any thread, but not
/// from a host function of a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_imported_release(imported: *mut ImportedHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_imported_release", (), || unsafe { handle::release(imported) });
}
