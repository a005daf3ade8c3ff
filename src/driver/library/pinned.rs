//! Pinned memory of the host: made, or registered.

#![expect(unsafe_code, reason = "calls the vendors' libraries")]

use core::ptr::{self, NonNull};

use super::answer::not_empty;
use super::interface::Interface;
use super::{abi, aligned};
use crate::driver::{Call, Code, DriverError, DriverResult, PinnedFlags};

pub(in crate::driver) fn allocate_pinned<L: Interface>(
    library: &L,
    ordinal: u32,
    bytes: usize,
    flags: PinnedFlags,
) -> DriverResult<NonNull<u8>> {
    const CALL: Call = Call::AllocatePinned;
    not_empty(CALL, bytes)?;
    let mut start = ptr::null_mut();
    library.on_device(ordinal, CALL, || {
        // SAFETY: `start` is writable.
        unsafe { (library.functions().host_allocate)(&raw mut start, bytes, abi::pinned_flags(flags)) }
    })?;
    let pointer = NonNull::new(start.cast::<u8>()).ok_or(DriverError::new(CALL, Code::OUT_OF_MEMORY))?;
    if flags.mapped {
        // SAFETY: the memory was just pinned, and mapped.
        let same = unsafe { check_same_address(library, ordinal, CALL, pointer) };
        if let Err(error) = same {
            // A failure to free leaks memory that could not be used. SAFETY: `pointer` came from this device and was not returned.
            let _ = unsafe { free_pinned(library, ordinal, pointer) };
            return Err(error);
        }
    }
    aligned::<L>(CALL, pointer.as_ptr().addr() as u64, || {
        // SAFETY: `pointer` came from this device and was not returned.
        unsafe { free_pinned(library, ordinal, pointer) }
    })?;
    Ok(pointer)
}

/// # Safety
///
/// As [`Driver::free_pinned`](crate::driver::Driver::free_pinned).
pub(in crate::driver) unsafe fn free_pinned(
    library: &impl Interface,
    ordinal: u32,
    pointer: NonNull<u8>,
) -> DriverResult<()> {
    library.on_device(ordinal, Call::FreePinned, || {
        // SAFETY: the caller's promise: the memory is live and nobody uses it again.
        unsafe { (library.functions().host_free)(pointer.as_ptr().cast()) }
    })
}

/// # Safety
///
/// As [`Driver::register_host`](crate::driver::Driver::register_host).
pub(in crate::driver) unsafe fn register_host(
    library: &impl Interface,
    ordinal: u32,
    pointer: NonNull<u8>,
    bytes: usize,
    flags: PinnedFlags,
) -> DriverResult<()> {
    const CALL: Call = Call::RegisterHost;
    // The bit of write-combining means "memory of a device" to this call, and the host's cache policy is settled.
    if flags.write_combined {
        return Err(DriverError::new(CALL, Code::INVALID_VALUE));
    }
    let functions = library.functions();
    // What could not be unregistered is not registered.
    let register = functions.host_register.filter(|_| functions.host_unregister.is_some());
    library.call_with(ordinal, CALL, register, |register| {
        // SAFETY: the bytes are mapped and stay so until they are unregistered, as the caller promises.
        unsafe { register(pointer.as_ptr().cast(), bytes, abi::pinned_flags(flags)) }
    })?;
    if flags.mapped {
        // SAFETY: the memory was just registered, and mapped.
        let same = unsafe { check_same_address(library, ordinal, CALL, pointer) };
        if let Err(error) = same {
            // A failure leaves the memory pinned, which is no harm while it is mapped.
            // SAFETY: `pointer` was just registered, and no device has been given it.
            let _ = unsafe { unregister_host(library, ordinal, pointer) };
            return Err(error);
        }
    }
    Ok(())
}

/// # Safety
///
/// As [`Driver::unregister_host`](crate::driver::Driver::unregister_host).
pub(in crate::driver) unsafe fn unregister_host(
    library: &impl Interface,
    ordinal: u32,
    pointer: NonNull<u8>,
) -> DriverResult<()> {
    library.call_with(ordinal, Call::UnregisterHost, library.functions().host_unregister, |unregister| {
        // SAFETY: no device has work left that touches the memory, as the caller promises.
        unsafe { unregister(pointer.as_ptr().cast()) }
    })
}

/// Checks that mapped pinned memory has one address on the host and on the device. By the vendors' manuals, write-combined and
/// registered memory need not on every platform.
///
/// # Safety
///
/// `pointer` is the start of memory that was pinned and mapped.
unsafe fn check_same_address(
    library: &impl Interface,
    ordinal: u32,
    call: Call,
    pointer: NonNull<u8>,
) -> DriverResult<()> {
    let address: u64 = library.read_on_device(ordinal, call, |address| {
        // SAFETY: `address` is writable; `pointer` is as the caller promises; the flags must be 0.
        unsafe { (library.functions().host_get_device_pointer)(address, pointer.as_ptr().cast(), 0) }
    })?;
    let same = address == pointer.as_ptr().addr() as u64;
    if same { Ok(()) } else { Err(DriverError::new(call, Code::NOT_SUPPORTED)) }
}
