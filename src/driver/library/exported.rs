//! Handles of exported memory, as libraries write and take them.

#![expect(unsafe_code, reason = "takes descriptors over that a foreign library has opened")]

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use crate::driver::{Call, Code, DriverError, DriverResult, ExportedMemory, HandleType};

/// What `export` has written as a handle of that type. `export` is given where to.
pub(in crate::driver) fn exported(
    call: Call,
    handle_type: HandleType,
    export: impl FnOnce(*mut c_void) -> DriverResult<()>,
) -> DriverResult<ExportedMemory> {
    match handle_type {
        #[cfg(unix)]
        HandleType::POSIX_FILE_DESCRIPTOR => {
            let mut descriptor: c_int = -1;
            export((&raw mut descriptor).cast())?;
            if descriptor < 0 {
                return Err(DriverError::new(call, Code::UNKNOWN));
            }
            // SAFETY: the library has opened it for the caller, who is to close it; nobody else knows it.
            let owned = unsafe { std::os::fd::FromRawFd::from_raw_fd(descriptor) };
            // As every descriptor of the standard library. A program that this one starts would keep the memory alive. A failure
            // leaves it as the library made it.
            // SAFETY: it is open, and the flag is of this descriptor alone.
            unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
            Ok(ExportedMemory::FileDescriptor(owned))
        }
        HandleType::FABRIC => {
            let mut handle = Box::new([0; 64]);
            export(handle.as_mut_ptr().cast())?;
            Ok(ExportedMemory::Fabric(handle))
        }
        // Handle types of Windows, none, and more than one.
        _ => Err(DriverError::new(call, Code::INVALID_VALUE)),
    }
}

/// How a library takes a descriptor that it imports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::driver) enum Descriptors {
    /// The pointer's own value is the descriptor.
    ByValue,
    /// The pointer leads to the descriptor, as in HIP before 7.1.
    #[cfg_attr(not(feature = "runtime"), expect(dead_code, reason = "libcuda takes none so"))]
    ByAddress,
}

/// Calls `import` with a handle as the library takes it, and with its type. A fabric handle is where the pointer leads to.
pub(in crate::driver) fn as_handle(
    exported: &ExportedMemory,
    descriptors: Descriptors,
    import: impl FnOnce(*mut c_void, HandleType) -> c_uint,
) -> c_uint {
    match exported {
        #[cfg(unix)]
        ExportedMemory::FileDescriptor(descriptor) => {
            let mut number: c_int = std::os::fd::AsRawFd::as_raw_fd(descriptor);
            let pointer = match descriptors {
                // An open descriptor is not negative.
                Descriptors::ByValue => ptr::without_provenance_mut(number.unsigned_abs() as usize),
                Descriptors::ByAddress => (&raw mut number).cast(),
            };
            import(pointer, HandleType::POSIX_FILE_DESCRIPTOR)
        }
        ExportedMemory::Fabric(handle) => {
            let mut handle = **handle;
            import((&raw mut handle).cast(), HandleType::FABRIC)
        }
    }
}
