//! The context that is current during a call.

#![expect(unsafe_code, reason = "calls libcuda")]

use core::ffi::c_int;
use core::marker::PhantomData;
use std::sync::OnceLock;

use super::abi::SUCCESS;
use super::symbols::Symbols;
use super::{Libcuda, usable};
use crate::driver::{Call, Code, DriverError, DriverResult};

/// A primary context, retained for good.
///
/// It is never released: at exit, libcuda's handler and the last free run in no defined order, and releasing a context frees all
/// of its allocations. Keeping it costs nothing, because the end of the process releases it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context(pub(super) usize);

/// A device and its primary context, which is made at the first call that needs it.
#[derive(Debug)]
pub(super) struct CudaDevice {
    pub(super) number: c_int,
    context: OnceLock<Context>,
}

impl CudaDevice {
    pub(super) fn new(number: c_int) -> Self {
        Self { number, context: OnceLock::new() }
    }

    /// Makes the device's primary context current on the calling thread until the guard is dropped.
    pub(super) fn make_current<'a>(&self, symbols: &'a Symbols) -> DriverResult<Current<'a>> {
        let context = self.context(symbols)?;
        let mut current = 0;
        // SAFETY: `current` is writable.
        let code = unsafe { (symbols.context_get_current)(&raw mut current) };
        // This query takes 28 ns; pushing and popping take 68 ns on one thread and 1.2 µs on average with sixteen. A failure may
        // be that of the current context, and proves nothing about this one.
        let pushed = code != SUCCESS || current != context.0;
        if pushed {
            // SAFETY: `context` was retained and never released. If it was reset from outside, the driver says so.
            let code = unsafe { (symbols.context_push)(context.0) };
            check(Call::ContextEnter, code)?;
        }
        Ok(Current { symbols, pushed, not_send: PhantomData })
    }

    pub(super) fn has_context(&self) -> bool {
        self.context.get().is_some()
    }

    /// The primary context, if this driver holds it already.
    pub(super) fn known_context(&self) -> Option<Context> {
        self.context.get().copied()
    }

    pub(super) fn context(&self, symbols: &Symbols) -> DriverResult<Context> {
        if let Some(context) = self.context.get() {
            return Ok(*context);
        }
        let mut context = 0;
        // SAFETY: `context` is writable; `number` came from `cuDeviceGet`.
        let code = unsafe { (symbols.primary_context_retain)(&raw mut context, self.number) };
        check(Call::ContextEnter, code)?;
        // Two threads may both have retained it: the same context, held once more, and never released anyway.
        Ok(*self.context.get_or_init(|| Context(context)))
    }
}

impl Libcuda {
    /// Whether a context is current on the calling thread, whoever made it.
    pub(super) fn has_current_context(&self) -> DriverResult<bool> {
        const CALL: Call = Call::ContextDevice;
        usable(CALL)?;
        let mut current = 0;
        // SAFETY: `current` is writable.
        check(CALL, unsafe { (self.symbols.context_get_current)(&raw mut current) })?;
        Ok(current != 0)
    }

    /// The device of the context that is current on the calling thread.
    pub(super) fn device_of_current_context(&self) -> DriverResult<Option<u32>> {
        const CALL: Call = Call::ContextDevice;
        if !self.has_current_context()? {
            return Ok(None);
        }
        let mut number = -1;
        // SAFETY: `number` is writable.
        check(CALL, unsafe { (self.symbols.context_get_device)(&raw mut number) })?;
        let ordinal = self.devices.iter().position(|device| device.number == number);
        // Every device was listed when the driver started.
        ordinal.map(|ordinal| Some(ordinal as u32)).ok_or(DriverError::new(CALL, Code::INVALID_DEVICE))
    }
}

/// Keeps the device's context current. Dropping it restores the context that was current before.
#[must_use]
pub(super) struct Current<'a> {
    symbols: &'a Symbols,
    pushed: bool,
    /// The stack of contexts belongs to the thread.
    not_send: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = 0;
            // SAFETY: `popped` is writable. What is popped is what `make_current` pushed: the calls between leave the
            // stack as they found it. A failure means that the driver is gone, and with it the stack.
            unsafe { (self.symbols.context_pop)(&raw mut popped) };
        }
    }
}

/// Turns what libcuda returned into a result.
pub(super) fn check(call: Call, code: u32) -> DriverResult<()> {
    if code == SUCCESS { Ok(()) } else { Err(DriverError::new(call, Code(code))) }
}
