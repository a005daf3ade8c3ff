//! A directory for the files of shared limits, gone at the end of a test.

#![allow(dead_code, reason = "some tests need a part of it")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use alluvion::adaptor::SharedConfig;

pub(crate) struct SharedDirectory(PathBuf);

impl SharedDirectory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("alluvion-shared-{}-{next}", std::process::id()));
        // A process that was killed may have had this number, and left it.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("it is not there");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// A limit in this directory.
    pub(crate) fn limit(&self, name: &str, bytes: usize) -> SharedConfig {
        SharedConfig::new(name, bytes).directory(&self.0)
    }

    /// How many files there are of limits and leases.
    pub(crate) fn files(&self) -> usize {
        room_in(&self.0).map_or(0, |room| {
            let names = fs::read_dir(room).expect("it is there").flatten().map(|entry| entry.file_name());
            names.filter(|name| name != ".kin").count()
        })
    }

    /// The file of a limit, or of a lease.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        file_in(&self.0, name)
    }

    /// The directory of this user's files.
    pub(crate) fn room(&self) -> PathBuf {
        room_in(&self.0).expect("something was shared here")
    }
}

/// The directory of this user's files in one that is anybody's.
fn room_in(directory: &Path) -> Option<PathBuf> {
    let user = fs::metadata("/proc/self").expect("it is there").uid();
    let room = directory.join(format!("alluvion-{user}"));
    room.is_dir().then_some(room)
}

fn file_in(directory: &Path, name: &str) -> PathBuf {
    let room = room_in(directory).expect("something was shared here");
    let mut files = ["", "lease-"].map(|kind| room.join(format!("{kind}{name}"))).into_iter();
    files.find(|path| path.exists()).expect("it has a file")
}

/// Removes the file of a limit that a recipe has made.
pub(crate) fn remove_from_shared_memory(name: &str) {
    fs::remove_file(file_in(Path::new("/dev/shm"), name)).expect("it is this user's");
}

impl Drop for SharedDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
