//! Where managed memory should be.

#![expect(unsafe_code, reason = "calls the vendors' libraries")]

use super::abi;
use super::interface::Interface;
use crate::driver::{Advice, Call, DriverResult, Location, RawStream};

/// # Safety
///
/// As [`Driver::prefetch_async`](crate::driver::Driver::prefetch_async).
pub(in crate::driver) unsafe fn prefetch_async<L: Interface>(
    library: &L,
    ordinal: u32,
    address: u64,
    bytes: usize,
    to: Location,
    stream: RawStream,
) -> DriverResult<()> {
    const CALL: Call = Call::PrefetchAsync;
    let (functions, stream) = (library.functions(), library.stream_of(stream));
    let location = library.location(to, CALL)?;
    library.on_device(ordinal, CALL, || {
        match (functions.prefetch_to_location, functions.prefetch_to_device, location.as_device()) {
            // SAFETY: the range stays live until then and the stream is live, as the caller promises.
            (Some(prefetch), ..) => unsafe { prefetch(address, bytes, location, 0, stream) },
            // SAFETY: as above.
            (None, Some(prefetch), Some(device)) => unsafe { prefetch(address, bytes, device, stream) },
            _ => L::MISSING,
        }
    })
}

/// # Safety
///
/// As [`Driver::advise`](crate::driver::Driver::advise).
pub(in crate::driver) unsafe fn advise<L: Interface>(
    library: &L,
    ordinal: u32,
    address: u64,
    bytes: usize,
    advice: Advice,
) -> DriverResult<()> {
    const CALL: Call = Call::Advise;
    let functions = library.functions();
    let (number, location) = abi::advice(advice);
    // An advice without a location ignores the one that is given.
    let location = library.location(location.unwrap_or(Location::Device(ordinal)), CALL)?;
    library.on_device(ordinal, CALL, || {
        match (functions.advise_location, functions.advise_device, location.as_device()) {
            // SAFETY: the range is live, as the caller promises.
            (Some(advise), ..) => unsafe { advise(address, bytes, number, location) },
            // SAFETY: as above.
            (None, Some(advise), Some(device)) => unsafe { advise(address, bytes, number, device) },
            _ => L::MISSING,
        }
    })
}
