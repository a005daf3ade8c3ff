//! Queries that several calls make first.

#![expect(unsafe_code, reason = "calls libcuda")]

use core::ffi::{c_int, c_uint};

use super::context::{CudaDevice, check};
use super::{Libcuda, usable};
use crate::driver::library::Interface;
use crate::driver::{Call, Code, DriverError, DriverResult};

impl Libcuda {
    pub(super) fn device(&self, ordinal: u32, call: Call) -> DriverResult<&CudaDevice> {
        usable(call)?;
        self.devices.get(ordinal as usize).ok_or(DriverError::new(call, Code::INVALID_DEVICE))
    }

    /// A call that is not about one device: as it is, and where the driver wants a context for it and none is current, in one.
    pub(super) fn in_any_context(
        &self,
        call: Call,
        mut function: impl FnMut() -> c_uint,
    ) -> DriverResult<()> {
        usable(call)?;
        let code = function();
        if Code(code) != Code::INVALID_CONTEXT {
            return check(call, code);
        }
        // A context that this driver has already, so that none is made for a question.
        let made = self.devices.iter().position(CudaDevice::has_context).unwrap_or(0);
        self.on_device(made as u32, call, function)
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
