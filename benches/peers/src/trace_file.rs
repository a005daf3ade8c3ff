//! `TraceFile`: a log that is replayed.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use alluvion::trace::{Trace, Unpacked};

/// A log in RMM's format, with the name that the peers' lines give it.
#[derive(Debug)]
pub(crate) struct TraceFile {
    pub(crate) name: String,
    pub(crate) trace: Trace,
}

impl TraceFile {
    pub(crate) fn open(path: &str) -> Result<Self, String> {
        let words = |error: &dyn core::fmt::Display| format!("{path}: {error}");
        let file = File::open(path).map_err(|error| words(&error))?;
        let text = Unpacked::new(BufReader::new(file)).map_err(|error| words(&error))?;
        let trace = Trace::from_rmm_csv(text).map_err(|error| words(&error))?;
        if trace.events.is_empty() {
            return Err(words(&"nothing is allocated in it"));
        }
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let name = format!("{}.evt", stem.strip_suffix(".csv").unwrap_or(stem));
        Ok(Self { name, trace })
    }
}
