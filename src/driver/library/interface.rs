//! `Interface`: what a vendor's library says of itself, for the texts that are one for all.

#![expect(unsafe_code, reason = "declares what the callers must guarantee")]

use core::ffi::{c_int, c_uint, c_void};
use core::fmt::Debug;

use super::abi::MemLocation;
use super::exported::Descriptors;
use super::functions::Functions;
use crate::driver::{
    AddressRange, Call, CaptureId, CaptureStatus, Code, DeviceAttribute, DriverError, DriverResult,
    FillValue, HandleType, Location, PointerInfo, RawStream,
};

/// A vendor's library that has started: how it is called, how a result becomes an error, and the calls that it makes as no other does.
pub(in crate::driver) trait Interface: Debug + Send + Sync {
    /// The code of a call whose function the library lacks.
    const MISSING: c_uint;

    /// Memory is aligned as the contract promises, by the library's own promise.
    const ALIGNS: bool;

    /// No two devices have one number that all processes know.
    const UUIDS_DIFFER: bool;

    fn name(&self) -> &'static str;

    fn version(&self) -> u32;

    fn functions(&self) -> &Functions;

    /// See [`Driver::may_alias`](crate::driver::Driver::may_alias).
    fn may_alias(&self) -> bool;

    /// Which granularity pages have: a number of `CUmemAllocationGranularity_flags`.
    fn granularity(&self) -> c_uint;

    /// How the library takes the descriptor of pages that it imports.
    fn descriptors(&self) -> Descriptors;

    /// The version that first had a limit in the properties of a pool; before, these bytes must be 0.
    fn pool_limit_version(&self) -> u32;

    /// How a handle of an event begins, which is a text then, and ends with a zero.
    fn event_handles_begin(&self) -> Option<&'static str>;

    /// The library has what events of other processes need.
    fn lends_events(&self) -> bool;

    /// Whether this process may call the library at all.
    fn usable(&self, call: Call) -> DriverResult<()>;

    fn device_count(&self) -> u32;

    /// The number that the library knows a device by.
    fn number_of(&self, ordinal: u32, call: Call) -> DriverResult<c_int>;

    /// The number that the functions for pages, names and numbers know it by, which may be those of a driver behind the library.
    fn number_for_pages(&self, ordinal: u32, call: Call) -> DriverResult<c_int>;

    /// The device that they know by that number, if this process sees it.
    fn ordinal_for_pages(&self, number: c_int) -> Option<u32>;

    /// The stream as the library names it.
    fn stream_of(&self, stream: RawStream) -> usize;

    /// What the library returned, as a result.
    fn check(&self, call: Call, code: c_uint) -> DriverResult<()>;

    /// The shape of every call: checks the process and the device, keeps the device current during the call, and makes a result of the
    /// code.
    fn on_device(&self, ordinal: u32, call: Call, function: impl FnOnce() -> c_uint) -> DriverResult<()>;

    /// The same, for a call that is not about one device.
    fn on_any_device(&self, call: Call, function: impl FnMut() -> c_uint) -> DriverResult<()>;

    /// The same, for a question about a stream.
    fn of_stream(
        &self,
        ordinal: u32,
        call: Call,
        stream: RawStream,
        function: impl FnMut() -> c_uint,
    ) -> DriverResult<()>;

    /// One attribute that this crate has a name for.
    fn attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<i32>;

    /// One attribute by its number in CUDA; `None` where the library has none.
    fn attribute_by_number(&self, ordinal: u32, number: i32) -> DriverResult<Option<i32>>;

    /// Whether pages can be made for network cards. Asked of the driver itself where there is one behind the library: an answer of the
    /// library would take back an error that its thread remembers.
    fn makes_pages_for_rdma(&self, ordinal: u32) -> bool {
        // A device that cannot be asked makes none.
        self.attribute(ordinal, DeviceAttribute::PageRdma).is_ok_and(|can| can != 0)
    }

    /// What the library calls a code; `None` where it does not say.
    fn code_name(&self, code: Code) -> Option<String>;

    /// What it says of one.
    fn code_text(&self, code: Code) -> Option<String>;

    /// The device that is current on the calling thread.
    fn current_device(&self) -> DriverResult<Option<u32>>;

    /// Whether one is, whichever.
    fn has_current(&self) -> DriverResult<bool>;

    /// As [`Driver::set_context`](crate::driver::Driver::set_context).
    fn set_current(&self, ordinal: u32) -> DriverResult<()>;

    /// # Safety
    ///
    /// As [`Driver::stream_capture_status`](crate::driver::Driver::stream_capture_status).
    unsafe fn capture_status(&self, ordinal: u32, stream: RawStream) -> DriverResult<CaptureStatus>;

    /// # Safety
    ///
    /// As [`Driver::stream_capture_id`](crate::driver::Driver::stream_capture_id).
    unsafe fn capture_id(&self, ordinal: u32, stream: RawStream) -> DriverResult<Option<CaptureId>>;

    /// Whether a stream can be asked if it captures.
    fn tells_captures(&self) -> bool;

    /// # Safety
    ///
    /// As [`Driver::stream_context_device`](crate::driver::Driver::stream_context_device).
    unsafe fn device_of_stream(&self, stream: RawStream) -> DriverResult<Option<u32>>;

    /// As [`Driver::pointer_attributes`](crate::driver::Driver::pointer_attributes).
    fn pointer_info(&self, address: u64) -> DriverResult<Option<PointerInfo>>;

    /// As [`Driver::is_rdma_capable`](crate::driver::Driver::is_rdma_capable).
    fn is_rdma_capable(&self, _address: u64) -> DriverResult<Option<bool>> {
        Err(DriverError::new(Call::PointerAttributes, Code::NOT_FOUND))
    }

    /// As [`Driver::plain_allocation`](crate::driver::Driver::plain_allocation).
    fn plain_range_around(&self, address: u64) -> DriverResult<Option<AddressRange>>;

    /// Copies on the legacy stream: the function alone.
    ///
    /// # Safety
    ///
    /// As [`Driver::copy`](crate::driver::Driver::copy).
    unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> c_uint;

    /// Queues a copy: the function alone.
    ///
    /// # Safety
    ///
    /// As [`Driver::copy_async`](crate::driver::Driver::copy_async).
    unsafe fn copy_async(&self, to: u64, from: u64, bytes: usize, stream: usize) -> c_uint;

    /// Queues a copy that was refused, if source and destination are on different devices: memory of a pool is accessible to its own
    /// device alone, and the function that names both devices needs no access.
    ///
    /// # Safety
    ///
    /// As [`Driver::copy_async`](crate::driver::Driver::copy_async).
    unsafe fn copy_between_devices(
        &self,
        ordinal: u32,
        to: u64,
        from: u64,
        bytes: usize,
        stream: usize,
        refused: DriverResult<()>,
    ) -> DriverResult<()>;

    /// # Safety
    ///
    /// As [`Driver::fill_async`](crate::driver::Driver::fill_async).
    unsafe fn fill_async(
        &self,
        ordinal: u32,
        to: u64,
        value: FillValue,
        count: usize,
        stream: usize,
    ) -> DriverResult<()>;

    /// The address that a handle is asked for, for memory that `address` lies in.
    fn lent_address(&self, address: u64) -> DriverResult<u64>;

    /// Exports a pool: the function alone. Its flags are as wide as the library has them.
    ///
    /// # Safety
    ///
    /// The pool is live; `to` is writable and as long as a handle of that type is.
    unsafe fn export_pool(&self, to: *mut c_void, pool: usize, handle_type: HandleType) -> c_uint;

    /// Imports a pool: the function alone.
    ///
    /// # Safety
    ///
    /// `pool` is writable; `handle` is what a handle of that type is.
    unsafe fn import_pool(&self, pool: *mut usize, handle: *mut c_void, handle_type: HandleType) -> c_uint;

    /// As [`Sharing::can_reach`](crate::driver::Sharing::can_reach).
    fn can_reach(&self, ordinal: u32, peer: u32) -> DriverResult<bool>;

    /// Lets a device use memory of another one, which it can reach.
    fn let_reach(&self, ordinal: u32, peer: u32) -> DriverResult<()>;

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
