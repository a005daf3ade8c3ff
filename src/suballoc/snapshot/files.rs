//! `SnapshotFiles`: the files that a suballocator writes when memory runs out.

use core::fmt;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use super::{Snapshot, json};
use crate::error::{OutOfMemory, SnapshotFile};
use crate::resource::card::{ArgumentKind, Parameter};
use crate::sync::{Arc, AtomicU64, Ordering};
use crate::whole_file::WholeFile;

/// The most files that are written: a program that goes on after it ran out may run out a thousand times a second.
const MOST: u64 = 4;

/// The path of the next file. Copies share the count.
#[derive(Clone, Debug)]
pub(in crate::suballoc) struct SnapshotFiles {
    path: PathBuf,
    begun: Arc<AtomicU64>,
}

impl SnapshotFiles {
    /// The parameter of a suballocator.
    pub(in crate::suballoc) const ON_OUT_OF_MEMORY: Parameter = Parameter::new(
        "snapshot_on_out_of_memory",
        ArgumentKind::Text,
        "the file that every block is written to when a request fails, the first 4 times; none if left out",
    );

    pub(in crate::suballoc) fn new(path: PathBuf) -> Self {
        Self { path, begun: Arc::new(AtomicU64::new(0)) }
    }

    /// Writes the next file; `None` after [`MOST`] files. The caller holds no lock.
    pub(in crate::suballoc) fn write(
        &self,
        ordinal: u32,
        snapshot: impl FnOnce() -> Snapshot,
        report: &OutOfMemory,
    ) -> Option<SnapshotFile> {
        // Relaxed: it only gives each file a number of its own. The load keeps the counter from overflowing.
        if self.begun.load(Ordering::Relaxed) >= MOST {
            return None;
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        if number > MOST {
            return None;
        }
        let path = numbered(&self.path, ordinal, number);
        Some(match write_whole(&path, &snapshot(), report) {
            Ok(()) => SnapshotFile::Written(path),
            Err(error) => SnapshotFile::Failed { path, why: error.to_string() },
        })
    }
}

/// `pool.json`, `pool-2.json`, and so on; for device 1 `pool-gpu1.json`, `pool-gpu1-2.json`: the stacks of several devices that are made of one
/// recipe have one path.
fn numbered(path: &Path, ordinal: u32, number: u64) -> PathBuf {
    if ordinal == 0 && number == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().map_or_else(OsString::new, OsString::from);
    if ordinal > 0 {
        name.push(format!("-gpu{ordinal}"));
    }
    if number > 1 {
        name.push(format!("-{number}"));
    }
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Writes a file that has its name when it is complete.
fn write_whole(path: &Path, snapshot: &Snapshot, report: &OutOfMemory) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    json::write(snapshot, Some(report), file.file())?;
    file.finish()
}

impl fmt::Display for SnapshotFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written(path) => write!(f, "a snapshot is in {}", path.display()),
            Self::Failed { path, why } => write!(f, "no snapshot in {}: {why}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_numbers_before_the_extension() {
        let cases = [
            ("pool.json", 0, 1, "pool.json"),
            ("pool.json", 0, 2, "pool-2.json"),
            ("/a.b/pool", 0, 3, "/a.b/pool-3"),
            ("a/pool.old.json", 0, 4, "a/pool.old-4.json"),
            ("pool.json", 1, 1, "pool-gpu1.json"),
            ("/a.b/pool", 12, 3, "/a.b/pool-gpu12-3"),
        ];
        for (path, ordinal, number, file) in cases {
            assert_eq!(numbered(Path::new(path), ordinal, number), Path::new(file));
        }
    }
}
