//! The allocation that an address lies in.

#![expect(unsafe_code, reason = "asks the vendors' libraries about addresses")]

use super::interface::Interface;
use crate::driver::{AddressRange, Call, Code, DriverError, DriverResult};

pub(in crate::driver) fn address_range(
    library: &impl Interface,
    address: u64,
) -> DriverResult<Option<AddressRange>> {
    const CALL: Call = Call::AddressRange;
    let get = library.functions().get_address_range.ok_or(DriverError::new(CALL, Code::NOT_FOUND))?;
    let Some(info) = library.pointer_info(address)? else { return Ok(None) };
    let (mut start, mut bytes) = (0, 0);
    let ask = || {
        // SAFETY: both are writable; any address may be asked about.
        unsafe { get(&raw mut start, &raw mut bytes, address) }
    };
    let asked = match info.ordinal {
        // On the memory's device: the contexts of others need not know the range.
        Some(ordinal) => library.on_device(ordinal, CALL, ask),
        None => library.on_any_device(CALL, ask),
    };
    match asked {
        Ok(()) => Ok(Some(AddressRange { start, bytes })),
        Err(DriverError { code: Code::INVALID_VALUE | Code::NOT_FOUND, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
