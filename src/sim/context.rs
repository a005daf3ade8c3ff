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

    pub(super) fn set_current_device(&mut self, ordinal: u32) -> Result<(), Code> {
        self.device(ordinal)?;
        self.process.current_devices.insert(thread::current().id(), ordinal);
        Ok(())
    }
}
