//! What is a resource for C?

#![expect(unsafe_code, reason = "exports functions")]

use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvion::error::freeing;
use alluvion::recipe::Recipe;
use alluvion::{AnyResource, Device, Error, Resource};

use crate::boundary::{self, null};
use crate::handle::by_contract::{give_to, lend, lend_or_null};
use crate::handle::{self, Handle};
use crate::machine::{self, MachineHandle};
use crate::status::Status;
use crate::text;

/// A resource: memory of one device, with the layers over it.
#[derive(Debug)]
pub struct ResourceHandle {
    resource: AnyResource,
    /// That of the resource, at hand.
    device: Device,
    /// How many frees through this handle a layer has refused.
    refused: AtomicU64,
}

impl Handle for ResourceHandle {
    const NAME: &'static str = "resource";
}

impl ResourceHandle {
    pub(crate) fn new(resource: AnyResource) -> Self {
        Self { device: resource.device().clone(), resource, refused: AtomicU64::new(0) }
    }

    /// The device that the memory belongs to.
    #[inline]
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    pub(crate) fn get(&self) -> &AnyResource {
        &self.resource
    }

    /// Frees a block of the resource by `free`; an error says why a layer has refused it, and left it alone.
    #[inline]
    pub(crate) fn freeing(&self, free: impl FnOnce()) -> Result<(), Error> {
        freeing(free).inspect_err(|refused| {
            // Relaxed: a figure, which orders nothing.
            self.refused.fetch_add(1, Ordering::Relaxed);
            // Where a function of the program's frees within the free of a stack over it, the block of that one is refused, too.
            // SAFETY: a free of such a stack is under way then, and what was refused here is its block.
            unsafe { refused.clone().tell_who_frees() };
        })
    }
}

/// The text of a recipe; null is the empty one, which is the default source.
///
/// # Safety
///
/// As `text::borrow`.
unsafe fn parse(text: *const c_char) -> Result<Recipe, Error> {
    if text.is_null() {
        return "".parse();
    }
    // SAFETY: the caller's promise.
    unsafe { text::borrow(text, "recipe") }?.parse()
}

/// Makes a stack of a recipe on a device of the chosen machine, as `stats | pool(initial=1GiB) | cuda-async`. Null and an empty
/// recipe are the default source. A negative number means the device that the recipe names, else the current device.
/// `ALV_MALFORMED` with a column for what cannot be read.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_from_recipe(
    recipe: *const c_char,
    device: i32,
    out: *mut *mut ResourceHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            // SAFETY: the contract of pointers.
            let recipe = unsafe { parse(recipe) }?;
            build(&recipe, &machine::device(number(&recipe, device))?)
        };
        give_to!(out, make)
    })
}

/// As `alv_resource_from_recipe`, on a device of that machine.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_from_recipe_on(
    machine: *const MachineHandle,
    recipe: *const c_char,
    device: i32,
    out: *mut *mut ResourceHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let machine = lend!(machine);
            // SAFETY: the contract of pointers.
            let recipe = unsafe { parse(recipe) }?;
            build(&recipe, &machine.device(number(&recipe, device))?)
        };
        give_to!(out, make)
    })
}

fn number(recipe: &Recipe, device: i32) -> i32 {
    if device >= 0 { device } else { recipe.gpu().map_or(device, u32::cast_signed) }
}

fn build(recipe: &Recipe, device: &Device) -> Result<ResourceHandle, Error> {
    Ok(ResourceHandle::new(recipe.build(device)?))
}

/// Makes a stack of a recipe on every device of a machine, in the order of their numbers; a null `machine` is the chosen one. `places`
/// is how many handles `stacks` has room for, and `count`, which may be null, gets how many devices there are. With 0 places nothing
/// is made, and `stacks` may be null; with fewer than there are devices it is `ALV_INVALID_ARGUMENT`. If a device has none, all are
/// null, and the message names the device.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_per_device(
    machine: *const MachineHandle,
    recipe: *const c_char,
    stacks: *mut *mut ResourceHandle,
    places: usize,
    count: *mut usize,
) -> Status {
    boundary::call(|| {
        if places > 0 && stacks.is_null() {
            return Err(null("stacks"));
        }
        for place in 0..places {
            // SAFETY: the caller's array has as many places.
            unsafe { stacks.wrapping_add(place).write(std::ptr::null_mut()) };
        }
        // SAFETY: the contract of pointers.
        let machine = unsafe { machine::named_or_chosen(machine) }?;
        let devices = machine.devices().len();
        if !count.is_null() {
            // SAFETY: not null, so writable.
            unsafe { count.write(devices) };
        }
        if places == 0 {
            return Ok(());
        }
        if places < devices {
            return Err(Error::invalid_argument(
                "places",
                "they are fewer than the devices",
                "ask with 0 places how many there are",
            ));
        }
        // SAFETY: the contract of pointers.
        let made = unsafe { parse(recipe) }?.per_device(&machine)?;
        for (place, (_, stack)) in made.into_iter().enumerate() {
            let handle = handle::give(ResourceHandle::new(stack));
            // SAFETY: as above: there are as many places as devices.
            unsafe { stacks.wrapping_add(place).write(handle) };
        }
        Ok(())
    })
}

/// Makes the layers of a recipe without a source over a resource, as `stats | pool`. The new resource keeps `upstream`; the
/// caller's count of it stays the caller's.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_over(
    layers: *const c_char,
    upstream: *const ResourceHandle,
    out: *mut *mut ResourceHandle,
) -> Status {
    boundary::call(|| {
        let make = || {
            let upstream = lend!(upstream).get().clone();
            // SAFETY: the contract of pointers.
            let layers = unsafe { parse(layers) }?;
            Ok(ResourceHandle::new(layers.over_device(upstream)?))
        };
        give_to!(out, make)
    })
}

/// One more count of a resource, which it returns; null for null. From any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_retain(resource: *mut ResourceHandle) -> *mut ResourceHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_resource_retain", std::ptr::null_mut(), || unsafe { handle::retain(resource) })
}

/// Takes a count of a resource; null is allowed. From any thread, but not from a host function of a stream: the last count drops
/// the stack, and a pool waits for the work on what was freed on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_release(resource: *mut ResourceHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_resource_release", (), || unsafe { handle::release(resource) });
}

/// Whether two handles free each other's blocks: equal pointers do, and others may. Null equals null alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_equal(
    first: *const ResourceHandle,
    second: *const ResourceHandle,
) -> bool {
    boundary::unanswered("alv_resource_equal", false, || {
        if std::ptr::eq(first, second) || first.is_null() || second.is_null() {
            return Ok(std::ptr::eq(first, second));
        }
        let first = lend!(first);
        let second = lend!(second);
        Ok(first.get() == second.get())
    })
}

/// How many frees through this handle were refused by a layer of the stack, which left the block alone: of a block that was free by
/// then, with another size than it was asked for with, or of what is no block. Suballocators look for that where they are `checked`, as
/// all are in a library that looks for mistakes, and `tracking`, `guard` and the driver do always. `alv_last_error_message` says why, on
/// the thread of the free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_refused_frees(resource: *const ResourceHandle, count: *mut u64) -> Status {
    boundary::call(|| {
        let resource = lend!(resource);
        if count.is_null() {
            return Err(null("count"));
        }
        // SAFETY: not null, so writable.
        unsafe { count.write(resource.refused.load(Ordering::Relaxed)) };
        Ok(())
    })
}

/// The number of the device that the memory belongs to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_device(resource: *const ResourceHandle, device: *mut i32) -> Status {
    boundary::call(|| {
        let resource = lend!(resource);
        if device.is_null() {
            return Err(null("device"));
        }
        // SAFETY: not null, so writable.
        unsafe { device.write(resource.device().ordinal().cast_signed()) };
        Ok(())
    })
}

/// Makes a context current for the calling thread if none is, as a call of CUDA's runtime does: the primary one of device 0. One that
/// is current stays. The machine is that of `resource`, or the chosen one for null. No other function of this library but
/// `alv_set_current_device` leaves another context current than it has found: this one is for headers that stand in for those of a
/// library on that runtime. Where there is no driver, or it fails, nothing changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_ensure_context(resource: *const ResourceHandle) {
    boundary::contained((), || {
        // Without a word of a failure: the call that needs a context says why there is none.
        let _ = if resource.is_null() {
            machine::chosen().map(|machine| machine.driver().ensure_context())
        } else {
            // SAFETY: the contract of pointers.
            unsafe { handle::lend(resource) }.map(|resource| resource.device().driver().ensure_context())
        };
    });
}

/// The largest alignment that the resource honours; 0 for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_max_align(resource: *const ResourceHandle) -> usize {
    boundary::unanswered("alv_resource_max_align", 0, || {
        let resource = lend_or_null!(resource);
        Ok(resource.map_or(0, |resource| resource.get().max_align()))
    })
}

/// Whether the host may read and write the blocks, as soon as `alv_allocate_sync` has returned one, at any time that no work of
/// the device uses it: for managed and for pinned memory, and for layers over such. The answer stays what it is. False for null,
/// and for memory of the caller's functions, of which nothing is known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_resource_host_accessible(resource: *const ResourceHandle) -> bool {
    boundary::unanswered("alv_resource_host_accessible", false, || {
        let resource = lend_or_null!(resource);
        Ok(resource.is_some_and(|resource| resource.get().host_access()))
    })
}

/// The stack on a line, as `Stats(...) > Pool(...) > CudaAsync(gpu 0)`. At most `room` bytes are written, ended by 0 if `room` is
/// not 0; `needed`, which may be null, gets the whole length without the 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_describe(
    resource: *const ResourceHandle,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> Status {
    boundary::call(|| {
        let text = lend!(resource).get().describe().to_string();
        // SAFETY: the contract of pointers.
        unsafe { text::copy_out(&text, buffer, room, needed) }
    })
}
