//! What libcuda knows about an address.

#![expect(unsafe_code, reason = "asks libcuda about addresses")]

use core::ffi::{c_int, c_uint, c_void};

use super::Libcuda;
use super::abi;
use crate::driver::library::plain_allocation::plain_allocation;
use crate::driver::{AddressRange, Call, Code, DriverError, DriverResult, MemoryKind, PointerInfo};

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, `..._IS_MANAGED`, `..._DEVICE_ORDINAL`.
const ATTRIBUTES: [c_uint; 3] = [2, 8, 9];
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, `..._IS_GPU_DIRECT_RDMA_CAPABLE`.
const RDMA_ATTRIBUTES: [c_uint; 2] = [2, 15];
/// `CU_MEMORYTYPE_DEVICE`.
const TYPE_DEVICE: c_uint = 2;
/// `CU_MEMORYTYPE_UNIFIED`.
const TYPE_UNIFIED: c_uint = 4;

impl Libcuda {
    /// As [`Driver::pointer_attributes`](crate::driver::Driver::pointer_attributes).
    ///
    /// `cuPointerGetAttributes` leaves the values of an address that libcuda does not know at 0, and is no error; the function for
    /// one attribute is.
    pub(super) fn known_of(&self, address: u64) -> DriverResult<Option<PointerInfo>> {
        const CALL: Call = Call::PointerAttributes;
        let Some(get) = self.symbols.pointer_get_attributes else {
            return Err(DriverError::new(CALL, Code::NOT_FOUND));
        };
        let (mut memory_type, mut is_managed, mut ordinal): (c_uint, c_uint, c_int) = (0, 0, -1);
        self.in_any_context(CALL, || {
            let mut places: [*mut c_void; 3] =
                [(&raw mut memory_type).cast(), (&raw mut is_managed).cast(), (&raw mut ordinal).cast()];
            // SAFETY:
            // - both lists are three long.
            // - each place is writable and as wide as its attribute: an enum, a boolean of at most four bytes, an `int`.
            // - any address may be queried.
            unsafe { get(3, ATTRIBUTES.as_ptr(), places.as_mut_ptr(), address) }
        })?;
        let kind = match memory_type {
            0 => return Ok(None),
            _ if is_managed != 0 => MemoryKind::Managed,
            TYPE_UNIFIED => MemoryKind::Managed,
            TYPE_DEVICE => MemoryKind::Device,
            abi::MEMORY_TYPE_HOST => MemoryKind::PinnedHost,
            _ => return Ok(None),
        };
        Ok(Some(PointerInfo { kind, ordinal: u32::try_from(ordinal).ok() }))
    }

    /// As [`Driver::is_rdma_capable`](crate::driver::Driver::is_rdma_capable).
    pub(super) fn rdma_of(&self, address: u64) -> DriverResult<Option<bool>> {
        const CALL: Call = Call::PointerAttributes;
        let Some(get) = self.symbols.pointer_get_attributes else {
            return Err(DriverError::new(CALL, Code::NOT_FOUND));
        };
        let (mut memory_type, mut is_capable): (c_uint, c_uint) = (0, 0);
        self.in_any_context(CALL, || {
            let mut places: [*mut c_void; 2] = [(&raw mut memory_type).cast(), (&raw mut is_capable).cast()];
            // SAFETY:
            // - both lists are two long.
            // - each place is writable and as wide as its attribute: an enum, a boolean of at most four bytes.
            // - any address may be queried.
            unsafe { get(2, RDMA_ATTRIBUTES.as_ptr(), places.as_mut_ptr(), address) }
        })?;
        Ok((memory_type != 0).then_some(is_capable != 0))
    }

    /// As [`Driver::plain_allocation`](crate::driver::Driver::plain_allocation).
    pub(super) fn plain_range(&self, address: u64) -> DriverResult<Option<AddressRange>> {
        const CALL: Call = Call::PointerAttributes;
        let Some(get) = self.symbols.pointer_get_attributes else {
            return Err(DriverError::new(CALL, Code::NOT_FOUND));
        };
        plain_allocation(|count, attributes, places| {
            self.in_any_context(CALL, || {
                // SAFETY:
                // - both lists are `count` long, and each place is writable and as wide as its attribute: `plain_allocation` says so.
                // - any address may be queried.
                unsafe { get(count, attributes, places, address) }
            })
        })
    }
}
