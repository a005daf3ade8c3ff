//! `SnapshotFiles`: the files that a suballocator writes when memory runs out.

use core::fmt;
use core::sync::atomic::AtomicUsize;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{Snapshot, json};
use crate::error::{OutOfMemory, SnapshotFile};
use crate::sync::{Arc, AtomicU64, Ordering};

/// The most files that are written: a program that goes on after it ran out may run out a thousand times a second.
const MOST: u64 = 4;

/// The path of the next file. Copies share the count.
#[derive(Clone, Debug)]
pub(in crate::suballoc) struct SnapshotFiles {
    path: PathBuf,
    begun: Arc<AtomicU64>,
}

impl SnapshotFiles {
    pub(in crate::suballoc) fn new(path: PathBuf) -> Self {
        Self { path, begun: Arc::new(AtomicU64::new(0)) }
    }

    /// Writes the next file; `None` after [`MOST`] files. The caller holds no lock.
    pub(in crate::suballoc) fn write(
        &self,
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
        let path = numbered(&self.path, number);
        Some(match write_whole(&path, &snapshot(), report) {
            Ok(()) => SnapshotFile::Written(path),
            Err(error) => SnapshotFile::Failed { path, why: error.to_string() },
        })
    }
}

/// `pool.json`, `pool-2.json`, and so on.
fn numbered(path: &Path, number: u64) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = path.file_stem().map_or_else(OsString::new, OsString::from);
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// Writes a temporary file first, so that the named file is always complete, also when the disk is full, or another
/// pool writes to the same name.
fn write_whole(path: &Path, snapshot: &Snapshot, report: &OutOfMemory) -> io::Result<()> {
    let (beside, file) = file_beside(path)?;
    let written = json::write(snapshot, Some(report), file).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // If the temporary file cannot be removed either, it stays.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// The most names of temporary files that somebody else may have taken.
const MOST_TAKEN: usize = 64;

/// Makes a temporary file. Its name can be known in advance, so one that is there is another's: a link would lead elsewhere.
fn file_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    // Not of `crate::sync`: it lives as long as the process, and no model covers it.
    static BEGUN: AtomicUsize = AtomicUsize::new(0);
    let mut taken = 0;
    loop {
        // Relaxed: it only gives each temporary file a name of its own.
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        let mut beside = path.as_os_str().to_owned();
        beside.push(format!(".{}-{number}.partial", std::process::id()));
        let beside = PathBuf::from(beside);
        match File::create_new(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && taken < MOST_TAKEN => taken += 1,
            made => return made.map(|file| (beside, file)),
        }
    }
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

    /// Somebody knows the names of the next temporary files, and has links there.
    #[cfg(unix)]
    #[test]
    fn a_link_in_the_place_of_a_temporary_file_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("alluvion-snapshot-links-{}", std::process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).expect("it is not there");
        let (path, theirs) = (folder.join("pool.json"), folder.join("theirs"));
        fs::write(&theirs, "as it was").expect("there is room");
        // Other tests may take some of the numbers; fewer than there are tries.
        let (beside, _) = file_beside(&path).expect("there is room");
        let name = beside.to_str().expect("it is text");
        let (before, number) = name.trim_end_matches(".partial").rsplit_once('-').expect("it has a number");
        let number: usize = number.parse().expect("it is a number");
        for next in number + 1..number + 20 {
            std::os::unix::fs::symlink(&theirs, format!("{before}-{next}.partial")).expect("there is room");
        }
        let (next, _) = file_beside(&path).expect("there are more names");
        assert!(fs::symlink_metadata(&next).expect("it is there").is_file(), "{} is a link", next.display());
        assert_eq!(fs::read(&theirs).expect("it is there"), b"as it was");
        fs::remove_dir_all(&folder).expect("it is this test's");
    }

    #[test]
    fn files_have_numbers_before_the_extension() {
        let cases = [
            ("pool.json", 1, "pool.json"),
            ("pool.json", 2, "pool-2.json"),
            ("/a.b/pool", 3, "/a.b/pool-3"),
            ("a/pool.old.json", 4, "a/pool.old-4.json"),
        ];
        for (path, number, file) in cases {
            assert_eq!(numbered(Path::new(path), number), Path::new(file));
        }
    }
}
