//! Pages: physical memory without an address, and reserved addresses without memory.
//!
//! cudart has no functions for them: it is the driver behind it that is asked. The others have copied those by name and type.

#![expect(unsafe_code, reason = "calls the vendors' libraries")]

use super::abi::{AccessDesc, AllocationProp, MemLocation};
use super::answer::not_empty;
use super::exported::{as_handle, exported};
use super::interface::Interface;
use crate::driver::{
    Call, Code, DriverError, DriverResult, ExportedMemory, HandleType, Location, MapAccess, RawMemory,
};

/// What pages of a device are: for network cards, too, wherever it can make such, as those expect who register memory with them.
fn properties(
    library: &impl Interface,
    ordinal: u32,
    call: Call,
    handle_types: HandleType,
) -> DriverResult<AllocationProp> {
    let number = library.number_for_pages(ordinal, call)?;
    Ok(AllocationProp::new(number, handle_types).for_rdma(library.makes_pages_for_rdma(ordinal)))
}

pub(in crate::driver) fn virtual_granularity(library: &impl Interface, ordinal: u32) -> DriverResult<usize> {
    const CALL: Call = Call::VirtualGranularity;
    let properties = properties(library, ordinal, CALL, HandleType::NONE)?;
    library.read_with(ordinal, CALL, library.functions().get_granularity, |get, bytes| {
        // SAFETY: `bytes` is writable; `properties` is a whole `CUmemAllocationProp`.
        unsafe { get(bytes, &raw const properties, library.granularity()) }
    })
}

pub(in crate::driver) fn virtual_reserve(
    library: &impl Interface,
    ordinal: u32,
    bytes: usize,
    align: usize,
) -> DriverResult<u64> {
    const CALL: Call = Call::VirtualReserve;
    not_empty(CALL, bytes)?;
    library.read_with(ordinal, CALL, library.functions().address_reserve, |reserve, address| {
        // SAFETY: `address` is writable; no address is asked for; the flags must be 0.
        unsafe { reserve(address, bytes, align, 0, 0) }
    })
}

/// # Safety
///
/// As [`Driver::virtual_free`](crate::driver::Driver::virtual_free).
pub(in crate::driver) unsafe fn virtual_free(
    library: &impl Interface,
    ordinal: u32,
    address: u64,
    bytes: usize,
) -> DriverResult<()> {
    library.call_with(ordinal, Call::VirtualFree, library.functions().address_free, |free| {
        // SAFETY: the range is one whole reservation that nobody uses again, as the caller promises.
        unsafe { free(address, bytes) }
    })
}

pub(in crate::driver) fn memory_create(
    library: &impl Interface,
    ordinal: u32,
    bytes: usize,
    handle_types: HandleType,
) -> DriverResult<RawMemory> {
    const CALL: Call = Call::MemoryCreate;
    not_empty(CALL, bytes)?;
    let properties = properties(library, ordinal, CALL, handle_types)?;
    let memory = library.read_with(ordinal, CALL, library.functions().memory_create, |create, memory| {
        // SAFETY: `memory` is writable; `properties` is a whole `CUmemAllocationProp`; the flags must be 0.
        unsafe { create(memory, bytes, &raw const properties, 0) }
    });
    memory.map(RawMemory)
}

/// # Safety
///
/// As [`Driver::memory_release`](crate::driver::Driver::memory_release).
pub(in crate::driver) unsafe fn memory_release(
    library: &impl Interface,
    ordinal: u32,
    memory: RawMemory,
) -> DriverResult<()> {
    library.call_with(ordinal, Call::MemoryRelease, library.functions().memory_release, |release| {
        // SAFETY: the caller's promise: the memory is live and its handle not used again.
        unsafe { release(memory.0) }
    })
}

/// # Safety
///
/// As [`Driver::memory_export`](crate::driver::Driver::memory_export).
pub(in crate::driver) unsafe fn memory_export(
    library: &impl Interface,
    ordinal: u32,
    memory: RawMemory,
    handle_type: HandleType,
) -> DriverResult<ExportedMemory> {
    exported(Call::MemoryExport, handle_type, |to| {
        library.call_with(ordinal, Call::MemoryExport, library.functions().memory_export, |export| {
            // SAFETY: the memory is live, as the caller promises; `to` is writable and as long as a handle of that type is; the flags
            // must be 0.
            unsafe { export(to, memory.0, handle_type.0, 0) }
        })
    })
}

/// As [`Sharing::memory_import`](crate::driver::Sharing::memory_import).
pub(in crate::driver) fn memory_import<L: Interface>(
    library: &L,
    ordinal: u32,
    exported: &ExportedMemory,
) -> DriverResult<RawMemory> {
    let memory = library.read_with(
        ordinal,
        Call::MemoryImport,
        library.functions().memory_import,
        |import, memory| {
            as_handle(exported, library.descriptors(), |handle, handle_type| {
                // SAFETY: `memory` is writable; `handle` is what a handle of that type is.
                unsafe { import(memory, handle, handle_type.0) }
            })
        },
    );
    let memory = RawMemory(memory?);
    // SAFETY: the memory was just imported.
    match unsafe { require_reachable(library, ordinal, memory) } {
        Ok(()) => Ok(memory),
        Err(error) => {
            // A failure to release leaks memory that the exporter still has. SAFETY: nobody has been given the handle.
            let _ = unsafe { memory_release(library, ordinal, memory) };
            Err(error)
        }
    }
}

/// Refuses imported memory of a device that the device `ordinal` does not reach: a library would only when it is mapped and access is
/// asked for. Memory of the host is everybody's, and that of a device which this process does not see is nobody's.
///
/// # Safety
///
/// `memory` is live.
unsafe fn require_reachable<L: Interface>(library: &L, ordinal: u32, memory: RawMemory) -> DriverResult<()> {
    const CALL: Call = Call::MemoryImport;
    let Some(get) = library.functions().memory_get_properties else { return Ok(()) };
    let mut properties = AllocationProp::new(0, HandleType::NONE);
    library.on_device(ordinal, CALL, || {
        // SAFETY: `properties` is a whole `CUmemAllocationProp`, and writable; the memory is live, as the caller promises.
        unsafe { get(&raw mut properties, memory.0) }
    })?;
    match properties.location().as_device().and_then(|number| library.ordinal_for_pages(number)) {
        Some(home) if home != ordinal && !library.can_reach(ordinal, home)? => {
            Err(DriverError::new(CALL, Code::INVALID_VALUE))
        }
        _ => Ok(()),
    }
}

/// # Safety
///
/// As [`Driver::memory_map`](crate::driver::Driver::memory_map).
pub(in crate::driver) unsafe fn memory_map(
    library: &impl Interface,
    ordinal: u32,
    address: u64,
    bytes: usize,
    memory: RawMemory,
) -> DriverResult<()> {
    library.call_with(ordinal, Call::MemoryMap, library.functions().memory_map, |map| {
        // SAFETY: the memory is live and `bytes` long, as the caller promises; offset and flags must be 0. The library checks the range.
        unsafe { map(address, bytes, 0, memory.0, 0) }
    })
}

/// # Safety
///
/// As [`Driver::memory_unmap`](crate::driver::Driver::memory_unmap).
pub(in crate::driver) unsafe fn memory_unmap(
    library: &impl Interface,
    ordinal: u32,
    address: u64,
    bytes: usize,
) -> DriverResult<()> {
    library.call_with(ordinal, Call::MemoryUnmap, library.functions().memory_unmap, |unmap| {
        // SAFETY: no work that touches the range is left, as the caller promises.
        unsafe { unmap(address, bytes) }
    })
}

/// # Safety
///
/// As [`Driver::memory_set_access`](crate::driver::Driver::memory_set_access).
pub(in crate::driver) unsafe fn memory_set_access(
    library: &impl Interface,
    ordinal: u32,
    address: u64,
    bytes: usize,
    accessor: Location,
    access: MapAccess,
) -> DriverResult<()> {
    const CALL: Call = Call::MemorySetAccess;
    let location = MemLocation::of(accessor, |accessor| library.number_for_pages(accessor, CALL))?;
    let access = AccessDesc::new(location, access);
    library.call_with(ordinal, CALL, library.functions().memory_set_access, |set| {
        // SAFETY: `access` is one whole `CUmemAccessDesc`; no work needs what it takes away, as the caller promises.
        unsafe { set(address, bytes, &raw const access, 1) }
    })
}
