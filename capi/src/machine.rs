//! Which machine and which device does a number mean?
//!
//! A bare number means a device of the machine that the process has chosen: that of CUDA unless `alv_set_machine` says otherwise.

#![expect(unsafe_code, reason = "exports functions")]

use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LockResult, PoisonError, RwLock, TryLockError, TryLockResult};

use alluvion::sim::SimConfig;
use alluvion::{Device, Error, Machine, Sim};

use crate::boundary::{self, null};
use crate::handle::by_contract::give_to;
use crate::handle::{self, Handle};
use crate::origin::Origin;
use crate::record::{self, Record};
use crate::status::Status;
use crate::text;

/// A machine: that of CUDA or of another driver, or a simulated one.
#[derive(Debug)]
pub struct MachineHandle {
    machine: Machine,
    sim: Option<Sim>,
}

impl Handle for MachineHandle {
    const NAME: &'static str = "machine";
}

impl MachineHandle {
    /// A simulated process.
    pub(crate) fn of_sim(sim: Sim) -> Self {
        Self { machine: sim.machine().clone(), sim: Some(sim) }
    }

    /// A device by its number; that of the calling thread for a negative one.
    pub(crate) fn device(&self, number: i32) -> Result<Device, Error> {
        device_of(&self.machine, number)
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The simulated machine that it is.
    pub(crate) fn sim(&self) -> Result<&Sim, Error> {
        self.sim.as_ref().ok_or_else(|| {
            Error::invalid_argument("machine", "it is not simulated", "pass a machine of alv_machine_sim")
        })
    }
}

/// The machine that bare numbers mean, if it is not that of CUDA.
static CHOSEN: RwLock<Option<Machine>> = RwLock::new(None);
static ORIGIN: Origin = Origin::new();

/// A lock of `CHOSEN`: in a child of the process that came first, one that is free.
fn lock<'a, G>(
    wait: fn(&'a RwLock<Option<Machine>>) -> LockResult<G>,
    attempt: fn(&'a RwLock<Option<Machine>>) -> TryLockResult<G>,
) -> Result<G, Error> {
    if ORIGIN.is_here() {
        return Ok(wait(&CHOSEN).unwrap_or_else(PoisonError::into_inner));
    }
    match attempt(&CHOSEN) {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Error::unsupported(
            "the machine that is chosen",
            "another thread was about to look at it or to choose when the process was forked",
            "name the machine (alv_resource_from_recipe_on)",
        )),
    }
}

/// How often a machine was chosen.
static CHOICES: AtomicU64 = AtomicU64::new(0);

/// The number of the choice that is in force. What was learnt under another one may be of another machine.
#[inline]
pub(crate) fn choice() -> u64 {
    // Acquire: pairs with the release in `choose`. Who sees the number sees the choice.
    CHOICES.load(Ordering::Acquire)
}

/// The machine that bare numbers mean.
pub(crate) fn chosen() -> Result<Machine, Error> {
    // Held for a clone or an exchange, and never while anything is dropped or waited for.
    match &*lock(RwLock::read, RwLock::try_read)? {
        Some(machine) => Ok(machine.clone()),
        None => Machine::of_environment(),
    }
}

fn device_of(machine: &Machine, number: i32) -> Result<Device, Error> {
    match u32::try_from(number) {
        Ok(number) => machine.device(number),
        Err(_) => machine.current_device(),
    }
}

/// That machine; the one that bare numbers mean for null.
///
/// # Safety
///
/// As [`handle::lend`].
pub(crate) unsafe fn named_or_chosen(machine: *const MachineHandle) -> Result<Machine, Error> {
    if machine.is_null() {
        return chosen();
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { handle::lend(machine) }?.machine().clone())
}

/// A device by its number, of that machine or, for null, of the one that bare numbers mean; that of the calling thread for a negative
/// number.
///
/// # Safety
///
/// As [`handle::lend`].
pub(crate) unsafe fn device_on(machine: *const MachineHandle, number: i32) -> Result<Device, Error> {
    // SAFETY: the caller's promise.
    device_of(&unsafe { named_or_chosen(machine) }?, number)
}

/// A device of the machine that bare numbers mean; that of the calling thread for a negative number.
pub(crate) fn device(number: i32) -> Result<Device, Error> {
    device_of(&chosen()?, number)
}

/// The machine of CUDA. `ALV_NO_DRIVER` without one.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_machine_cuda(out: *mut *mut MachineHandle) -> Status {
    boundary::call(|| {
        let make = || Ok(MachineHandle { machine: Machine::cuda()?, sim: None });
        give_to!(out, make)
    })
}

/// The machine of the driver with that name: `cuda`, `cudart`, `hip` or `maca`. `ALV_INVALID_ARGUMENT` for another name,
/// `ALV_NO_DRIVER` without that driver.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_machine_named(name: *const c_char, out: *mut *mut MachineHandle) -> Status {
    boundary::call(|| {
        let make = || {
            // SAFETY: the contract of pointers.
            let name = unsafe { text::borrow(name, "name") }?;
            Ok(MachineHandle { machine: Machine::named(name)?, sim: None })
        };
        give_to!(out, make)
    })
}

/// What a simulated machine is like. Each of its devices answers as an H200 does, but for its memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct SimOptions {
    /// `sizeof(alv_sim_options)`.
    pub struct_size: usize,
    /// How many devices it has; 0 means 1.
    pub devices: u32,
    /// The version of CUDA that it speaks, such as 13000; 0 means the newest.
    pub cuda_version: u32,
    /// The memory of each device, in bytes; 0 means 256 MiB.
    pub memory_bytes: usize,
    /// What the order in which simulated work runs is drawn from.
    pub seed: u64,
    /// Not 0 for a machine that does not look into pools, so that their calls cost what they cost beside a GPU. Wrong frees there, and
    /// accesses to what is free there, are not noticed then.
    pub leaves_pools_alone: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: repr(C), a size first, and numbers.
unsafe impl Record for SimOptions {
    const NAME: &'static str = "options, an alv_sim_options";
}

/// A machine with simulated GPUs, which notices every access to memory that no stream orders. `options` may be null.
#[must_use]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_machine_sim(options: *const SimOptions, out: *mut *mut MachineHandle) -> Status {
    boundary::call(|| {
        let make = || {
            let mut config = SimConfig::default().panic_on_unseen_hazards(false);
            if !options.is_null() {
                // SAFETY: the contract of pointers.
                let options = unsafe { record::read(options) }?;
                config = config.seed(options.seed).watch_blocks(options.leaves_pools_alone == 0);
                if options.devices > 0 {
                    config = config.devices(options.devices);
                }
                if options.cuda_version > 0 {
                    config = config.version(options.cuda_version);
                }
                if options.memory_bytes > 0 {
                    config = config.memory_bytes(options.memory_bytes);
                }
            }
            Ok(MachineHandle::of_sim(Sim::with_config(config)))
        };
        give_to!(out, make)
    })
}

/// One more count of a machine, which it returns; null for null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_machine_retain(machine: *mut MachineHandle) -> *mut MachineHandle {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_machine_retain", std::ptr::null_mut(), || unsafe { handle::retain(machine) })
}

/// Takes a count of a machine; null is allowed. Resources, streams and ledgers keep their machine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_machine_release(machine: *mut MachineHandle) {
    // SAFETY: the contract of pointers.
    boundary::unanswered("alv_machine_release", (), || unsafe { handle::release(machine) });
}

/// Chooses the machine that bare numbers of devices mean from now on.
pub(crate) fn choose(machine: Option<Machine>) -> Result<(), Error> {
    let before = std::mem::replace(&mut *lock(RwLock::write, RwLock::try_write)?, machine);
    // Release: pairs with the acquire in `choice`.
    CHOICES.fetch_add(1, Ordering::Release);
    // While the lock is not held: it may be the last handle of a machine.
    drop(before);
    Ok(())
}

/// How many devices the chosen machine has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_device_count(out: *mut i32) -> Status {
    boundary::call(|| {
        if out.is_null() {
            return Err(null("out"));
        }
        // SAFETY: not null, so writable.
        unsafe { out.write(0) };
        let count = chosen()?.devices().len();
        // SAFETY: as above.
        unsafe { out.write(i32::try_from(count).unwrap_or(i32::MAX)) };
        Ok(())
    })
}

/// The device that is current for the calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alv_current_device(out: *mut i32) -> Status {
    boundary::call(|| {
        if out.is_null() {
            return Err(null("out"));
        }
        let number = device(-1)?.ordinal();
        // SAFETY: not null, so writable.
        unsafe { out.write(number.cast_signed()) };
        Ok(())
    })
}

/// Makes a device current for the calling thread, as `cudaSetDevice` does. On a simulated machine it is the only way.
#[unsafe(no_mangle)]
pub extern "C" fn alv_set_current_device(number: i32) -> Status {
    boundary::call(|| {
        if number < 0 {
            return Err(Error::invalid_argument("device", "it is negative", "number devices from 0"));
        }
        device(number)?.make_current()
    })
}
