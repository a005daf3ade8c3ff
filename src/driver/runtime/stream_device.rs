//! The device that a stream belongs to.

#![expect(unsafe_code, reason = "calls a vendor's library")]

use core::ffi::{c_int, c_uint};

use super::RuntimeLibrary;
use super::enter::RuntimeDevice;
use crate::driver::library::Interface;
use crate::driver::{Call, Code, DriverError, DriverResult, RawStream};

const CALL: Call = Call::StreamContext;

impl RuntimeLibrary {
    /// As [`Driver::stream_context_device`](crate::driver::Driver::stream_context_device).
    ///
    /// Where there are contexts, the stream's is asked for: a stream of another context than a primary one has a device, too, and is
    /// none that this driver may use. Where there are none, its device is all there is.
    ///
    /// # Safety
    ///
    /// The stream is live and none of the default streams.
    pub(super) unsafe fn device_behind(&self, stream: RawStream) -> DriverResult<Option<u32>> {
        if stream.is_default() {
            return Err(DriverError::new(CALL, Code::INVALID_HANDLE));
        }
        let stream = self.stream_of(stream);
        if !self.has_contexts() {
            let Some(get) = self.symbols.stream_get_device else {
                return Err(DriverError::new(CALL, Code::NOT_FOUND));
            };
            let mut ordinal: c_int = -1;
            self.on_any_device(CALL, || {
                // SAFETY: the stream is live, as the caller promises; `ordinal` is writable.
                unsafe { get(stream, &raw mut ordinal) }
            })?;
            return Ok(self.position(|device| device.ordinal() == ordinal));
        }
        let (mut context, mut green) = (0, 0);
        self.usable(CALL)?;
        let mut ask = || match (self.symbols.stream_get_contexts, self.symbols.stream_get_context) {
            // Behind a green context, this form names the primary one. SAFETY: the stream is live, as the caller promises; both places
            // are writable.
            (Some(get), _) => unsafe { get(stream, &raw mut context, &raw mut green) },
            // SAFETY: as above.
            (None, Some(get)) => unsafe { get(stream, &raw mut context) },
            (None, None) => Code::NOT_FOUND.0,
        };
        match ask() {
            code if Code(code) == Code::INVALID_CONTEXT => self.on_any_device(CALL, ask)?,
            code => self.check(CALL, code)?,
        }
        if let Some(ordinal) = self.position(|device| device.known_context() == Some(context)) {
            return Ok(Some(ordinal));
        }
        // The context of a device that this driver has not used yet, or no primary one.
        let number = self.device_of_context(context)?;
        let Some(ordinal) = self.position(|device| device.number() == number) else { return Ok(None) };
        let device = &self.devices[ordinal as usize];
        // A device whose primary context is not there has no streams in it; and a question makes no context.
        let is_primary = self.has_primary_context(device)? && self.context(device)? == Some(context);
        Ok(is_primary.then_some(ordinal))
    }

    fn position(&self, is_it: impl Fn(&RuntimeDevice) -> bool) -> Option<u32> {
        self.devices.iter().position(is_it).map(|ordinal| ordinal as u32)
    }

    /// The number of the device of a context: made current for the question.
    fn device_of_context(&self, context: usize) -> DriverResult<c_int> {
        let symbols = &self.symbols;
        let (Some(push), Some(pop), Some(get)) =
            (symbols.context_push, symbols.context_pop, symbols.context_get_device)
        else {
            return Err(DriverError::new(CALL, Code::NOT_FOUND));
        };
        // SAFETY: the context has a live stream, so that it is live.
        self.check(CALL, unsafe { push(context) })?;
        let (mut number, mut popped) = (-1, 0);
        // SAFETY: `number` is writable.
        let code = unsafe { get(&raw mut number) };
        // SAFETY: `popped` is writable. What is popped was pushed above.
        unsafe { pop(&raw mut popped) };
        self.check(CALL, code).map(|()| number)
    }

    /// Whether the device's primary context has been made, by whomever. `true` where the driver does not say.
    fn has_primary_context(&self, device: &RuntimeDevice) -> DriverResult<bool> {
        let Some(get_state) = self.symbols.primary_context_get_state else { return Ok(true) };
        let (mut flags, mut active): (c_uint, c_int) = (0, 0);
        // SAFETY: both are writable; the driver gave the device this number.
        let code = unsafe { get_state(device.number(), &raw mut flags, &raw mut active) };
        self.check(CALL, code).map(|()| active != 0)
    }
}
