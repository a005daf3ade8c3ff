//! `JointFile` where no file can be shared: there is none, so nothing more is called.

use core::ops::Range;
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};

use super::{Life, Opening};
use crate::sync::AtomicU64;

// Fields that nobody else sees: what follows a call on one of them would be unreachable code, which is a warning.
#[derive(Debug)]
pub(crate) struct JointFile(Infallible);
#[derive(Debug)]
pub(crate) struct JointPage(Infallible);
#[derive(Debug)]
pub(crate) struct Others(Infallible);
#[derive(Debug)]
pub(crate) struct Locked<'f>(&'f Others);

/// None is needed, where there is no lock to keep from a child.
#[derive(Debug)]
pub(crate) struct NoFork;

impl NoFork {
    pub(crate) fn begin() -> Self {
        Self
    }
}

pub(crate) fn room_in(_: &Path) -> io::Result<PathBuf> {
    Err(none())
}

pub(crate) fn life_in(_: &Path) -> io::Result<Life> {
    Err(none())
}

pub(crate) fn is_dying(_: u32, _: u64) -> bool {
    false
}

pub(crate) fn kin_is_left(_: &Path, _: &[Life]) -> bool {
    false
}

pub(crate) fn is_ending_since(_: u64) -> bool {
    false
}

pub(super) fn user() -> u32 {
    0
}

/// The locks that tell which processes live are Linux's.
fn none() -> io::Error {
    io::Error::from(io::ErrorKind::Unsupported)
}

impl JointFile {
    pub(crate) fn open(_: PathBuf, _: Opening) -> io::Result<Self> {
        Err(none())
    }

    pub(crate) fn path(&self) -> &Path {
        match self.0 {}
    }

    pub(crate) fn lock(&self, _: usize) -> io::Result<Option<Locked<'_>>> {
        match self.0 {}
    }

    pub(crate) fn map(&self, _: usize) -> io::Result<Option<JointPage>> {
        match self.0 {}
    }

    pub(crate) fn page(&self, _: usize) -> io::Result<Option<JointPage>> {
        match self.0 {}
    }

    pub(crate) fn others(&self) -> &Others {
        match self.0 {}
    }

    pub(crate) fn leave_to_mapping(self) -> Others {
        match self.0 {}
    }
}

impl Others {
    pub(crate) fn open(_: &Path) -> io::Result<Self> {
        Err(none())
    }

    pub(crate) fn identity(&self) -> io::Result<([u64; 2], u64)> {
        match self.0 {}
    }

    pub(crate) fn lock(&self, _: usize) -> io::Result<Option<Locked<'_>>> {
        match self.0 {}
    }

    pub(crate) fn lock_all(&self, _: usize, _: usize) -> io::Result<Option<Locked<'_>>> {
        match self.0 {}
    }

    pub(crate) fn is_locked(&self, _: usize) -> io::Result<bool> {
        match self.0 {}
    }

    pub(crate) fn locks_in(&self, _: Range<usize>) -> io::Result<Vec<Range<usize>>> {
        match self.0 {}
    }

    pub(crate) fn page(&self, _: usize) -> io::Result<Option<JointPage>> {
        match self.0 {}
    }
}

impl Locked<'_> {
    pub(crate) fn keep(self) {
        match self.0.0 {}
    }
}

impl JointPage {
    pub(crate) fn keep(&mut self) {
        match self.0 {}
    }

    pub(crate) fn is_forked_child(&self) -> bool {
        match self.0 {}
    }
}

impl AsRef<[AtomicU64]> for JointPage {
    fn as_ref(&self) -> &[AtomicU64] {
        match self.0 {}
    }
}
