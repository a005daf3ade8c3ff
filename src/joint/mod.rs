//! What do processes hold together?
//!
//! A [`JointFile`] is a small file of one user, in a directory that is memory, such as `/dev/shm`. Processes that have opened it lock
//! single bytes of it to show that they live, and write words into it that the others read.

#[cfg(all(target_os = "linux", not(loom)))]
mod file;
#[cfg(not(all(target_os = "linux", not(loom))))]
#[path = "no_file.rs"]
mod file;
#[cfg(all(target_os = "linux", not(loom)))]
mod no_fork;
#[cfg(all(target_os = "linux", not(loom)))]
mod page;

pub(crate) use file::{JointFile, JointPage, Locked, Others};

use std::path::{Path, PathBuf};

/// Where the files are unless somebody says otherwise.
pub(crate) const DIRECTORY: &str = "/dev/shm";

/// What there may be at a path before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// A file or nothing: it is made then.
    Either,
    /// Nothing: it is made.
    New,
    /// A file.
    Existing,
}

/// The path of a file of this user.
pub(crate) fn path_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("alluvion-{}-{name}", file::user()))
}

/// The start of the names of all files of this user whose names begin so.
pub(crate) fn prefix_of(name: &str) -> String {
    format!("alluvion-{}-{name}", file::user())
}
