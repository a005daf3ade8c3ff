//! `Input`: a file that says what memory did, or how it stood.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use alluvion::trace::Trace;
use flate2::bufread::MultiGzDecoder;

use crate::failure::Failure;
use crate::snapshot_file::SnapshotFile;

/// A file that says what memory did, or how it stood; packed by gzip or not.
#[derive(Debug)]
pub(crate) enum Input {
    /// A log in RMM's format.
    Trace(Trace),
    /// A snapshot, as a suballocator writes it.
    Snapshot(SnapshotFile),
}

/// How a file that gzip made begins, whatever its name.
const GZIP: [u8; 2] = [0x1f, 0x8b];

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
    /// Reads either. What begins with a brace is a snapshot: no heading of a log does.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let failed = |why: &dyn core::fmt::Display| Failure::of_file(path, why);
        let mut file = BufReader::new(File::open(path).map_err(|error| failed(&error))?);
        let start = file.fill_buf().map_err(|error| failed(&error))?;
        let read = if start.starts_with(&GZIP) {
            Self::parse(BufReader::new(MultiGzDecoder::new(file)))
        } else {
            Self::parse(file)
        };
        read.map_err(|why| failed(&why))
    }

    fn parse(mut text: impl BufRead) -> Result<Self, String> {
        let start = text.fill_buf().map_err(|error| error.to_string())?;
        if start.trim_ascii_start().first() == Some(&b'{') {
            return SnapshotFile::read(text).map(Self::Snapshot);
        }
        Trace::from_rmm_csv(text).map(Self::Trace).map_err(|error| error.to_string())
    }
}
