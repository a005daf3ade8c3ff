//! `Fault`: injected errors.

use crate::driver::{Call, Code};

/// An error that a later call returns instead of being made.
///
/// A fault that is not sticky has no other effect: the call changes nothing, and queued work runs. A sticky one loses the context
/// of the device, so that its queued work never runs and every later call on it fails with the same code; so does a fault whose
/// code [is sticky](Code::is_sticky).
///
/// ```
/// use alluvion::sim::{Fault, SimConfig, SimDriver};
/// use alluvion::driver::{Call, Code, Driver};
///
/// let driver = SimDriver::new(SimConfig::default());
/// driver.inject(Fault::nth(Call::AllocateDevice, 2, Code::OUT_OF_MEMORY));
/// assert!(driver.allocate_device(0, 512).is_ok());
/// assert_eq!(driver.allocate_device(0, 512).unwrap_err().code, Code::OUT_OF_MEMORY);
/// assert!(driver.allocate_device(0, 512).is_ok());
/// assert_eq!(driver.faults_left(), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a fault does nothing until it is injected"]
pub struct Fault {
    call: Option<Call>,
    countdown: u64,
    repeats: bool,
    sticky: bool,
    code: Code,
}

impl Fault {
    /// Fails the `n`-th coming call of one kind, counted from 1.
    ///
    /// # Panics
    ///
    /// If `n` is 0: there is no such call.
    pub fn nth(call: Call, n: u64, code: Code) -> Self {
        Self::new(Some(call), n, code)
    }

    /// Fails the `n`-th coming call of any kind, counted from 1.
    ///
    /// # Panics
    ///
    /// If `n` is 0: there is no such call.
    pub fn nth_call(n: u64, code: Code) -> Self {
        Self::new(None, n, code)
    }

    /// Fails every coming call of one kind, until [`SimDriver::clear_faults`](super::SimDriver::clear_faults).
    pub fn every(call: Call, code: Code) -> Self {
        Self { repeats: true, ..Self::new(Some(call), 1, code) }
    }

    /// Loses the context, too.
    pub const fn sticky(mut self) -> Self {
        self.sticky = true;
        self
    }

    fn new(call: Option<Call>, n: u64, code: Code) -> Self {
        assert!(n > 0, "calls are counted from 1");
        Self { call, countdown: n, repeats: false, sticky: code.is_sticky(), code }
    }
}

/// The faults that have not occurred yet.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    /// Counts a call. Returns the code that it must fail with, if any, and whether the context is lost.
    pub(super) fn strike(&mut self, call: Call) -> Option<(Code, bool)> {
        let mut struck = None;
        self.0.retain_mut(|fault| {
            if fault.call.is_some_and(|wanted| wanted != call) {
                return true;
            }
            if !fault.repeats {
                fault.countdown -= 1;
            } else if struck.is_some() {
                return true;
            }
            if fault.countdown > 0 && !fault.repeats {
                return true;
            }
            struck = struck.or(Some((fault.code, fault.sticky)));
            fault.repeats
        });
        struck
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_call_of_a_kind_fails_and_no_other() {
        let mut faults = Faults::default();
        faults.add(Fault::nth(Call::Copy, 2, Code::LAUNCH_FAILED));
        assert_eq!(faults.strike(Call::Copy), None);
        assert_eq!(faults.strike(Call::EventRecord), None);
        assert_eq!(faults.strike(Call::Copy), Some((Code::LAUNCH_FAILED, true)));
        assert_eq!(faults.strike(Call::Copy), None);
        assert_eq!(faults.left(), 0);
    }

    #[test]
    fn any_call_counts_for_a_fault_without_a_kind() {
        let mut faults = Faults::default();
        faults.add(Fault::nth_call(2, Code::OUT_OF_MEMORY));
        assert_eq!(faults.strike(Call::Copy), None);
        assert_eq!(faults.strike(Call::EventRecord), Some((Code::OUT_OF_MEMORY, false)));
    }

    #[test]
    fn a_repeating_fault_stays() {
        let mut faults = Faults::default();
        faults.add(Fault::every(Call::Copy, Code::NOT_SUPPORTED).sticky());
        assert_eq!(faults.strike(Call::Copy), faults.strike(Call::Copy));
        assert_eq!(faults.left(), 1);
        faults.clear();
        assert_eq!(faults.strike(Call::Copy), None);
    }
}
