//! The slots that a tool fills with its functions.

#![expect(unsafe_code, reason = "shares tables of pointers with the tool, and writes where the tool says")]

use core::ffi::{c_int, c_uint, c_void};
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering, fence};

use super::abi::{CallbackTable, Function, VERSION, VersionTable};

/// A place for one function. A tool may fill or clear it whenever it likes.
#[derive(Debug)]
#[repr(transparent)]
pub(super) struct Slot(AtomicPtr<c_void>);

/// What a tool puts into a slot of an extension that it does not want: `NVTX_EXTENSION_DISABLED`.
const DISABLED: usize = 1;

impl Slot {
    const fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The function of the tool, if it has one.
    pub(super) fn function(&self) -> Option<Function> {
        // Acquire: pairs with the release of the thread that let the tool begin, by the word that says what the tool hears. What the tool
        // wrote until then is there when its function runs. Of what it does to a slot later nothing is promised but one whole word.
        fence(Ordering::Acquire);
        let function = self.0.load(Ordering::Relaxed);
        (function.addr() > DISABLED).then_some(function)
    }

    fn clear(&self) {
        // Relaxed: the tool has failed to begin, and nobody else looks yet.
        self.0.store(ptr::null_mut(), Ordering::Relaxed);
    }
}

/// An entry of a table: where a slot is. The tool writes to `**entry`.
#[repr(transparent)]
struct Entry(*const Slot);

// SAFETY: the slots that entries point to are atomics in statics.
unsafe impl Sync for Entry {}

/// A table as the headers lay it out: entry 0 is null, the numbers of functions begin with 1, and a null follows the last, so that a
/// tool that reads on ends there. `ENTRIES` is one more than there are slots.
const fn table<const SLOTS: usize, const ENTRIES: usize>(slots: &'static [Slot; SLOTS]) -> [Entry; ENTRIES] {
    assert!(ENTRIES == SLOTS + 1);
    let mut table = [const { Entry(ptr::null()) }; ENTRIES];
    let mut at = 1;
    while at < SLOTS {
        table[at] = Entry(&raw const slots[at]);
        at += 1;
    }
    table
}

/// The tables of a module: so many functions, and their numbers begin with 1.
macro_rules! module {
    ($slots:ident, $table:ident, $functions:literal) => {
        pub(super) static $slots: [Slot; $functions + 1] = [const { Slot::empty() }; $functions + 1];
        static $table: [Entry; $functions + 2] = table(&$slots);
    };
}

// `NvtxCallbackModule`, in the order of its numbers. Only `CORE2` is called from here; a tool may still want to fill the others.
module!(CORE, CORE_TABLE, 15);
module!(CUDA, CUDA_TABLE, 8);
module!(OPENCL, OPENCL_TABLE, 14);
module!(CUDART, CUDART_TABLE, 6);
module!(CORE2, CORE2_TABLE, 15);
module!(SYNC, SYNC_TABLE, 6);

/// The numbers of `NvtxCallbackIdCore2`.
pub(super) const DOMAIN_MARK: usize = 1;
pub(super) const DOMAIN_RANGE_PUSH: usize = 4;
pub(super) const DOMAIN_RANGE_POP: usize = 5;
pub(super) const DOMAIN_CREATE: usize = 12;

/// The slots of the memory extension: `NVTX_EXT_MEM_SLOT_COUNT`. The first function has the number 0,
/// `NVTX3EXT_CBID_nvtxMemHeapRegister`: the word before it, with the state of the module, is no slot of the tool's.
pub(super) static MEMORY: [Slot; 63] = [const { Slot::empty() }; 63];
pub(super) const HEAP_REGISTER: usize = 0;
pub(super) const HEAP_UNREGISTER: usize = 1;
pub(super) const REGIONS_REGISTER: usize = 3;
pub(super) const REGIONS_RESIZE: usize = 4;
pub(super) const REGIONS_UNREGISTER: usize = 5;
pub(super) const REGIONS_NAME: usize = 6;
pub(super) const MARK_INITIALIZED: usize = 16;

/// Clears what a tool may have filled before it said that it could not begin.
pub(super) fn clear_core() {
    [&CORE[..], &CUDA, &OPENCL, &CUDART, &CORE2, &SYNC].into_iter().flatten().for_each(Slot::clear);
}

/// The same for the memory extension.
pub(super) fn clear_memory() {
    MEMORY.iter().for_each(Slot::clear);
}

static CALLBACKS: CallbackTable = CallbackTable { bytes: size_of::<CallbackTable>(), get_module };
static VERSIONS: VersionTable = VersionTable {
    bytes: size_of::<VersionTable>(),
    version: VERSION as u32,
    reserved: 0,
    set_version_of_tool,
};

/// Hands a tool the tables that it asks for: those of `NvtxExportTableID`.
pub(super) unsafe extern "C" fn get_export_table(number: u32) -> *const c_void {
    match number {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSIONS).cast(),
        _ => ptr::null(),
    }
}

/// Hands a tool the table of a module. `size` counts the entry 0, and not the null at the end.
///
/// # Safety
///
/// Each of the two pointers is null or writable.
unsafe extern "C" fn get_module(module: c_uint, to: *mut *const c_void, size: *mut c_uint) -> c_int {
    let entries: &'static [Entry] = match module {
        1 => &CORE_TABLE,
        2 => &CUDA_TABLE,
        3 => &OPENCL_TABLE,
        4 => &CUDART_TABLE,
        5 => &CORE2_TABLE,
        6 => &SYNC_TABLE,
        _ => return 0,
    };
    if !size.is_null() {
        // SAFETY: it is not null, and then writable: the tool's promise.
        unsafe { size.write(entries.len() as c_uint - 1) };
    }
    if !to.is_null() {
        // SAFETY: as above.
        unsafe { to.write(entries.as_ptr().cast()) };
    }
    1
}

/// A tool may say which version it was made for; nothing depends on it.
extern "C" fn set_version_of_tool(_version: u32) {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_tool_finds_each_slot_behind_its_number() {
        for (module, slots) in
            [(1, &CORE[..]), (2, &CUDA), (3, &OPENCL), (4, &CUDART), (5, &CORE2), (6, &SYNC)]
        {
            let (mut table, mut size) = (ptr::null(), 0);
            // SAFETY: both are writable.
            assert_eq!(unsafe { get_module(module, &raw mut table, &raw mut size) }, 1);
            assert_eq!(size as usize, slots.len());
            // SAFETY: a table has one entry more than its size, and lives for ever.
            let entries =
                unsafe { core::slice::from_raw_parts(table.cast::<*const Slot>(), slots.len() + 1) };
            assert!(entries[0].is_null() && entries[slots.len()].is_null());
            for (number, entry) in entries.iter().enumerate().take(slots.len()).skip(1) {
                assert!(ptr::eq(*entry, &raw const slots[number]));
            }
        }
        // SAFETY: null is asked for nothing.
        assert_eq!(unsafe { get_module(7, ptr::null_mut(), ptr::null_mut()) }, 0);
    }
}
