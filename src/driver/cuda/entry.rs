//! The shape of every call of libcuda, and queries that several of them make first.

#![expect(unsafe_code, reason = "calls libcuda")]

use core::ffi::{c_int, c_uint};

use super::abi;
use super::context::{CudaDevice, check};
use super::symbols::Symbols;
use super::{CudaDriver, usable};
use crate::driver::library::LibraryDriver;
use crate::driver::library::exported::Descriptors;
use crate::driver::library::functions::{PinnedFunctions, SharedFunctions};
use crate::driver::{Call, Code, DriverError, DriverResult, RawStream};

/// The code of a call whose function the loaded libcuda lacks.
pub(super) const MISSING: c_uint = Code::NOT_FOUND.0;

/// The driver that first had `CUmemPoolProps::maxSize`.
const POOL_LIMIT_VERSION: u32 = 12020;

impl LibraryDriver for CudaDriver {
    const MISSING: c_uint = MISSING;

    fn functions(&self) -> &SharedFunctions {
        &self.symbols.shared
    }

    fn pinned(&self) -> PinnedFunctions {
        let symbols = &self.symbols;
        PinnedFunctions {
            allocate: symbols.host_allocate,
            free: symbols.host_free,
            get_device_pointer: symbols.host_get_device_pointer,
            register: Some(symbols.host_register),
            unregister: Some(symbols.host_unregister),
        }
    }

    fn granularity(&self) -> c_uint {
        abi::GRANULARITY_MINIMUM
    }

    fn descriptors(&self) -> Descriptors {
        Descriptors::ByValue
    }

    fn pool_limit_version(&self) -> u32 {
        POOL_LIMIT_VERSION
    }

    fn number_for_pages(&self, ordinal: u32, call: Call) -> DriverResult<c_int> {
        Ok(self.device(ordinal, call)?.number)
    }

    fn ordinal_for_pages(&self, number: c_int) -> Option<u32> {
        self.devices.iter().position(|device| device.number == number).map(|ordinal| ordinal as u32)
    }

    fn number_of(&self, ordinal: u32, call: Call) -> DriverResult<c_int> {
        Ok(self.device(ordinal, call)?.number)
    }

    fn stream_of(&self, stream: RawStream) -> usize {
        stream.0 as usize
    }

    fn on_device(&self, ordinal: u32, call: Call, function: impl FnOnce() -> c_uint) -> DriverResult<()> {
        self.call(ordinal, call, |_| function())
    }

    fn on_any_device(&self, call: Call, mut function: impl FnMut() -> c_uint) -> DriverResult<()> {
        self.in_any_context(call, |_| function())
    }
}

impl CudaDriver {
    pub(super) fn device(&self, ordinal: u32, call: Call) -> DriverResult<&CudaDevice> {
        usable(call)?;
        self.devices.get(ordinal as usize).ok_or(DriverError::new(call, Code::INVALID_DEVICE))
    }

    /// The shape of every call: checks the process and the device, and keeps the device's context current during the call.
    pub(super) fn call(
        &self,
        ordinal: u32,
        call: Call,
        function: impl FnOnce(&Symbols) -> c_uint,
    ) -> DriverResult<()> {
        let device = self.device(ordinal, call)?;
        let _current = device.make_current(&self.symbols)?;
        check(call, function(&self.symbols))
    }

    /// The same, for a function that writes its answer through a pointer.
    pub(super) fn read<T: Default>(
        &self,
        ordinal: u32,
        call: Call,
        function: impl FnOnce(&Symbols, *mut T) -> c_uint,
    ) -> DriverResult<T> {
        let mut value = T::default();
        self.call(ordinal, call, |symbols| function(symbols, &raw mut value))?;
        Ok(value)
    }

    /// A question about a stream. Its handle says which context it is of, so the driver wants none to be current: to make one current and
    /// the one before again costs 50 ns, three times the question. The handles of the default streams do not say so.
    pub(super) fn of_stream(
        &self,
        ordinal: u32,
        call: Call,
        stream: RawStream,
        mut function: impl FnMut(&Symbols) -> c_uint,
    ) -> DriverResult<()> {
        if stream.is_default() || stream == RawStream::PER_THREAD {
            return self.call(ordinal, call, function);
        }
        usable(call)?;
        match function(&self.symbols) {
            code if Code(code) == Code::INVALID_CONTEXT => self.call(ordinal, call, function),
            code => check(call, code),
        }
    }

    /// A call that is not about one device: as it is, and where the driver wants a context for it and none is current, in one.
    pub(super) fn in_any_context(
        &self,
        call: Call,
        mut function: impl FnMut(&Symbols) -> c_uint,
    ) -> DriverResult<()> {
        usable(call)?;
        let code = function(&self.symbols);
        if Code(code) != Code::INVALID_CONTEXT {
            return check(call, code);
        }
        // A context that this driver has already, so that none is made for a question.
        let made = self.devices.iter().position(CudaDevice::has_context).unwrap_or(0);
        self.call(made as u32, call, function)
    }

    /// One attribute by CUDA's number. `None`: the driver does not know it. Needs no context.
    pub(super) fn device_attribute(&self, ordinal: u32, number: c_int) -> DriverResult<Option<c_int>> {
        let device = self.device(ordinal, Call::Attribute)?;
        let mut value = 0;
        // No attribute has a negative number. libcuda takes them as the numbers of a C enum, which are not negative.
        let number = c_uint::try_from(number).unwrap_or(c_uint::MAX);
        // SAFETY: `value` is writable; `number` of the device came from `cuDeviceGet`.
        let code = unsafe { (self.symbols.device_get_attribute)(&raw mut value, number, device.number) };
        match Code(code) {
            Code::INVALID_VALUE => Ok(None),
            _ => check(Call::Attribute, code).map(|()| Some(value)),
        }
    }
}
