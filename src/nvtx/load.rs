//! Finds the tool, once, and lets it begin.

#![expect(unsafe_code, reason = "loads the library that the environment names, and lets it fill the slots")]

use core::cell::Cell;
use core::ffi::{CStr, c_void};
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

use super::abi::{
    COMPATIBLE_MEMORY, DomainCreate, Handle, Initialize, InitializeExtension, MODULE_MEMORY, ModuleInfo,
    ModuleSegment, VERSION,
};
use super::slots;
use crate::contain::Inside;
use crate::sync::{Global, assert_no_lock_is_held, yield_now};

/// The domain of all that is told.
const DOMAIN: &CStr = c"alluvion";

/// Nobody has called [`start`] yet.
const FRESH: u8 = 0;
/// A thread is in it.
const STARTING: u8 = 1;
const STARTED: u8 = 2;

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
/// A tool that calls this while it begins hears nothing.
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
/// others down. Each one decides when it takes its first memory, and keeps to it.
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
    // Relaxed: who has to tell something comes after the start by the memory that it tells of; and a range may begin late.
    HEARD.load(Ordering::Relaxed)
}

/// The domain, as the tool calls it; null where it has no domains.
pub(super) fn domain() -> Handle {
    // Acquire: pairs with the release of the thread that starts.
    DOMAIN_HANDLE.load(Ordering::Acquire)
}

#[cold]
fn start_once() {
    thread_local! {
        // No destructor, so it can be read while the thread's other locals are being dropped.
        static IS_STARTING: Cell<bool> = const { Cell::new(false) };
    }
    // The tool's code runs: a start that it makes itself would wait for itself.
    let Some(_starting) = Inside::enter(&IS_STARTING) else { return };
    // Acquire: as in `start`.
    if STATE.compare_exchange(FRESH, STARTING, Ordering::Acquire, Ordering::Acquire).is_err() {
        while STATE.load(Ordering::Acquire) == STARTING {
            yield_now();
        }
        return;
    }
    drop(IN_CHILD.lock());
    let heard = find();
    // Relaxed: the release below comes after it.
    HEARD.store(heard, Ordering::Relaxed);
    // Release: pairs with the acquires above.
    STATE.store(STARTED, Ordering::Release);
}

/// Lets the tool begin, and returns what it wants to hear.
fn find() -> u8 {
    assert_no_lock_is_held();
    let Some(tool) = Tool::find() else { return 0 };
    let mut heard = 0;
    // In this order, as the headers do it.
    if tool.initialize.is_some_and(begin) {
        heard |= RANGES;
    } else {
        slots::clear_core();
    }
    if tool.initialize_extension.is_some_and(begin_memory) && wants_memory() {
        heard |= MEMORY;
    } else {
        slots::clear_memory();
    }
    if heard == 0 {
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
    // Release: pairs with the acquire in `domain`.
    DOMAIN_HANDLE.store(domain, Ordering::Release);
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

/// The functions with which a tool begins.
struct Tool {
    initialize: Option<Initialize>,
    initialize_extension: Option<InitializeExtension>,
    library: *mut c_void,
}

#[cfg(unix)]
impl Tool {
    /// The library that the environment names; else a tool that is part of the program, and says so by two variables that point to
    /// its functions.
    fn find() -> Option<Self> {
        use std::ffi::CString;
        use std::os::unix::ffi::OsStringExt;

        let variable =
            if size_of::<usize>() == 8 { "NVTX_INJECTION64_PATH" } else { "NVTX_INJECTION32_PATH" };
        let Some(path) = crate::environment::variable(variable).filter(|path| !path.is_empty()) else {
            return Self::built_in();
        };
        let path = CString::new(path.into_vec()).ok()?;
        // SAFETY: the path ends with a null. What the library runs when it is loaded is the environment's, which this process
        // trusts: `variable` has asked.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        if library.is_null() {
            return None;
        }
        let tool = Self {
            initialize: symbol(library, c"InitializeInjectionNvtx2")
                // SAFETY: by this name the headers know a function of this type.
                .map(|function| unsafe { core::mem::transmute::<*mut c_void, Initialize>(function) }),
            initialize_extension: symbol(library, c"InitializeInjectionNvtxExtension")
                // SAFETY: as above.
                .map(|function| unsafe {
                    core::mem::transmute::<*mut c_void, InitializeExtension>(function)
                }),
            library,
        };
        Some(tool)
    }

    fn built_in() -> Option<Self> {
        let variable = |name| {
            let variable = symbol(libc::RTLD_DEFAULT, name)?.cast::<*mut c_void>();
            // SAFETY: by these names the headers know variables that hold the address of a function, or null.
            let function = unsafe { variable.read() };
            (!function.is_null()).then_some(function)
        };
        let initialize = variable(c"InitializeInjectionNvtx2_fnptr")
            // SAFETY: such a function has this type.
            .map(|function| unsafe { core::mem::transmute::<*mut c_void, Initialize>(function) });
        let initialize_extension = variable(c"InitializeInjectionNvtxExtension_fnptr")
            // SAFETY: as above.
            .map(|function| unsafe { core::mem::transmute::<*mut c_void, InitializeExtension>(function) });
        let is_there = initialize.is_some() || initialize_extension.is_some();
        is_there.then_some(Self { initialize, initialize_extension, library: ptr::null_mut() })
    }

    fn unload(&self) {
        if !self.library.is_null() {
            // SAFETY: it was loaded once, in `find`; the tool has not begun, and all slots are empty.
            unsafe { libc::dlclose(self.library) };
        }
    }
}

#[cfg(unix)]
fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the handle is one of `dlopen`, or stands for all libraries; the name ends with a null.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

#[cfg(not(unix))]
impl Tool {
    /// No tool is looked for on this system.
    fn find() -> Option<Self> {
        None
    }

    fn unload(&self) {
        debug_assert!(self.library.is_null());
    }
}
