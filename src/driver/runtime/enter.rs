//! The device that is current during a call, and the shape of every call.

#![expect(unsafe_code, reason = "calls a vendor's library")]

use core::ffi::{c_int, c_uint};
use core::marker::PhantomData;
use std::sync::OnceLock;

use super::RuntimeLibrary;
use super::symbols::Symbols;
use crate::driver::library::Interface;
use crate::driver::library::abi;
use crate::driver::{Call, Code, DriverError, DriverResult};

/// A device, and the context that is behind it where the library has contexts.
#[derive(Debug)]
pub(super) struct RuntimeDevice {
    ordinal: c_int,
    /// The number that functions of the driver behind the library know it by.
    number: c_int,
    /// Its primary context, made at the first call that needs it and never released: the last free, at exit, still finds it.
    context: OnceLock<usize>,
}

impl RuntimeDevice {
    pub(super) fn new(ordinal: c_int, symbols: &Symbols) -> Self {
        let mut number = ordinal;
        if let Some(get) = symbols.device_get {
            let mut found = ordinal;
            // SAFETY: `found` is writable.
            if unsafe { get(&raw mut found, ordinal) } == abi::SUCCESS {
                number = found;
            }
        }
        Self { ordinal, number, context: OnceLock::new() }
    }

    pub(super) fn ordinal(&self) -> c_int {
        self.ordinal
    }

    pub(super) fn number(&self) -> c_int {
        self.number
    }

    /// The primary context, if this driver holds it already.
    pub(super) fn known_context(&self) -> Option<usize> {
        self.context.get().copied()
    }
}

/// What was current before a call.
#[must_use]
pub(super) struct Entered<'a> {
    symbols: &'a Symbols,
    left: Left,
    /// What is current is the thread's.
    not_send: PhantomData<*const ()>,
}

enum Left {
    /// It was the device of the call.
    Same,
    /// A context was pushed on top of it.
    Context,
    /// Another device.
    Device(c_int),
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        match self.left {
            Left::Same => {}
            Left::Context => {
                let mut popped = 0;
                if let Some(pop) = self.symbols.context_pop {
                    // SAFETY: `popped` is writable. What is popped is what `enter` pushed: the calls between leave the stack as they
                    // found it. A failure means that the driver is gone, and with it the stack.
                    unsafe { pop(&raw mut popped) };
                }
            }
            Left::Device(before) => {
                // SAFETY: the library returned the number. A failure means that it is gone.
                unsafe { (self.symbols.set_device)(before) };
            }
        }
    }
}

impl RuntimeLibrary {
    pub(super) fn device(&self, ordinal: u32, call: Call) -> DriverResult<&RuntimeDevice> {
        self.usable(call)?;
        self.devices.get(ordinal as usize).ok_or(DriverError::new(call, Code::INVALID_DEVICE))
    }

    /// The device's primary context, made if there is none; `None` where the library has no contexts.
    pub(super) fn context(&self, device: &RuntimeDevice) -> DriverResult<Option<usize>> {
        if let Some(context) = device.known_context() {
            return Ok(Some(context));
        }
        let Some(retain) = self.symbols.primary_context_retain.filter(|_| self.has_contexts()) else {
            return Ok(None);
        };
        let mut context = 0;
        // SAFETY: `context` is writable; the driver gave the device this number.
        self.check(Call::ContextEnter, unsafe { retain(&raw mut context, device.number) })?;
        // Two threads may both have retained it: the same context, held once more, and never released anyway.
        Ok(Some(*device.context.get_or_init(|| context)))
    }

    /// Whether contexts can be exchanged. Else the current device is.
    pub(super) fn has_contexts(&self) -> bool {
        let symbols = &self.symbols;
        symbols.primary_context_retain.is_some()
            && symbols.context_get_current.is_some()
            && symbols.context_push.is_some()
            && symbols.context_pop.is_some()
            && symbols.context_get_device.is_some()
    }

    /// Makes the device current on the calling thread until the guard is dropped.
    ///
    /// A context is pushed and popped, and no device is set: to set the one before again would make a context on it where there was
    /// none, and lose a context of somebody's own.
    pub(super) fn enter(&self, device: &RuntimeDevice) -> DriverResult<Entered<'_>> {
        let symbols = &self.symbols;
        let entered = |left| Entered { symbols, left, not_send: PhantomData };
        if let (Some(context), Some(get_current), Some(push)) =
            (self.context(device)?, symbols.context_get_current, symbols.context_push)
        {
            let mut current = 0;
            // SAFETY: `current` is writable.
            let code = unsafe { get_current(&raw mut current) };
            // A failure may be that of the current context, and proves nothing about this one.
            if code == abi::SUCCESS && current == context {
                return Ok(entered(Left::Same));
            }
            // SAFETY: the context was retained and never released. If it was reset from outside, the driver says so.
            self.check(Call::ContextEnter, unsafe { push(context) })?;
            return Ok(entered(Left::Context));
        }
        let mut before = -1;
        // SAFETY: `before` is writable.
        self.check(Call::ContextEnter, unsafe { (symbols.get_device)(&raw mut before) })?;
        if before == device.ordinal {
            return Ok(entered(Left::Same));
        }
        // SAFETY: the library has a device of that number.
        self.check(Call::ContextEnter, unsafe { (symbols.set_device)(device.ordinal) })?;
        Ok(entered(Left::Device(before)))
    }

    /// The device that is current on the calling thread.
    pub(super) fn device_of_thread(&self) -> DriverResult<Option<u32>> {
        const CALL: Call = Call::ContextDevice;
        self.usable(CALL)?;
        let symbols = &self.symbols;
        let mut number = -1;
        if self.has_contexts()
            && let (Some(get_current), Some(get_device)) =
                (symbols.context_get_current, symbols.context_get_device)
        {
            let mut current = 0;
            // SAFETY: `current` is writable.
            self.check(CALL, unsafe { get_current(&raw mut current) })?;
            if current == 0 {
                return Ok(None);
            }
            // SAFETY: `number` is writable.
            self.check(CALL, unsafe { get_device(&raw mut number) })?;
        } else {
            // SAFETY: `number` is writable.
            self.check(CALL, unsafe { (symbols.get_device)(&raw mut number) })?;
        }
        let ordinal = self.devices.iter().position(|device| device.number == number);
        // Every device was listed when the driver started.
        ordinal.map(|ordinal| Some(ordinal as u32)).ok_or(DriverError::new(CALL, Code::INVALID_DEVICE))
    }

    /// One attribute by the library's number. `None`: the library does not know it. Needs nothing to be current.
    pub(super) fn device_attribute(&self, ordinal: u32, number: c_int) -> DriverResult<Option<c_int>> {
        let device = self.device(ordinal, Call::Attribute)?;
        let mut value = 0;
        // SAFETY: `value` is writable; the library has a device of that ordinal.
        let code = unsafe { (self.symbols.device_get_attribute)(&raw mut value, number, device.ordinal) };
        match self.check(Call::Attribute, code) {
            Ok(()) => Ok(Some(value)),
            Err(DriverError { code: Code::INVALID_VALUE | Code::NOT_SUPPORTED, .. }) => {
                self.driver_attribute(device, number)
            }
            Err(error) => Err(error),
        }
    }

    /// The same, of the driver behind the library, which knows more attributes.
    pub(super) fn driver_attribute(
        &self,
        device: &RuntimeDevice,
        number: c_int,
    ) -> DriverResult<Option<c_int>> {
        let Some(get) = self.symbols.device_get_driver_attribute else { return Ok(None) };
        let mut value = 0;
        // No attribute has a negative number. The driver takes them as the numbers of a C enum, which are not negative.
        let number = c_uint::try_from(number).unwrap_or(c_uint::MAX);
        // SAFETY: `value` is writable; the driver gave the device this number.
        let code = unsafe { get(&raw mut value, number, device.number) };
        match self.check_of_driver(Call::Attribute, code) {
            Ok(()) => Ok(Some(value)),
            Err(DriverError { code: Code::INVALID_VALUE, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
