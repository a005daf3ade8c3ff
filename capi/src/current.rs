//! What does a device allocate from?

#![expect(unsafe_code, reason = "exports functions")]

use alluvion::{AnyResource, Error};

use crate::boundary;
use crate::handle;
use crate::machine;
use crate::resource::ResourceHandle;
use crate::status::Status;

/// The resource that a device allocates from by default. The caller releases it. `ALLUVION_RESOURCE` in the environment names the first one by
/// a recipe. A negative number means the current device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_current_resource(device: i32, out: *mut *mut ResourceHandle) -> Status {
    boundary::call(|| {
        let make = || Ok(ResourceHandle::new(machine::device(device)?.current_resource()?));
        // SAFETY: the contract of pointers.
        unsafe { handle::give_to(out, make) }
    })
}

/// Makes a device allocate from another resource, of which it keeps a count of its own. `previous`, which may be null, gets the one before:
/// the caller releases it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_set_current_resource(
    device: i32,
    resource: *const ResourceHandle,
    previous: *mut *mut ResourceHandle,
) -> Status {
    boundary::call(|| {
        let set = || {
            // SAFETY: the contract of pointers.
            let resource = unsafe { handle::lend(resource) }?.get().clone();
            machine::device(device)?.set_current_resource(resource)
        };
        // SAFETY: the contract of pointers.
        unsafe { exchange(previous, set) }
    })
}

/// Puts the first resource of a device back. `previous` as in `alv_set_current_resource`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_reset_current_resource(
    device: i32,
    previous: *mut *mut ResourceHandle,
) -> Status {
    boundary::call(|| {
        let reset = || machine::device(device)?.reset_current_resource();
        // SAFETY: the contract of pointers.
        unsafe { exchange(previous, reset) }
    })
}

/// # Safety
///
/// `previous` is null or writable.
unsafe fn exchange(
    previous: *mut *mut ResourceHandle,
    change: impl FnOnce() -> Result<AnyResource, Error>,
) -> Result<(), Error> {
    if previous.is_null() {
        // The last handle of a resource may wait for work.
        return change().map(drop);
    }
    // SAFETY: not null, so writable.
    unsafe { handle::give_to(previous, || change().map(ResourceHandle::new)) }
}
