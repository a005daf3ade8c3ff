//! How a call enters the machine, and how it waits.

use super::clock::LaneClock;
use super::driver::SimDriver;
use super::hazard::HazardKind;
use super::kernel::in_callback;
use super::machine::MachineGuard;
use crate::driver::{Call, Code, DeviceAttribute, DriverError, DriverResult};
use crate::sync::assert_no_lock_is_held;

/// Names the call that a code came from.
pub(super) fn of(call: Call) -> impl Fn(Code) -> DriverError {
    move |code| DriverError::new(call, code)
}

impl SimDriver {
    /// Begins a driver call: counts it, charges it, and fails if the call is not allowed.
    pub(super) fn enter(
        &self,
        call: Call,
        ordinal: Option<u32>,
        bytes: u64,
    ) -> DriverResult<MachineGuard<'_>> {
        let mut machine = self.lock(call)?;
        if let Err(code) = machine.charge(call, ordinal, bytes) {
            // A sticky fault wakes the threads that wait for the device.
            self.shared.changed.notify_all();
            drop(self.shared.drop_discarded(machine));
            return Err(DriverError::new(call, code));
        }
        if let Some(ordinal) = ordinal {
            machine.health(ordinal).map_err(of(call))?;
        }
        machine.check_capture_modes(call, ordinal).map_err(of(call))?;
        Ok(machine)
    }

    /// Enters a call that needs an attribute of the device.
    pub(super) fn enter_with(
        &self,
        call: Call,
        ordinal: u32,
        bytes: usize,
        attribute: DeviceAttribute,
    ) -> DriverResult<MachineGuard<'_>> {
        let machine = self.enter(call, Some(ordinal), bytes as u64)?;
        machine.has(ordinal, attribute).map_err(of(call))?;
        Ok(machine)
    }

    /// As [`Self::enter`], for a method that is no driver call.
    pub(super) fn enter_uncounted(&self, call: Call, ordinal: u32) -> DriverResult<MachineGuard<'_>> {
        let machine = self.lock(call)?;
        machine.health(ordinal).map_err(of(call))?;
        Ok(machine)
    }

    pub(super) fn lock(&self, call: Call) -> DriverResult<MachineGuard<'_>> {
        // A driver may be foreign code, and a call of it may take as long as work of the device does.
        assert_no_lock_is_held();
        let Some(mut machine) = self.shared.lock_unless_forked_as(self.process) else {
            return Err(DriverError::new(call, Code::NOT_INITIALIZED));
        };
        if machine.process.is_over() {
            return Err(DriverError::new(call, Code::DEINITIALIZED));
        }
        if in_callback() {
            let words = format!("{} was called from inside a kernel or a host function", call.symbol());
            let code = machine.refuse(HazardKind::CallFromCallback, words, Code::NOT_PERMITTED);
            return Err(DriverError::new(call, code));
        }
        Ok(machine)
    }

    /// Waits for `goal`, notes that the host has seen it done, and returns the health of the device.
    pub(super) fn wait_for<'a>(
        &'a self,
        machine: MachineGuard<'a>,
        ordinal: u32,
        goal: &LaneClock,
        call: Call,
    ) -> DriverResult<MachineGuard<'a>> {
        let mut machine = self.shared.run_until(machine, goal);
        machine.health(ordinal).map_err(of(call))?;
        machine.host_waited(ordinal, goal);
        Ok(machine)
    }

    pub(super) fn wait_for_device<'a>(
        &'a self,
        machine: MachineGuard<'a>,
        ordinal: u32,
        call: Call,
    ) -> DriverResult<MachineGuard<'a>> {
        let goal = machine.lanes.all_of(machine.process.id, ordinal);
        self.wait_for(machine, ordinal, &goal, call)
    }

    /// Answers a query: `true` if `goal` has run, which the host has then seen.
    pub(super) fn query<'a>(
        &'a self,
        machine: MachineGuard<'a>,
        ordinal: u32,
        goal: &LaneClock,
        call: Call,
    ) -> DriverResult<bool> {
        let mut machine = self.shared.nudge(machine, goal);
        machine.health(ordinal).map_err(of(call))?;
        let done = machine.lanes.completed(goal);
        if done {
            machine.lanes.observe(goal);
        }
        Ok(done)
    }
}
