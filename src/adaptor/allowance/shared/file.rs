//! `SharedFile`: a file whose memory processes share, and whose bytes they lock.
//!
//! # How a process is known to live
//!
//! A member has the lock of one byte of the file. The lock belongs to what was opened, and the mapping of the file alone keeps
//! that open: the descriptor is closed. So the kernel lets go of the lock when the mapping goes: when the member is dropped, and
//! however the process ends. A child of a fork does not get the mapping, so it does not keep its parent's place; nor does a number
//! of a process that is used again, or that counts in another container, look like a life.

#![expect(unsafe_code, reason = "maps a file, and locks its bytes")]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use super::table::WORDS;
use crate::error::Error;
use crate::sync::{AtomicU64, MadeIn};

const BYTES: usize = WORDS * size_of::<u64>();

/// Two openings of one file. A lock that one of them has, the other one does not get.
pub(super) struct SharedFile {
    /// Has the locks of a member, through its mapping, when it is closed.
    mine: File,
    /// Looks after the locks of others.
    others: Others,
    path: PathBuf,
}

/// An opening that keeps no lock for long.
pub(super) struct Others(File);

/// A lock of one byte, which is given back when this is dropped.
pub(super) struct Locked<'f> {
    file: &'f File,
    at: usize,
}

impl SharedFile {
    /// Opens the file, and makes it if there is none, for this user alone.
    ///
    /// # Errors
    ///
    /// `Unwritable`, if it cannot be opened or somebody else could have written it.
    pub(super) fn open(directory: &Path, name: &str) -> Result<Self, Error> {
        // SAFETY: it takes nothing, and cannot fail.
        let user = unsafe { libc::geteuid() };
        // Other users have other files: this one is for one user alone.
        let path = directory.join(format!("alluvion-{user}-{name}"));
        let refused = |error: io::Error| Error::unwritable(path.display(), &error);
        let mut options = OpenOptions::new();
        // A link leads elsewhere, and a pipe would wait for its other end.
        options
            .read(true)
            .write(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        // Between two openings somebody may remove the file; that somebody does so again and again is an error as good as any.
        for _ in 0..8 {
            let (mine, others) =
                (options.open(&path).map_err(refused)?, options.open(&path).map_err(refused)?);
            let [first, second] = [mine.metadata().map_err(refused)?, others.metadata().map_err(refused)?];
            let wrong = if !first.is_file() {
                Some("it is no file".to_owned())
            } else if first.uid() != user {
                Some(format!("it belongs to user {}, and this process is user {user}", first.uid()))
            } else if first.mode() & 0o077 != 0 {
                Some(format!("other users may use it: its mode is {:o}", first.mode() & 0o7777))
            } else {
                None
            };
            if let Some(why) = wrong {
                return Err(refused(io::Error::other(why)));
            }
            if (first.dev(), first.ino()) == (second.dev(), second.ino()) && second.nlink() > 0 {
                return Ok(Self { mine, others: Others(others), path });
            }
        }
        Err(refused(io::Error::other("it is removed while it is opened")))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks byte `at`; `None` if another process has it.
    pub(super) fn lock(&self, at: usize) -> Result<Option<Locked<'_>>, Error> {
        lock(&self.mine, at)
    }

    /// Maps the file, which gets its size if it has none yet; the lock of the door is held. `None` if it has another size.
    pub(super) fn map(&self) -> io::Result<Option<Page>> {
        match self.mine.metadata()?.len() {
            // SAFETY: the descriptor is open, and the numbers are those of a file of 8 KiB. The blocks are there from now on:
            // else a write to the mapping could find the file system full, and end the process.
            0 => match unsafe { libc::posix_fallocate(self.mine.as_raw_fd(), 0, BYTES as libc::off_t) } {
                0 => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            },
            bytes if bytes != BYTES as u64 => return Ok(None),
            _ => {}
        }
        let made_in = MadeIn::this_process();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses the addresses, so no other memory is replaced; the descriptor is open, and the file has as
        // many bytes.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), BYTES, access, libc::MAP_SHARED, self.mine.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("it was mapped at 0"))?;
        let page = Page { start, made_in, is_kept: false };
        // Before any lock is taken for it: see above.
        // SAFETY: the pages are this mapping's, and the advice does not change what they hold.
        match unsafe { libc::madvise(start.as_ptr().cast(), BYTES, libc::MADV_DONTFORK) } {
            0 => Ok(Some(page)),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Closes the opening that has the lock of a member: the mapping keeps it from now on.
    pub(super) fn leave_to_mapping(self) -> Others {
        self.others
    }
}

impl Others {
    /// Locks byte `at`; `None` if a process that lives has it.
    pub(super) fn lock(&self, at: usize) -> Result<Option<Locked<'_>>, Error> {
        lock(&self.0, at)
    }
}

impl Locked<'_> {
    /// Keeps the lock: what was opened has it until its end.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It cannot fail: it makes no lock.
        let _ = set(self.file, self.at, libc::F_UNLCK);
    }
}

fn lock(file: &File, at: usize) -> Result<Option<Locked<'_>>, Error> {
    match set(file, at, libc::F_WRLCK) {
        Ok(()) => Ok(Some(Locked { file, at })),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
        Err(error) => Err(Error::unwritable("the lock of a shared limit", &error)),
    }
}

fn set(file: &File, at: usize, kind: libc::c_int) -> io::Result<()> {
    // SAFETY: a `flock` is numbers, of which all zeros are a value.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    (range.l_start, range.l_len) = (at as libc::off_t, 1);
    // SAFETY: the descriptor is open, and the command takes a `flock`, which lives until it returns. It does not wait.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut range) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The file in memory, unmapped when this is dropped.
#[derive(Debug)]
pub(super) struct Page {
    start: NonNull<AtomicU64>,
    made_in: MadeIn,
    is_kept: bool,
}

// SAFETY: it owns the mapping, which belongs to no thread.
unsafe impl Send for Page {}
// SAFETY: it lends out atomics.
unsafe impl Sync for Page {}

impl Page {
    /// Keeps it mapped until the process ends, and with it the lock of a member.
    pub(super) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Returns `true` in a child of the process that mapped it, which has no such memory.
    pub(super) fn is_of_parent(&self) -> bool {
        self.made_in.is_parent()
    }
}

impl AsRef<[AtomicU64]> for Page {
    /// # Panics
    ///
    /// In a child of the process that mapped it.
    fn as_ref(&self) -> &[AtomicU64] {
        assert!(!self.is_of_parent(), "a child of a fork has no part of its parent's limit");
        // SAFETY: the pages are mapped until this is dropped, which the slice borrows, for reading and writing, and at a multiple
        // of their size. Any bits are an `AtomicU64`. The other processes access them as atomics, too. One that writes to the file
        // by other means may change the values at any time, which are checked wherever they are used; one that cuts the file off
        // ends this process by a signal.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), WORDS) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if !self.is_of_parent() && !self.is_kept {
            // SAFETY: the pages are this value's, which mapped them, and nothing borrows it any more.
            let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), BYTES) };
        }
    }
}
