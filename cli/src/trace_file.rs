//! Opens a trace: a log in RMM's format, packed by gzip or not.

use std::path::Path;

use alluvion::trace::Trace;

use crate::failure::Failure;
use crate::input::Input;

pub(crate) fn read(path: &Path) -> Result<Trace, Failure> {
    match Input::read(path)? {
        Input::Trace(trace) => Ok(trace),
        Input::Snapshot(_) => Err(Failure::of_file(path, "it is a snapshot, and a log is needed")),
    }
}
