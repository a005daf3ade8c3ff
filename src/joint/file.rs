//! `JointFile`: a file whose memory processes share, and whose bytes they lock.
//!
//! # How a process is known to live
//!
//! A process has the lock of one byte of the file. The lock belongs to what was opened, and the mapping of the file alone keeps
//! that open: the descriptor is closed. So the kernel lets go of the lock when the mapping goes: when its owner is dropped, and
//! however the process ends. A child of a fork does not get the mapping, so it does not keep its parent's place; nor does a number
//! of a process that is used again, or that counts in another container, look like a life.

#![expect(unsafe_code, reason = "makes room in a file, and locks its bytes")]

use core::ops::Range;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub(crate) use super::no_fork::NoFork;
pub(crate) use super::page::JointPage;
use super::process::OtherProcess;
pub(crate) use super::process::is_dying;
use super::{Life, Opening, kin, process, room_of};

/// Two openings of one file. A lock that one of them has, the other one does not get.
#[derive(Debug)]
pub(crate) struct JointFile {
    /// Has the locks of this process, through its mapping, when it is closed.
    mine: File,
    /// Looks after the locks of others.
    others: Others,
    path: PathBuf,
    /// Ends behind the opening above: a child of a fork would keep that, and its locks.
    _no_fork: NoFork,
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

/// The directory of this user's files, made if it is not there, and seen to be this user's alone.
pub(crate) fn room_in(directory: &Path) -> io::Result<PathBuf> {
    let room = room_of(directory);
    match DirBuilder::new().mode(0o700).create(&room) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&room)?;
    require_own(&found, found.is_dir(), "directory")?;
    Ok(room)
}

/// This process, as others are to know it.
pub(crate) fn life_in(room: &Path) -> io::Result<Life> {
    let (process, started) = process::this_process()?;
    Ok(Life { process, started, kin: kin::mark_in(room)? })
}

/// Whether a child of a fork of one of these, which have died, may live: the driver keeps for it what they had.
pub(crate) fn kin_is_left(room: &Path, dead: &[Life]) -> bool {
    kin::is_left(room, dead)
}

/// Whether a process of this user that started then or later has begun to end, and has not come to it.
pub(crate) fn is_ending_since(started: u64) -> bool {
    process::others_since(started).map_or(true, |others| others.iter().any(OtherProcess::is_ending))
}

/// Refuses what somebody else could have made, or could change.
fn require_own(found: &Metadata, is_one: bool, kind: &str) -> io::Result<()> {
    let user = user();
    let wrong = if !is_one {
        format!("it is no {kind}")
    } else if found.uid() != user {
        format!("it belongs to user {}, and this process is user {user}", found.uid())
    } else if found.mode() & 0o077 != 0 {
        format!("other users may use it: its mode is {:o}", found.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(io::Error::other(wrong))
}

/// Opens the file for this user alone.
pub(super) fn open_one(path: &Path, opening: Opening) -> io::Result<(File, Metadata)> {
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
    let found = file.metadata()?;
    require_own(&found, found.is_file(), "file")?;
    Ok((file, found))
}

fn open_twice(path: &Path, opening: Opening) -> io::Result<(File, File)> {
    // Between two openings somebody may remove the file; that somebody does so again and again is an error as good as any.
    for _ in 0..8 {
        let (mine, first) = open_one(path, opening)?;
        let again = if opening == Opening::Either { opening } else { Opening::Existing };
        let (others, second) = open_one(path, again)?;
        if (first.dev(), first.ino()) == (second.dev(), second.ino()) && second.nlink() > 0 {
            return Ok((mine, others));
        }
    }
    Err(io::Error::other("it is removed while it is opened"))
}

impl JointFile {
    /// Opens the file, for this user alone.
    pub(crate) fn open(path: PathBuf, opening: Opening) -> io::Result<Self> {
        let no_fork = NoFork::begin();
        let opened = open_twice(&path, opening);
        if opening == Opening::New
            && opened.as_ref().is_err_and(|error| error.kind() != ErrorKind::AlreadyExists)
        {
            // What is there by then was made here.
            let _ = fs::remove_file(&path);
        }
        let (mine, others) = opened?;
        Ok(Self { mine, others: Others(others), path, _no_fork: no_fork })
    }

    /// The opening that looks after the locks of others.
    pub(crate) fn others(&self) -> &Others {
        &self.others
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Locks byte `at`; `None` if another process has it.
    pub(crate) fn lock(&self, at: usize) -> io::Result<Option<Locked<'_>>> {
        lock(&self.mine, at, 1)
    }

    /// Maps the file, which gets its size if it has none yet; nobody else does so now. `None` if it has another size.
    pub(crate) fn map(&self, words: usize) -> io::Result<Option<JointPage>> {
        let bytes = words * size_of::<u64>();
        if self.mine.metadata()?.len() == 0 {
            make_room(&self.mine, bytes)?;
        }
        self.page(words)
    }

    /// Maps the file as it is; `None` if it has another size.
    pub(crate) fn page(&self, words: usize) -> io::Result<Option<JointPage>> {
        if self.mine.metadata()?.len() != (words * size_of::<u64>()) as u64 {
            return Ok(None);
        }
        JointPage::map(&self.mine, words).map(Some)
    }

    /// Closes the opening that has the locks of this process: the mapping keeps it from now on.
    pub(crate) fn leave_to_mapping(self) -> Others {
        self.others
    }
}

impl Others {
    /// Opens a file that is there.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        open_one(path, Opening::Existing).map(|(file, _)| Self(file))
    }

    /// What tells this file from all others, and how many names it has.
    pub(crate) fn identity(&self) -> io::Result<([u64; 2], u64)> {
        let found = self.0.metadata()?;
        Ok(([found.dev(), found.ino()], found.nlink()))
    }

    /// Locks byte `at`; `None` if a process that lives has it.
    pub(crate) fn lock(&self, at: usize) -> io::Result<Option<Locked<'_>>> {
        lock(&self.0, at, 1)
    }

    /// Locks `count` bytes; `None` if a process that lives has one of them.
    pub(crate) fn lock_all(&self, at: usize, count: usize) -> io::Result<Option<Locked<'_>>> {
        lock(&self.0, at, count)
    }

    /// Whether a process has byte `at`.
    pub(crate) fn is_locked(&self, at: usize) -> io::Result<bool> {
        Ok(self.a_lock_in(&(at..at + 1))?.is_some())
    }

    /// The locks that processes have of some bytes, in no order.
    pub(crate) fn locks_in(&self, bytes: Range<usize>) -> io::Result<Vec<Range<usize>>> {
        let (mut locks, mut unknown) = (Vec::new(), vec![bytes]);
        while let Some(bytes) = unknown.pop() {
            if let Some(lock) = self.a_lock_in(&bytes)? {
                let beside = [bytes.start..lock.start, lock.end..bytes.end];
                // No bytes are all bytes to the system.
                unknown.extend(beside.into_iter().filter(|bytes| !bytes.is_empty()));
                locks.push(lock);
            }
        }
        Ok(locks)
    }

    /// One of the locks that processes have of some bytes, whichever the system names.
    fn a_lock_in(&self, bytes: &Range<usize>) -> io::Result<Option<Range<usize>>> {
        let found = command(&self.0, libc::F_OFD_GETLK, libc::F_WRLCK, bytes.start, bytes.len())?;
        if found.l_type == libc::F_UNLCK as libc::c_short {
            return Ok(None);
        }
        // A length of 0 is to the end of all files.
        let len = if found.l_len == 0 { usize::MAX } else { found.l_len as usize };
        let start = found.l_start as usize;
        Ok(Some(start.max(bytes.start)..start.saturating_add(len).min(bytes.end)))
    }

    /// Maps the file as well; `None` if it has another size.
    pub(crate) fn page(&self, words: usize) -> io::Result<Option<JointPage>> {
        if self.0.metadata()?.len() != (words * size_of::<u64>()) as u64 {
            return Ok(None);
        }
        JointPage::map(&self.0, words).map(Some)
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

/// Gives an empty file its bytes. The blocks are there from now on: else a write to the mapping could find the file system full, and
/// end the process.
fn make_room(file: &File, bytes: usize) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open, and the numbers are those of a small file.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, bytes as libc::off_t) } {
            0 => return Ok(()),
            // A file system in memory looks for signals before it begins.
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

pub(super) fn lock(file: &File, at: usize, count: usize) -> io::Result<Option<Locked<'_>>> {
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
