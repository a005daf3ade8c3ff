//! `LibraryDriver`: what a driver over a vendor's library says of it.

use core::ffi::{c_int, c_uint};

use super::abi::MemLocation;
use super::exported::Descriptors;
use super::functions::{PinnedFunctions, SharedFunctions};
use crate::driver::{Call, Driver, DriverResult, Location, RawStream};

/// A driver over a vendor's library: how it makes a call, how a result becomes an error, and in what its library differs.
pub(in crate::driver) trait LibraryDriver: Driver {
    /// The code of a call whose function the library lacks.
    const MISSING: c_uint;

    fn functions(&self) -> &SharedFunctions;

    fn pinned(&self) -> PinnedFunctions;

    /// Which granularity pages have: a number of `CUmemAllocationGranularity_flags`.
    fn granularity(&self) -> c_uint;

    /// How the library takes the descriptor of pages that it imports.
    fn descriptors(&self) -> Descriptors;

    /// The version that first had a limit in the properties of a pool; before, these bytes must be 0.
    fn pool_limit_version(&self) -> u32;

    /// The number that the library knows a device by.
    fn number_of(&self, ordinal: u32, call: Call) -> DriverResult<c_int>;

    /// The number that the functions for pages know it by, which may be those of a driver behind the library.
    fn number_for_pages(&self, ordinal: u32, call: Call) -> DriverResult<c_int>;

    /// The device that they know by that number, if this process sees it.
    fn ordinal_for_pages(&self, number: c_int) -> Option<u32>;

    /// The stream as the library names it.
    fn stream_of(&self, stream: RawStream) -> usize;

    /// The shape of every call: checks the process and the device, keeps the device current during the call, and makes a result of the
    /// code.
    fn on_device(&self, ordinal: u32, call: Call, function: impl FnOnce() -> c_uint) -> DriverResult<()>;

    /// The same, for a call that is not about one device.
    fn on_any_device(&self, call: Call, function: impl FnMut() -> c_uint) -> DriverResult<()>;

    /// A location as the functions for managed memory take it.
    fn location(&self, location: Location, call: Call) -> DriverResult<MemLocation> {
        MemLocation::of(location, |ordinal| self.number_of(ordinal, call))
    }

    /// As [`on_device`](Self::on_device), for a function that writes its answer through a pointer.
    fn read_on_device<T: Default>(
        &self,
        ordinal: u32,
        call: Call,
        function: impl FnOnce(*mut T) -> c_uint,
    ) -> DriverResult<T> {
        let mut value = T::default();
        self.on_device(ordinal, call, || function(&raw mut value))?;
        Ok(value)
    }

    /// As [`on_device`](Self::on_device), for a function that the library may lack.
    fn call_with<F>(
        &self,
        ordinal: u32,
        call: Call,
        function: Option<F>,
        with: impl FnOnce(F) -> c_uint,
    ) -> DriverResult<()> {
        self.on_device(ordinal, call, || function.map_or(Self::MISSING, with))
    }

    /// The same, of one that writes its answer through a pointer.
    fn read_with<F, T: Default>(
        &self,
        ordinal: u32,
        call: Call,
        function: Option<F>,
        with: impl FnOnce(F, *mut T) -> c_uint,
    ) -> DriverResult<T> {
        self.read_on_device(ordinal, call, |value| {
            function.map_or(Self::MISSING, |function| with(function, value))
        })
    }
}
