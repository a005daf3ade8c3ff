//! What do processes hold together?
//!
//! A [`JointFile`] is a small file of one user, in a directory that is memory, such as `/dev/shm`. Processes that have opened it lock
//! single bytes of it to show that they live, and write words into it that the others read. All files of a user are in a directory of
//! that user's alone, in which nobody else can take a name first.

#[cfg(all(target_os = "linux", not(loom)))]
mod file;
#[cfg(not(all(target_os = "linux", not(loom))))]
#[path = "no_file.rs"]
mod file;
#[cfg(all(target_os = "linux", not(loom)))]
mod kin;
mod life;
#[cfg(all(target_os = "linux", not(loom)))]
mod no_fork;
#[cfg(all(target_os = "linux", not(loom)))]
mod page;
#[cfg(all(target_os = "linux", not(loom)))]
mod process;

pub(crate) use file::{
    JointFile, JointPage, Locked, NoFork, Others, is_dying, is_ending_since, kin_is_left, life_in, room_in,
};

pub(crate) use life::{KinMark, Life};

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

/// The directory of this user's files, in one that all users may have. Nobody else can put anything there, or remove it.
pub(crate) fn room_of(directory: &Path) -> PathBuf {
    directory.join(format!("alluvion-{}", file::user()))
}
