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

/// A file that has been opened, and of a log nothing been read.
pub(crate) enum Opened {
    Log(Unpacked<BufReader<File>>),
    Snapshot(Box<SnapshotFile>),
}

impl Opened {
    /// Opens either. What begins with a brace is a snapshot: no heading of a log does.
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        Self::of(path).map_err(|why| Failure::of_file(path, why))
    }

    fn of(path: &Path) -> Result<Self, String> {
        let mut file = BufReader::new(File::open(path).map_err(|error| error.to_string())?);
        file.fill_buf().map_err(|error| error.to_string())?;
        let mut text = Unpacked::new(file).map_err(|error| error.to_string())?;
        // Of a packed file that was cut there may be no text at all, which the reader of logs tells.
        let start = text.fill_buf().unwrap_or_default();
        if start.trim_ascii_start().first() == Some(&b'{') {
            return SnapshotFile::read(text).map(|snapshot| Self::Snapshot(Box::new(snapshot)));
        }
        Ok(Self::Log(text))
    }
}

/// Says on the standard error stream where a log ends that was cut.
pub(crate) fn tell_of_cut(path: &Path, trace: &Trace) {
    if let Some(cut) = &trace.cut {
        note(&format!("{}: {cut}; what comes before is read", path.display()));
    }
}

/// The part of a log that device `gpu` has.
pub(crate) fn of_device(trace: Trace, gpu: u32) -> Result<Trace, String> {
    match trace.device_ordinals.iter().position(|&ordinal| ordinal == gpu) {
        Some(_) if trace.devices == 1 => Ok(trace),
        Some(device) => Ok(trace.of_device(device as u32)),
        None => Err(lacks(gpu, trace.device_ordinals.iter().copied())),
    }
}

/// Nothing in a log of these devices is of that one.
pub(crate) fn lacks(gpu: u32, ordinals: impl Iterator<Item = u32>) -> String {
    let mut ordinals: Vec<_> = ordinals.collect();
    ordinals.sort_unstable();
    let named: Vec<_> = ordinals.iter().map(|ordinal| format!("gpu {ordinal}")).collect();
    format!("nothing in it is of gpu {gpu}: it is of {}", named.join(", "))
}

impl Input {
    /// Reads either, and tells of a cut.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        match Opened::new(path)? {
            Opened::Snapshot(snapshot) => Ok(Self::Snapshot(*snapshot)),
            Opened::Log(text) => {
                let trace = Trace::from_rmm_csv(text).map_err(|error| Failure::of_file(path, error))?;
                tell_of_cut(path, &trace);
                Ok(Self::Trace(trace))
            }
        }
    }
}
