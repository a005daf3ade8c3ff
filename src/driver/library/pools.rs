//! The pools of the driver: what is asked of one, and how it is shared with other devices.

#![expect(unsafe_code, reason = "calls the vendors' libraries")]

use core::ffi::{c_int, c_void};

use super::abi::{self, AccessDesc, MemLocation, PoolProps, Portable};
use super::answer::MOST_KEPT;
use super::interface::Interface;
use crate::driver::{
    Call, Code, DriverError, DriverResult, MapAccess, PointerHandle, PoolAttribute, PoolKind, PoolProperties,
    RawPool,
};

/// The pool as the functions take it: handles are pointers in C, and what a library makes fits, whatever the width.
pub(in crate::driver) const fn handle(pool: RawPool) -> usize {
    pool.0 as usize
}

pub(in crate::driver) fn pool_create(
    library: &impl Interface,
    ordinal: u32,
    properties: PoolProperties,
) -> DriverResult<RawPool> {
    const CALL: Call = Call::PoolCreate;
    let device = library.number_of(ordinal, CALL)?;
    if properties.max_bytes != 0 && library.version() < library.pool_limit_version() {
        return Err(DriverError::new(CALL, Code::NOT_SUPPORTED));
    }
    let max_bytes = usize::try_from(properties.max_bytes).unwrap_or(usize::MAX);
    let properties = PoolProps::new(device, properties.handle_types, max_bytes);
    let pool: usize = library.read_with(ordinal, CALL, library.functions().pool_create, |create, pool| {
        // SAFETY: `pool` is writable; `properties` is a whole `CUmemPoolProps`.
        unsafe { create(pool, &raw const properties) }
    })?;
    Ok(RawPool(pool as u64))
}

/// # Safety
///
/// As [`Driver::pool_destroy`](crate::driver::Driver::pool_destroy).
pub(in crate::driver) unsafe fn pool_destroy(
    library: &impl Interface,
    ordinal: u32,
    pool: RawPool,
) -> DriverResult<()> {
    library.call_with(ordinal, Call::PoolDestroy, library.functions().pool_destroy, |destroy| {
        // SAFETY: the caller's promise: the pool is live and nobody uses it again.
        unsafe { destroy(handle(pool)) }
    })
}

/// # Safety
///
/// As [`Driver::pool_trim`](crate::driver::Driver::pool_trim).
pub(in crate::driver) unsafe fn pool_trim(
    library: &impl Interface,
    ordinal: u32,
    pool: RawPool,
    keep_bytes: usize,
) -> DriverResult<()> {
    library.call_with(ordinal, Call::PoolTrim, library.functions().pool_trim, |trim| {
        // SAFETY: the pool is live, as the caller promises.
        unsafe { trim(handle(pool), keep_bytes.min(MOST_KEPT)) }
    })
}

/// # Safety
///
/// As [`Driver::pool_attribute`](crate::driver::Driver::pool_attribute).
pub(in crate::driver) unsafe fn pool_attribute(
    library: &impl Interface,
    ordinal: u32,
    pool: RawPool,
    attribute: PoolAttribute,
) -> DriverResult<u64> {
    let (number, is_int) = abi::pool_attribute(attribute);
    let (mut flag, mut wide): (c_int, u64) = (0, 0);
    let pointer: *mut c_void = if is_int { (&raw mut flag).cast() } else { (&raw mut wide).cast() };
    library.call_with(ordinal, Call::PoolAttribute, library.functions().pool_get_attribute, |get| {
        // SAFETY: the pool is live, as the caller promises; `pointer` points to what the attribute is as wide as, and is writable.
        unsafe { get(handle(pool), number, pointer) }
    })?;
    Ok(if is_int { u64::from(flag != 0) } else { wide })
}

/// # Safety
///
/// As [`Driver::pool_set_attribute`](crate::driver::Driver::pool_set_attribute).
pub(in crate::driver) unsafe fn pool_set_attribute(
    library: &impl Interface,
    ordinal: u32,
    pool: RawPool,
    attribute: PoolAttribute,
    value: u64,
) -> DriverResult<()> {
    const CALL: Call = Call::PoolSetAttribute;
    let (number, is_int) = abi::pool_attribute(attribute);
    let (mut flag, mut wide): (c_int, u64) = (0, value);
    if is_int {
        flag = match value {
            0 | 1 => value as c_int,
            _ => return Err(DriverError::new(CALL, Code::INVALID_VALUE)),
        };
    }
    let pointer: *mut c_void = if is_int { (&raw mut flag).cast() } else { (&raw mut wide).cast() };
    library.call_with(ordinal, CALL, library.functions().pool_set_attribute, |set| {
        // SAFETY: the pool is live, as the caller promises; `pointer` points to what the attribute is as wide as.
        unsafe { set(handle(pool), number, pointer) }
    })
}

pub(in crate::driver) fn pool_default(
    library: &impl Interface,
    ordinal: u32,
    kind: PoolKind,
) -> DriverResult<RawPool> {
    const CALL: Call = Call::PoolDefault;
    let device = library.number_of(ordinal, CALL)?;
    let pool: usize = match kind {
        PoolKind::Device => {
            library.read_with(ordinal, CALL, library.functions().device_get_default_pool, |get, pool| {
                // SAFETY: `pool` is writable; the library has a device of that number.
                unsafe { get(pool, device) }
            })
        }
        PoolKind::Managed => {
            library.read_on_device(ordinal, CALL, |pool| {
                match library.functions().location_get_default_pool {
                    Some(get) => {
                        let mut location = MemLocation::device(device);
                        // SAFETY: `pool` is writable; `location` is a whole `CUmemLocation`.
                        unsafe { get(pool, &raw mut location, abi::ALLOCATION_MANAGED) }
                    }
                    // Whatever a library without a function is answered with: it has no such pools.
                    None => Code::NOT_SUPPORTED.0,
                }
            })
        }
    }?;
    Ok(RawPool(pool as u64))
}

/// # Safety
///
/// As [`Sharing::pool_export_pointer`](crate::driver::Sharing::pool_export_pointer).
pub(in crate::driver) unsafe fn pool_export_pointer(
    library: &impl Interface,
    ordinal: u32,
    address: u64,
) -> DriverResult<PointerHandle> {
    let exported: Portable = library.read_with(
        ordinal,
        Call::PoolExportPointer,
        library.functions().pool_export_pointer,
        |export, to| {
            // SAFETY: `to` is writable; the block is live, as the caller promises.
            unsafe { export(to, address) }
        },
    )?;
    Ok(PointerHandle(exported.0))
}

/// # Safety
///
/// As [`Sharing::pool_import_pointer`](crate::driver::Sharing::pool_import_pointer).
pub(in crate::driver) unsafe fn pool_import_pointer(
    library: &impl Interface,
    ordinal: u32,
    pool: RawPool,
    block: PointerHandle,
) -> DriverResult<u64> {
    let mut block = Portable(block.0);
    library.read_with(
        ordinal,
        Call::PoolImportPointer,
        library.functions().pool_import_pointer,
        |import, address| {
            // SAFETY: `address` and `block` are writable; the pool is live, and the block is not freed while it is here, as the caller
            // promises.
            unsafe { import(address, handle(pool), &raw mut block) }
        },
    )
}

/// # Safety
///
/// As [`Sharing::pool_set_access`](crate::driver::Sharing::pool_set_access).
pub(in crate::driver) unsafe fn pool_set_access(
    library: &impl Interface,
    ordinal: u32,
    pool: RawPool,
    accessor: u32,
    access: MapAccess,
) -> DriverResult<()> {
    const CALL: Call = Call::PoolSetAccess;
    let access = AccessDesc::new(MemLocation::device(library.number_of(accessor, CALL)?), access);
    library.call_with(ordinal, CALL, library.functions().pool_set_access, |set| {
        // SAFETY: the pool is live, and no work needs what this takes away, as the caller promises; `access` is one whole
        // `CUmemAccessDesc`.
        unsafe { set(handle(pool), &raw const access, 1) }
    })
}
