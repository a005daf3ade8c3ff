//! Which files the logs of this process are in: no two write one.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Weak;

use super::{Log, Owner};
use crate::driver::MadeIn;
use crate::sync::{Arc, Mutex, MutexGuard};

/// The logs in files, some of which may be gone.
pub(super) struct Files(Vec<(Identity, Weak<Owner>)>);

/// What a file is, whatever it is called: the numbers of its device and of its node, which is used for no other while a log has
/// it open.
type Identity = (u64, u64);

impl Files {
    /// Keeps others from making logs in files, so that of two that name one file the second finds the log of the first. `None`
    /// in a child of a fork: a thread of the parent may have had them when the process forked, and have them for ever. What its
    /// parent writes is not the child's to go on with, either.
    pub(super) fn of_this_process() -> Option<MutexGuard<'static, Self>> {
        static FILES: std::sync::OnceLock<Mutex<Files>> = std::sync::OnceLock::new();
        (MadeIn::this_process() == MadeIn::FIRST)
            .then(|| FILES.get_or_init(|| Mutex::new(Self(Vec::new()))).lock())
    }

    /// The log that is in that file, which may be over.
    pub(super) fn log_in(&self, path: &Path) -> Option<Log> {
        let asked = identity(&fs::metadata(path).ok()?)?;
        self.0.iter().filter(|(known, _)| *known == asked).find_map(|(_, log)| log.upgrade()).map(Log)
    }

    /// A log has been made in that file.
    pub(super) fn enter(&mut self, file: Option<Identity>, log: &Log) {
        self.0.retain(|(_, log)| log.strong_count() > 0);
        self.0.extend(file.map(|file| (file, Arc::downgrade(&log.0))));
    }
}

/// What that file is. `None` for what is no file on a disk, and where the system does not say.
pub(super) fn identity_of(file: &File) -> Option<Identity> {
    identity(&file.metadata().ok()?)
}

#[cfg(unix)]
fn identity(of: &fs::Metadata) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    of.is_file().then(|| (of.dev(), of.ino()))
}

#[cfg(not(unix))]
fn identity(_: &fs::Metadata) -> Option<Identity> {
    None
}
