//! Lets the tool begin, once.

#![expect(unsafe_code, reason = "calls the functions with which a tool begins")]

use core::cell::Cell;
use core::ffi::{CStr, c_void};
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::abi::{
    COMPATIBLE_MEMORY, DomainCreate, Handle, Initialize, InitializeExtension, MODULE_MEMORY, ModuleInfo,
    ModuleSegment, VERSION,
};
use super::slots;
use super::tool::Tool;
use crate::contain::Inside;
use crate::sync::{Global, assert_no_lock_is_held};

/// The domain of all that is told.
const DOMAIN: &CStr = c"alluvion";

/// Nobody has called [`start`] yet.
const FRESH: u8 = 0;
/// A thread is in it, and others wait for it.
const STARTING: u8 = 1;
/// A thread is in it, and nobody waits for it any more: see [`PATIENCE`].
const OVERDUE: u8 = 2;
const STARTED: u8 = 3;

/// How long others wait for the thread that lets the tool begin. A tool's function may wait in its turn, for a thread that waits here:
/// one that it has started and that allocates. So the wait ends, once a process: what is allocated from then on until the tool has begun
/// is not announced, and who waited goes on. A tool that waits for nobody is to have begun by then, also on a busy machine:
/// `compute-sanitizer`, which is loaded with the process, took 30 µs at most in ten programs on an H200.
const PATIENCE: Duration = Duration::from_secs(10);
const NAP: Duration = Duration::from_micros(50);

static STATE: AtomicU8 = AtomicU8::new(FRESH);
/// What the tool wants to hear: [`RANGES`], [`MEMORY`]. Written by the thread that starts, and cleared in a forked child.
static HEARD: AtomicU8 = AtomicU8::new(0);
static DOMAIN_HANDLE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Only what is chosen is announced. See [`announce`].
static ONLY_CHOSEN: AtomicBool = AtomicBool::new(false);

pub(super) const RANGES: u8 = 1;
pub(super) const MEMORY: u8 = 2;

/// A child of a fork tells nothing: another thread may have been inside the tool, with its locks.
static IN_CHILD: Global<()> = Global::new((), in_child);

extern "C" fn in_child() {
    // Relaxed: the child has one thread.
    HEARD.store(0, Ordering::Relaxed);
    STATE.store(STARTED, Ordering::Relaxed);
}

/// What a tool wants to hear of this process.
///
/// ```
/// let heard = alluvion::nvtx::start();
/// assert_eq!(heard, alluvion::nvtx::start());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard(u8);

impl Heard {
    /// Ranges and marks, as Nsight Systems.
    #[must_use]
    pub fn ranges(self) -> bool {
        self.0 & RANGES != 0
    }

    /// Heaps and regions, as `compute-sanitizer`.
    #[must_use]
    pub fn memory(self) -> bool {
        self.0 & MEMORY != 0
    }
}

/// Loads the tool that the environment names, if there is one, and asks what it wants to hear. Later calls return the same.
///
/// A suballocator calls this with its first memory, and that is early enough: `compute-sanitizer` must not be started before the
/// device has a context. To have scopes of [`with_tag`](crate::tag::with_tag) drawn from the beginning, call it after the first call
/// that makes one, such as [`Device::stream`](crate::Device::stream).
///
/// A tool that calls this while it begins hears nothing. Other threads wait meanwhile, for ten seconds at most: a tool may wait for
/// one of them.
///
/// ```
/// // No tool has started this program.
/// assert!(!alluvion::nvtx::start().memory());
/// ```
pub fn start() -> Heard {
    // Acquire: pairs with the release below, so that the domain is there.
    if STATE.load(Ordering::Acquire) != STARTED {
        start_once();
    }
    Heard(heard())
}

/// Which suballocators tell a tool about their blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// All of them, which is so unless somebody says otherwise.
    All,
    /// Those of the stacks that say [`announced`](crate::ResourceExt::announced).
    Chosen,
}

/// Says which suballocators tell a tool about their blocks. It is for a program that wants to see into one stack, and not to slow the
/// others down. It counts for memory that is taken from an upstream from then on, so it is to be said before suballocators are made.
///
/// ```
/// use alluvion::nvtx::{Announced, announce};
/// use alluvion::{PoolConfig, ResourceExt, Sim, source::Cuda};
///
/// announce(Announced::Chosen);
/// let sim = Sim::new();
/// let of_interest = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?.announced()?;
/// let other = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
/// # let _ = (of_interest, other);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub fn announce(which: Announced) {
    // Relaxed: who makes a suballocator after this call comes after it.
    ONLY_CHOSEN.store(which == Announced::Chosen, Ordering::Relaxed);
}

/// Returns `true` unless only chosen suballocators are announced.
pub(crate) fn announces_all() -> bool {
    // Relaxed: as above.
    !ONLY_CHOSEN.load(Ordering::Relaxed)
}

/// What the tool wants to hear.
#[inline]
pub(super) fn heard() -> u8 {
    // Relaxed: who has to tell something comes after the start by the memory that it tells of; a range may begin late; and before a
    // function is called there is the fence of `Slot::function`.
    HEARD.load(Ordering::Relaxed)
}

/// The domain, as the tool calls it; null where it has no domains.
pub(super) fn domain() -> Handle {
    // Relaxed: it was written before the word that says what the tool hears, and the fence of `Slot::function` has come.
    DOMAIN_HANDLE.load(Ordering::Relaxed)
}

#[cold]
fn start_once() {
    thread_local! {
        // No destructor, so it can be read while the thread's other locals are being dropped.
        static IS_STARTING: Cell<bool> = const { Cell::new(false) };
    }
    // The tool's code runs: a start that it makes itself would wait for itself.
    let Some(_starting) = Inside::enter(&IS_STARTING) else { return };
    // First: a child of a fork that comes from now on must not find a start that nobody ends.
    drop(IN_CHILD.lock());
    // Acquire: as in `start`.
    if STATE.compare_exchange(FRESH, STARTING, Ordering::Acquire, Ordering::Acquire).is_err() {
        wait_for_who_starts();
        return;
    }
    let heard = find();
    // Relaxed: only a fork by the tool's code has changed it, on this thread. Its child tells nothing.
    if STATE.load(Ordering::Relaxed) != STARTED {
        // Release: pairs with the fence of `Slot::function`, for a thread that has not called `start`.
        HEARD.store(heard, Ordering::Release);
    }
    // Release: pairs with the acquires above.
    STATE.store(STARTED, Ordering::Release);
}

/// Until the tool has begun; not for ever.
fn wait_for_who_starts() {
    let begun = Instant::now();
    // Acquire: as in `start`.
    while STATE.load(Ordering::Acquire) == STARTING {
        if begun.elapsed() >= PATIENCE {
            // Relaxed: it publishes nothing. A tool that has begun meanwhile has begun.
            let _ = STATE.compare_exchange(STARTING, OVERDUE, Ordering::Relaxed, Ordering::Relaxed);
        }
        thread::sleep(NAP);
    }
}

/// Lets the tool begin, and returns what it wants to hear.
fn find() -> u8 {
    assert_no_lock_is_held();
    let Some(tool) = Tool::find() else { return 0 };
    let mut heard = 0;
    // In this order, as the headers do it.
    let has_begun = tool.initialize.is_some_and(begin);
    if has_begun {
        heard |= RANGES;
    } else {
        slots::clear_core();
    }
    let has_begun_memory = tool.initialize_extension.is_some_and(begin_memory);
    if has_begun_memory && wants_memory() {
        heard |= MEMORY;
    } else {
        slots::clear_memory();
    }
    // One that has begun may have threads and handlers by now, also if it wants to hear nothing of what is told here.
    if !has_begun && !has_begun_memory {
        tool.unload();
    }
    heard
}

/// Lets the tool fill the slots of ranges and marks.
fn begin(initialize: Initialize) -> bool {
    // SAFETY: a tool exports the function with this type, and calls what it is given as the headers say.
    if unsafe { initialize(slots::get_export_table) } == 0 {
        return false;
    }
    let Some(create) = slots::CORE2[slots::DOMAIN_CREATE].function() else { return true };
    // SAFETY: the tool has put a function of this type there.
    let create = unsafe { core::mem::transmute::<*mut c_void, DomainCreate>(create) };
    // SAFETY: the name ends with a null, and lives for ever.
    let domain = unsafe { create(DOMAIN.as_ptr()) };
    // Relaxed: what says that the tool hears something is written after it, with a release.
    DOMAIN_HANDLE.store(domain, Ordering::Relaxed);
    true
}

/// Lets the tool fill the slots of the memory extension.
fn begin_memory(initialize: InitializeExtension) -> bool {
    // Leaked, because a tool may keep the addresses.
    let segment = Box::leak(Box::new(ModuleSegment {
        number: 1,
        slots: slots::MEMORY.len(),
        first: (&raw const slots::MEMORY).cast_mut().cast(),
    }));
    let module = Box::leak(Box::new(ModuleInfo {
        version: VERSION,
        bytes: size_of::<ModuleInfo>() as u16,
        module: MODULE_MEMORY,
        compatible: COMPATIBLE_MEMORY,
        segments: 1,
        first: segment,
        get_export: ptr::null(),
        more: ptr::null(),
    }));
    // SAFETY: a tool exports the function with this type; the module, its segment and the slots live for ever, and the slots are
    // atomics, which may be written to through this address.
    unsafe { initialize(module) != 0 }
}

/// Heaps and regions make sense together only.
fn wants_memory() -> bool {
    let needed = [slots::HEAP_REGISTER, slots::REGIONS_REGISTER, slots::REGIONS_UNREGISTER];
    needed.iter().all(|number| slots::MEMORY[*number].function().is_some())
}
