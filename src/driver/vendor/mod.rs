//! What do drivers over vendors' libraries have in common?
//!
//! The libraries copy one interface, CUDA's: for whole families of calls they have the same functions by other names. Such a family has
//! one table of functions, which [`functions`] makes, and one text that calls them, over what each driver says as a [`LibraryDriver`].

pub(super) mod functions;
pub(super) mod pages;
pub(super) mod pinned;
pub(super) mod pools;

use core::ffi::{c_int, c_uint};

use super::exported::Descriptors;
use super::{Call, Driver, DriverResult};
use pages::PageFunctions;
use pinned::PinnedFunctions;
use pools::PoolFunctions;

/// A driver over a vendor's library: how it makes a call, how a result becomes an error, and in what its library differs.
pub(super) trait LibraryDriver: Driver {
    /// The code of a call whose function the library lacks.
    const MISSING: c_uint;

    fn pages(&self) -> &PageFunctions;

    fn pools(&self) -> &PoolFunctions;

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

    /// The shape of every call: checks the process and the device, keeps the device current during the call, and makes a result of the
    /// code.
    fn on_device(&self, ordinal: u32, call: Call, function: impl FnOnce() -> c_uint) -> DriverResult<()>;

    /// The same, for a function that writes its answer through a pointer.
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

    /// A call of a function that the library may lack.
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

/// Methods of [`Driver`], or of [`Sharing`](super::Sharing), that a room answers: each by its function of the same name.
macro_rules! answered_in {
    ($room:ident:) => {};
    ($room:ident: fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty; $($rest:tt)*) => {
        fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            $room::$name(self, $($argument),*)
        }
        answered_in! { $room: $($rest)* }
    };
    ($room:ident: unsafe fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty; $($rest:tt)*) => {
        unsafe fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            // SAFETY: the promises of the function are those of the method that it answers, which the caller makes.
            unsafe { $room::$name(self, $($argument),*) }
        }
        answered_in! { $room: $($rest)* }
    };
}

pub(super) use answered_in;
