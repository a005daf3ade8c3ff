//! `Input`: a file that says what memory did, or how it stood.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use alluvion::trace::{Trace, Unpacked};

use crate::failure::Failure;
use crate::note::note;
use crate::snapshot_file::SnapshotFile;

/// A file that says what memory did, or how it stood; packed by gzip or not.
#[derive(Debug)]
pub(crate) enum Input {
    /// A log in RMM's format.
    Trace(Trace),
    /// A snapshot, as a suballocator writes it.
    Snapshot(SnapshotFile),
}

/// What is written to `output` would be in the place of what was read.
pub(crate) fn refuse_overwriting(file: &Path, output: &Path, by: &str) -> Result<(), Failure> {
    match (file.canonicalize(), output.canonicalize()) {
        (Ok(file), Ok(output)) if file == output && file.is_file() => {
            Err(Failure::usage(format!("{} would be overwritten by its own {by}", file.display())))
        }
        _ => Ok(()),
    }
}

impl Input {
    /// Reads either. What begins with a brace is a snapshot: no heading of a log does. Says on the standard error stream where
    /// a log ends that was cut.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let input = Self::open(path).map_err(|why| Failure::of_file(path, why))?;
        if let Self::Trace(Trace { cut: Some(cut), .. }) = &input {
            note(&format!("{}: {cut}; what comes before is read", path.display()));
        }
        Ok(input)
    }

    fn open(path: &Path) -> Result<Self, String> {
        let mut file = BufReader::new(File::open(path).map_err(|error| error.to_string())?);
        file.fill_buf().map_err(|error| error.to_string())?;
        let mut text = Unpacked::new(file).map_err(|error| error.to_string())?;
        // Of a packed file that was cut there may be no text at all, which the reader of logs tells.
        let start = text.fill_buf().unwrap_or_default();
        if start.trim_ascii_start().first() == Some(&b'{') {
            return SnapshotFile::read(text).map(Self::Snapshot);
        }
        Trace::from_rmm_csv(text).map(Self::Trace).map_err(|error| error.to_string())
    }
}
