//! Stream capture: which calls it forbids.

use std::collections::HashMap;
use std::thread::{self, ThreadId};

use super::machine::Machine;
use crate::driver::CaptureMode;

/// Who captures what.
#[derive(Debug, Default)]
pub(super) struct Captures {
    modes: HashMap<ThreadId, CaptureMode>,
}

impl Machine {
    pub(super) fn exchange_capture_mode(&mut self, mode: CaptureMode) -> CaptureMode {
        self.captures.modes.insert(thread::current().id(), mode).unwrap_or_default()
    }
}
