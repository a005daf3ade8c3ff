//! `JointFile`: a file whose memory processes share, and whose bytes they lock.
//!
//! # How a process is known to live
//!
//! A process has the lock of one byte of the file. The lock belongs to what was opened, and the mapping of the file alone keeps
//! that open: the descriptor is closed. So the kernel lets go of the lock when the mapping goes: when its owner is dropped, and
//! however the process ends. A child of a fork does not get the mapping, so it does not keep its parent's place; nor does a number
//! of a process that is used again, or that counts in another container, look like a life.

#![expect(unsafe_code, reason = "maps a file, and locks its bytes")]

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};

use super::Opening;
use crate::sync::{AtomicU64, MadeIn};

/// Two openings of one file. A lock that one of them has, the other one does not get.
#[derive(Debug)]
pub(crate) struct JointFile {
    /// Has the locks of this process, through its mapping, when it is closed.
    mine: File,
    /// Looks after the locks of others.
    others: Others,
    path: PathBuf,
}

/// An opening that keeps no lock for long.
#[derive(Debug)]
pub(crate) struct Others(File);

/// A lock of some bytes, which is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Locked<'f> {
    file: &'f File,
    at: usize,
    count: usize,
}

/// The user whose files these are.
pub(super) fn user() -> u32 {
    // SAFETY: it takes nothing, and cannot fail.
    unsafe { libc::geteuid() }
}

/// Opens the file for this user alone.
fn open_one(path: &Path, opening: Opening) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    // A link leads elsewhere, and a pipe would wait for its other end.
    options
        .read(true)
        .write(true)
        .create(opening == Opening::Either)
        .create_new(opening == Opening::New)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = options.open(path)?;
    let (found, user) = (file.metadata()?, user());
    let wrong = if !found.is_file() {
        "it is no file".to_owned()
    } else if found.uid() != user {
        format!("it belongs to user {}, and this process is user {user}", found.uid())
    } else if found.mode() & 0o077 != 0 {
        format!("other users may use it: its mode is {:o}", found.mode() & 0o7777)
    } else {
        return Ok((file, found));
    };
    Err(io::Error::other(wrong))
}

impl JointFile {
    /// Opens the file, for this user alone.
    ///
    /// # Errors
    ///
    /// If it cannot be opened, or somebody else could have written it.
    pub(crate) fn open(path: PathBuf, opening: Opening) -> io::Result<Self> {
        // Between two openings somebody may remove the file; that somebody does so again and again is an error as good as any.
        for _ in 0..8 {
            let (mine, first) = open_one(&path, opening)?;
            let again = if opening == Opening::Either { opening } else { Opening::Existing };
            let (others, second) = open_one(&path, again)?;
            if (first.dev(), first.ino()) == (second.dev(), second.ino()) && second.nlink() > 0 {
                return Ok(Self { mine, others: Others(others), path });
            }
        }
        Err(io::Error::other("it is removed while it is opened"))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks byte `at`; `None` if another process has it.
    ///
    /// # Errors
    ///
    /// If the file system has no locks.
    pub(crate) fn lock(&self, at: usize) -> io::Result<Option<Locked<'_>>> {
        lock(&self.mine, at, 1)
    }

    /// Maps the file, which gets its size if it has none yet; nobody else does so now. `None` if it has another size.
    ///
    /// # Errors
    ///
    /// If there is no room for it, or it cannot be mapped.
    pub(crate) fn map(&self, words: usize) -> io::Result<Option<JointPage>> {
        let bytes = words * size_of::<u64>();
        match self.mine.metadata()?.len() {
            // SAFETY: the descriptor is open, and the numbers are those of a small file. The blocks are there from now on: else a
            // write to the mapping could find the file system full, and end the process.
            0 => match unsafe { libc::posix_fallocate(self.mine.as_raw_fd(), 0, bytes as libc::off_t) } {
                0 => {}
                error => return Err(io::Error::from_raw_os_error(error)),
            },
            found if found != bytes as u64 => return Ok(None),
            _ => {}
        }
        map(&self.mine, words).map(Some)
    }

    /// Closes the opening that has the locks of this process: the mapping keeps it from now on.
    pub(crate) fn leave_to_mapping(self) -> Others {
        self.others
    }
}

impl Others {
    /// Opens a file that is there.
    ///
    /// # Errors
    ///
    /// As [`JointFile::open`].
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        open_one(path, Opening::Existing).map(|(file, _)| Self(file))
    }

    /// What tells this file from all others, and whether it still has a name.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub(crate) fn identity(&self) -> io::Result<([u64; 2], bool)> {
        let found = self.0.metadata()?;
        Ok(([found.dev(), found.ino()], found.nlink() > 0))
    }

    /// Locks byte `at`; `None` if a process that lives has it.
    ///
    /// # Errors
    ///
    /// As [`JointFile::lock`].
    pub(crate) fn lock(&self, at: usize) -> io::Result<Option<Locked<'_>>> {
        lock(&self.0, at, 1)
    }

    /// Locks `count` bytes; `None` if a process that lives has one of them.
    ///
    /// # Errors
    ///
    /// As [`JointFile::lock`].
    pub(crate) fn lock_all(&self, at: usize, count: usize) -> io::Result<Option<Locked<'_>>> {
        lock(&self.0, at, count)
    }

    /// The first byte of `count` that a process has, and how many from there on it has by one lock.
    ///
    /// # Errors
    ///
    /// As [`JointFile::lock`].
    pub(crate) fn first_locked(&self, at: usize, count: usize) -> io::Result<Option<(usize, usize)>> {
        let range = command(&self.0, libc::F_OFD_GETLK, libc::F_WRLCK, at, count)?;
        let is_free = range.l_type == libc::F_UNLCK as libc::c_short;
        let most = (at + count - range.l_start as usize) as libc::off_t;
        // A length of 0 is to the end of all files.
        let len = if range.l_len == 0 { most } else { range.l_len.min(most) };
        Ok((!is_free).then_some((range.l_start as usize, len as usize)))
    }

    /// Maps the file as well; `None` if it has another size.
    ///
    /// # Errors
    ///
    /// As the system says.
    pub(crate) fn page(&self, words: usize) -> io::Result<Option<JointPage>> {
        if self.0.metadata()?.len() != (words * size_of::<u64>()) as u64 {
            return Ok(None);
        }
        map(&self.0, words).map(Some)
    }
}

impl Locked<'_> {
    /// Keeps the lock: what was opened has it until its end.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // It cannot fail: it makes no lock.
        let _ = command(self.file, libc::F_OFD_SETLK, libc::F_UNLCK, self.at, self.count);
    }
}

/// Maps a file, which has that many words.
fn map(file: &File, words: usize) -> io::Result<JointPage> {
    let bytes = words * size_of::<u64>();
    let made_in = MadeIn::this_process();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the kernel chooses the addresses, so no other memory is replaced; the descriptor is open, and the file has as
    // many bytes.
    let start = unsafe { libc::mmap(ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("it was mapped at 0"))?;
    let page = JointPage { start, words, made_in, is_kept: false };
    // Before any lock is taken for it: see above.
    // SAFETY: the pages are this mapping's, and the advice does not change what they hold.
    match unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_DONTFORK) } {
        0 => Ok(page),
        _ => Err(io::Error::last_os_error()),
    }
}

fn lock(file: &File, at: usize, count: usize) -> io::Result<Option<Locked<'_>>> {
    match command(file, libc::F_OFD_SETLK, libc::F_WRLCK, at, count) {
        Ok(_) => Ok(Some(Locked { file, at, count })),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn command(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    at: usize,
    count: usize,
) -> io::Result<libc::flock> {
    // SAFETY: a `flock` is numbers, of which all zeros are a value.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    (range.l_start, range.l_len) = (at as libc::off_t, count as libc::off_t);
    // SAFETY: the descriptor is open, and the commands take a `flock`, which lives until they return. None of them waits.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut range) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(range),
    }
}

/// The file in memory, unmapped when this is dropped.
#[derive(Debug)]
pub(crate) struct JointPage {
    start: NonNull<AtomicU64>,
    words: usize,
    made_in: MadeIn,
    is_kept: bool,
}

// SAFETY: it owns the mapping, which belongs to no thread.
unsafe impl Send for JointPage {}
// SAFETY: it lends out atomics.
unsafe impl Sync for JointPage {}

impl JointPage {
    /// Keeps it mapped until the process ends, and with it the locks of this process.
    pub(crate) fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Returns `true` in a child of the process that mapped it, which has no such memory.
    pub(crate) fn is_of_parent(&self) -> bool {
        self.made_in.is_parent()
    }
}

impl AsRef<[AtomicU64]> for JointPage {
    /// # Panics
    ///
    /// In a child of the process that mapped it.
    fn as_ref(&self) -> &[AtomicU64] {
        assert!(!self.is_of_parent(), "a child of a fork has no part of what its parent shares");
        // SAFETY: the pages are mapped until this is dropped, which the slice borrows, for reading and writing, and at a multiple
        // of their size. Any bits are an `AtomicU64`. The other processes access them as atomics, too. One that writes to the file
        // by other means may change the values at any time, which are checked wherever they are used; one that cuts the file off
        // ends this process by a signal.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for JointPage {
    fn drop(&mut self) {
        if !self.is_of_parent() && !self.is_kept {
            let bytes = self.words * size_of::<u64>();
            // SAFETY: the pages are this value's, which mapped them, and nothing borrows it any more.
            let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), bytes) };
        }
    }
}
