//! The device that is current on each thread.

use std::collections::HashMap;
use std::thread::{self, ThreadId};

use super::machine::SimMachine;
use crate::driver::Code;

/// The device whose context is current, by thread. A machine has primary contexts alone.
pub(super) type CurrentDevices = HashMap<ThreadId, u32>;

impl SimMachine {
    pub(super) fn current_device(&self) -> Option<u32> {
        self.process.current_devices.get(&thread::current().id()).copied()
    }

    /// Makes another device current, or none, and returns which one was.
    pub(super) fn exchange_current_device(&mut self, ordinal: Option<u32>) -> Result<Option<u32>, Code> {
        let thread = thread::current().id();
        let Some(ordinal) = ordinal else { return Ok(self.process.current_devices.remove(&thread)) };
        self.device(ordinal)?;
        Ok(self.process.current_devices.insert(thread, ordinal))
    }

    pub(super) fn set_current_device(&mut self, ordinal: u32) -> Result<(), Code> {
        self.device(ordinal)?;
        self.process.current_devices.insert(thread::current().id(), ordinal);
        Ok(())
    }
}
