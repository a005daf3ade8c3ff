//! What does a device allocate from?

#![expect(unsafe_code, reason = "exports functions")]

use std::sync::{PoisonError, RwLock};

use alluvion::{AnyResource, Device, Error};

use crate::boundary;
use crate::handle::by_contract::lend;
use crate::handle::{self, Kept};
use crate::machine::{self, MachineHandle};
use crate::origin::Origin;
use crate::resource::ResourceHandle;
use crate::status::Status;

/// The handles of current resources that were asked for, one a device, so that a program which asks for each allocation costs no
/// handle each. Held for a look or an exchange, and never while anything is dropped.
static KNOWN: RwLock<Vec<Kept<ResourceHandle>>> = RwLock::new(Vec::new());
static ORIGIN: Origin = Origin::new();

/// A count of the handle of a device's current resource.
fn current(device: &Device) -> Result<*mut ResourceHandle, Error> {
    let resource = device.current_resource()?;
    if !ORIGIN.is_here() {
        return Ok(handle::give(ResourceHandle::new(resource)));
    }
    let is_it = |known: &&Kept<ResourceHandle>| known.get().is_same(&resource) && known.device() == device;
    if let Some(known) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).iter().find(is_it) {
        return Ok(known.give());
    }
    let kept = Kept::new(ResourceHandle::new(resource));
    let handle = kept.give();
    let before = {
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        match known.iter().position(|known| known.device() == device) {
            Some(place) => Some(std::mem::replace(&mut known[place], kept)),
            None => {
                known.push(kept);
                None
            }
        }
    };
    // The last handle of a resource may wait for work.
    drop(before);
    Ok(handle)
}

/// Lets go of the handles of the devices for which `is_over` is true.
fn forget(is_over: impl Fn(&Device) -> bool) {
    if !ORIGIN.is_here() {
        // The handles are the parent's.
        return;
    }
    let over: Vec<_> = {
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        known.extract_if(.., |known| is_over(known.device())).collect()
    };
    drop(over);
}

/// Chooses the machine that bare numbers of devices mean from now on, in every thread. Null means that of CUDA, as in the
/// beginning.
///
/// A process calls this before it uses anything else, or between tests: a pointer to a block says nothing of its machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_set_machine(machine: *const MachineHandle) -> Status {
    boundary::call(|| {
        let chosen = if machine.is_null() { None } else { Some(lend!(machine).machine().clone()) };
        forget(|device| chosen.as_ref() != Some(device.machine()));
        machine::choose(chosen)
    })
}

/// The resource that a device allocates from by default. The caller releases it. `ALLUVION_RESOURCE` in the environment names the
/// first one by a recipe. A negative number means the current device.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_current_resource(device: i32, out: *mut *mut ResourceHandle) -> Status {
    boundary::call(|| {
        // SAFETY: the contract of pointers.
        unsafe { handle::hand_to(out, || current(&machine::device(device)?)) }
    })
}

/// Makes a device allocate from another resource, of which it keeps a count of its own. `previous`, which may be null, gets the
/// one before: the caller releases it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_set_current_resource(
    device: i32,
    resource: *const ResourceHandle,
    previous: *mut *mut ResourceHandle,
) -> Status {
    boundary::call(|| {
        let set = || {
            let resource = lend!(resource).get().clone();
            let device = machine::device(device)?;
            let before = device.set_current_resource(resource)?;
            forget(|known| *known == device);
            Ok(before)
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
        let reset = || {
            let device = machine::device(device)?;
            let before = device.reset_current_resource()?;
            forget(|known| *known == device);
            Ok(before)
        };
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
