//! The context that a stream belongs to.

#![expect(unsafe_code, reason = "calls libcuda")]

use core::ffi::{c_int, c_uint};

use super::context::{Context, CudaDevice, check};
use super::symbols::Symbols;
use super::{Libcuda, abi};
use crate::driver::{Call, Code, DriverError, DriverResult, RawStream};

const CALL: Call = Call::StreamContext;

impl Libcuda {
    /// As [`Driver::stream_context_device`](crate::driver::Driver::stream_context_device).
    ///
    /// Since CUDA 12.5 the second form of the call names, for a stream of a green context, the primary context that is behind it.
    /// The first form names a context of its own for it, which is no primary one.
    ///
    /// # Safety
    ///
    /// The stream is live and none of the default streams.
    pub(super) unsafe fn device_of_context_of(&self, stream: RawStream) -> DriverResult<Option<u32>> {
        if stream.is_default() {
            return Err(DriverError::new(CALL, Code::INVALID_HANDLE));
        }
        let stream = stream.0 as usize;
        let (mut context, mut green) = (0, 0);
        let symbols = &self.symbols;
        self.in_any_context(CALL, || {
            match (symbols.stream_get_contexts, symbols.stream_get_context) {
                // SAFETY: the stream is live, as the caller promises; both places are writable.
                (Some(get), _) => unsafe { get(stream, &raw mut context, &raw mut green) },
                // SAFETY: as above.
                (None, Some(get)) => unsafe { get(stream, &raw mut context) },
                (None, None) => Code::NOT_FOUND.0,
            }
        })?;
        let context = Context(context);
        if let Some(ordinal) = self.devices.iter().position(|device| device.known_context() == Some(context))
        {
            return Ok(Some(ordinal as u32));
        }
        // The context of a device that this driver has not used yet, or no primary one.
        let number = device_of_context(&self.symbols, context)?;
        let Some(ordinal) = self.devices.iter().position(|device| device.number == number) else {
            return Ok(None);
        };
        let device = &self.devices[ordinal];
        // A device whose primary context is not there has no streams in it; and a question makes no context.
        let is_primary =
            has_primary_context(&self.symbols, device)? && device.context(&self.symbols)? == context;
        Ok(is_primary.then_some(ordinal as u32))
    }
}

/// The number of the device of a context: made current for the question.
fn device_of_context(symbols: &Symbols, context: Context) -> DriverResult<c_int> {
    // SAFETY: the context has a live stream, so that it is live.
    check(CALL, unsafe { (symbols.context_push)(context.0) })?;
    let (mut number, mut popped) = (-1, 0);
    // SAFETY: `number` is writable.
    let code = unsafe { (symbols.context_get_device)(&raw mut number) };
    // SAFETY: `popped` is writable. What is popped was pushed above.
    unsafe { (symbols.context_pop)(&raw mut popped) };
    check(CALL, code).map(|()| number)
}

/// Whether the device's primary context has been made, by whomever. `true` where libcuda does not say.
fn has_primary_context(symbols: &Symbols, device: &CudaDevice) -> DriverResult<bool> {
    let Some(get_state) = symbols.primary_context_get_state else { return Ok(true) };
    let (mut flags, mut active): (c_uint, c_int) = (0, 0);
    // SAFETY: both are writable; the device's number came from `cuDeviceGet`.
    let code = unsafe { get_state(device.number, &raw mut flags, &raw mut active) };
    if code == abi::SUCCESS { Ok(active != 0) } else { Err(DriverError::new(CALL, Code(code))) }
}
