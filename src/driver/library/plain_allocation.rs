//! Which memory is a plain allocation, by what libcuda says of an address: asked by itself, or behind cudart.

use core::ffi::{c_uint, c_void};

use super::abi;
use crate::driver::{AddressRange, DriverResult};

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, and what only the calls for one allocation give: `..._IS_MANAGED`,
/// `..._IS_LEGACY_CUDA_IPC_CAPABLE`, `..._RANGE_START_ADDR`, `..._RANGE_SIZE`, `..._MEMPOOL_HANDLE`.
const ATTRIBUTES: [c_uint; 6] = [2, 8, 10, 11, 12, 17];

/// As [`Driver::plain_allocation`](crate::driver::Driver::plain_allocation). `get` calls `cuPointerGetAttributes`: it is given how many
/// attributes there are, a list of them, and a list as long of places, each of which is writable and as wide as its attribute.
///
/// Managed memory says so, and pinned memory is the host's; a pool may have either, too. Of the rest, the handles of
/// `cuIpcGetMemHandle` are for memory of `cuMemAlloc` alone. All of it is asked in one call, which does not fail because of the address, as
/// the function for one attribute does: a tool may report a call that fails as an error of the program. What the driver does not know
/// stays 0.
pub(in crate::driver) fn plain_allocation(
    get: impl FnOnce(c_uint, *const c_uint, *mut *mut c_void) -> DriverResult<()>,
) -> DriverResult<Option<AddressRange>> {
    // An enum, two booleans of at most four bytes, an address, a size, and a handle.
    let (mut memory_type, mut is_managed, mut is_capable): (c_uint, c_uint, c_uint) = (0, 0, 0);
    let (mut start, mut bytes, mut pool) = (0_u64, 0_usize, 0_u64);
    let mut places: [*mut c_void; ATTRIBUTES.len()] = [
        (&raw mut memory_type).cast(),
        (&raw mut is_managed).cast(),
        (&raw mut is_capable).cast(),
        (&raw mut start).cast(),
        (&raw mut bytes).cast(),
        (&raw mut pool).cast(),
    ];
    get(ATTRIBUTES.len() as c_uint, ATTRIBUTES.as_ptr(), places.as_mut_ptr())?;
    let is_plain = memory_type == abi::MEMORY_TYPE_HOST || is_managed != 0 || is_capable != 0;
    let is_plain = is_plain && pool == 0 && bytes > 0;
    Ok(is_plain.then_some(AddressRange { start, bytes }))
}
