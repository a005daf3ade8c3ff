//! `SharedFile` where no file can be shared: there is none, so nothing more is called.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use crate::error::Error;
use crate::sync::AtomicU64;

// Fields that nobody else sees: what follows a call on one of them would be unreachable code, which is a warning.
pub(super) struct SharedFile(Infallible);
pub(super) struct Page(Infallible);
pub(super) struct Others(Infallible);
pub(super) struct Locked<'f>(&'f Others);

impl SharedFile {
    pub(super) fn open(_: &Path, _: &str) -> Result<Self, Error> {
        Err(Error::unsupported(
            "a limit that processes share",
            "the locks that tell which of them live are Linux's",
            "give each process a limit of its own, such as `Limiting`",
        ))
    }

    pub(super) fn path(&self) -> &Path {
        match self.0 {}
    }

    pub(super) fn lock(&self, _: usize) -> Result<Option<Locked<'_>>, Error> {
        match self.0 {}
    }

    pub(super) fn map(&self) -> io::Result<Option<Page>> {
        match self.0 {}
    }

    pub(super) fn leave_to_mapping(self) -> Others {
        match self.0 {}
    }
}

impl Others {
    pub(super) fn lock(&self, _: usize) -> Result<Option<Locked<'_>>, Error> {
        match self.0 {}
    }
}

impl Locked<'_> {
    pub(super) fn keep(self) {
        match self.0.0 {}
    }
}

impl Page {
    pub(super) fn keep(&mut self) {
        match self.0 {}
    }

    pub(super) fn is_of_parent(&self) -> bool {
        match self.0 {}
    }
}

impl AsRef<[AtomicU64]> for Page {
    fn as_ref(&self) -> &[AtomicU64] {
        match self.0 {}
    }
}
