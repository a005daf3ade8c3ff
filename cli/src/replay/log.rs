//! `Log`: a trace that is replayed, with its name.

use std::path::Path;

use alluvion::Layout;
use alluvion::trace::{EventKind, Trace};

use crate::failure::Failure;
use crate::note::note;
use crate::trace_file;

/// A trace that is replayed, with its name.
#[derive(Debug)]
pub(crate) struct Log {
    /// That of the file, without what it is packed with.
    pub(crate) name: String,
    pub(crate) trace: Trace,
}

impl Log {
    /// Says on the standard error stream what of the log is left out.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let trace = trace_file::read(path)?;
        if trace.events.is_empty() {
            return Err(Failure::of_file(path, "nothing is allocated in it"));
        }
        for (count, what) in
            [(trace.failures, "allocations that failed"), (trace.strays, "frees of what was never allocated")]
        {
            if count > 0 {
                note(&format!("{}: {count} {what} are left out", path.display()));
            }
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        let name = stem.strip_suffix(".csv").unwrap_or(stem).to_owned();
        Ok(Self { name, trace })
    }

    /// The most bytes that were live at once, in the order of the log, without the blocks that `is_left_out` says so of.
    pub(crate) fn peak_live_bytes(&self, is_left_out: impl Fn(u32) -> bool) -> u64 {
        let (mut live, mut peak) = (0_u64, 0);
        for event in self.trace.events.iter().filter(|event| !is_left_out(event.block)) {
            let bytes = event.bytes.next_multiple_of(Layout::MIN_ALIGN as u64);
            match event.kind {
                EventKind::Allocate => live = live.saturating_add(bytes),
                EventKind::Free => live = live.saturating_sub(bytes),
            }
            peak = peak.max(live);
        }
        peak
    }
}
