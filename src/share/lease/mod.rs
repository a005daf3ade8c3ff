//! Who still has what a process shares?
//!
//! An exporter keeps a file for each thing that it shares: its [`Lease`]. The file is in memory, and for one user alone. Its byte 0
//! is locked while the exporter lives. Each importer has a [`Hold`]: one of the other bytes is locked while it lives, and the *seat*
//! of that byte says which process it is. All locks go with their processes, however these end.
//!
//! # Why no two sides miss each other
//!
//! Who joins locks its byte first, and then looks whether the lease has ended. Who ends the lease locks all bytes of importers
//! first, and says that it has ended while it has them. So either the importer's lock keeps the lease from ending, or the importer
//! sees the end.
//!
//! # What a crash leaves
//!
//! The kernel lets go of the locks of a process before it takes the devices from it: for a moment after, kernels that it had queued
//! may still run. A seat that was not given up names its process, and the lease does not end while that process is still there;
//! nobody else gets the seat until then.
//!
//! A child of a fork of that process has copies of its descriptors, with which the kernel keeps the devices as they were: what was
//! queued runs to its end. The seat has the mark of the process's kin, which is all that it has forked, and the lease does not end
//! while one of them lives, either.
//! Where processes have numbers of their own, as in containers, that cannot be asked, and is the users' to know.

mod hold;
mod table;

pub use hold::Hold;
pub(super) use table::MESSAGE_BYTES;

use std::fs;
use std::io::{self, Read};
use std::path::{self, Path, PathBuf};

use crate::driver::{Call, Code, DriverError};
use crate::error::Error;
use crate::joint::{self, JointFile, JointPage, Life, NoFork, Opening, Others};
use table::{EXPORTER, FIRST_SEAT, SEATS, State, Table, WORDS};

/// Of the files of leases, before their names.
const KIND: &str = "lease-";

/// Why nobody can join.
pub(super) const OVER: &str =
    "its exporter has ended, or has taken it back, or is another user's or another machine's";

/// The name of a lease: random, so that none is ever used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseName(pub [u8; 16]);

impl LeaseName {
    fn random() -> Result<Self, Error> {
        let mut name = [0; 16];
        let read = fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut name));
        read.map_err(|error| Error::unwritable("the name of a lease", &error))?;
        Ok(Self(name))
    }

    fn path(self, room: &Path) -> PathBuf {
        room.join(format!("{KIND}{self:?}"))
    }
}

impl core::fmt::Debug for LeaseName {
    /// As in the name of its file.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The exporter's side: see the [module](self).
///
/// Dropping it ends it for those who come: those who are there stay.
#[derive(Debug)]
pub struct Lease {
    name: LeaseName,
    /// The directory of this user's files.
    room: PathBuf,
    path: PathBuf,
    identity: [u64; 2],
    /// Has the lock of byte 0.
    table: Table<JointPage>,
    is_over: bool,
}

impl Lease {
    /// Begins a lease of what `message` describes, which is made for the lease's name.
    ///
    /// # Errors
    ///
    /// `Unsupported` where files have no such locks; `Unwritable` if the directory takes no file; `InvalidArgument` for a message that
    /// is longer than the place that the file has for it.
    pub fn begin(directory: &Path, message: impl Fn(LeaseName) -> Vec<u8>) -> Result<Self, Error> {
        let directory = absolute(directory)?;
        let room = joint::room_in(&directory).map_err(|error| failed(&directory, &error))?;
        // Whoever clears up may meet the file before it is locked; that this happens again and again is an error as good as any.
        for _ in 0..8 {
            let name = LeaseName::random()?;
            let message = message(name);
            if message.len() > MESSAGE_BYTES {
                return Err(Error::invalid_argument_that(format!(
                    "a message of {} bytes for the file of a lease, which has room for {MESSAGE_BYTES}",
                    message.len()
                )));
            }
            if let Some(lease) = Self::begin_as(name, &room, &message)? {
                return Ok(lease);
            }
        }
        Err(Error::unwritable(
            directory.display(),
            &io::Error::other("its files are removed while they are made"),
        ))
    }

    fn begin_as(name: LeaseName, room: &Path, message: &[u8]) -> Result<Option<Self>, Error> {
        let path = name.path(room);
        let failed = |error: io::Error| failed(&path, &error);
        let file = match JointFile::open(path.clone(), Opening::New) {
            // It was removed between two openings.
            Err(error) if error.kind() == io::ErrorKind::NotFound && room.is_dir() => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        let begun = Self::fill(&file, message).map_err(failed);
        let remove = || drop(fs::remove_file(&path));
        let Some(table) = begun.inspect_err(|_| remove())? else {
            remove();
            return Ok(None);
        };
        let others = file.leave_to_mapping();
        let kept = require_kept(&others, EXPORTER).and_then(|()| others.identity().map_err(failed));
        let (identity, names) = kept.inspect_err(|_| remove())?;
        if names == 0 {
            return Ok(None);
        }
        Ok(Some(Self { name, room: room.to_owned(), path: path.clone(), identity, table, is_over: false }))
    }

    fn fill(file: &JointFile, message: &[u8]) -> io::Result<Option<Table<JointPage>>> {
        let Some(lock) = file.lock(EXPORTER)? else { return Ok(None) };
        let Some(page) = file.map(WORDS)? else { return Ok(None) };
        let table = Table::new(page);
        table.make(message);
        lock.keep();
        Ok(Some(table))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> LeaseName {
        self.name
    }

    fn others(&self) -> Result<Others, Error> {
        let failed = |error: io::Error| failed(&self.path, &error);
        let others = match Others::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(self.lost()),
            opened => opened.map_err(failed)?,
        };
        let (identity, _) = others.identity().map_err(failed)?;
        if identity == self.identity { Ok(others) } else { Err(self.lost()) }
    }

    fn lost(&self) -> Error {
        Error::in_use_that(format!(
            "somebody has removed {}: nobody knows which processes still have what it stood for",
            self.path.display()
        ))
    }

    /// The number of processes that have a hold, or have died and left children for which the driver runs what they had queued. A driver call is none of it; a
    /// few questions to the system are.
    ///
    /// # Errors
    ///
    /// `InUse` if somebody has removed the file, so that nobody knows; `Unwritable`; `ShutDown` in a child of a fork.
    pub fn holders(&self) -> Result<usize, Error> {
        self.require_same_process()?;
        if self.is_over {
            return Ok(0);
        }
        let locks = self.others()?.locks_in(FIRST_SEAT..FIRST_SEAT + SEATS);
        let locks = locks.map_err(|error| failed(&self.path, &error))?;
        let is_locked = |seat: &usize| locks.iter().any(|seats| seats.contains(&(FIRST_SEAT + seat)));
        let dead = (0..SEATS).filter(|seat| !is_locked(seat)).filter_map(|seat| self.table.sitter(seat));
        let left = dead.filter(|life| what_is_left_of(&self.room, &[*life]) == Left::Kin).count();
        Ok(locks.iter().map(|seats| seats.len()).sum::<usize>() + left)
    }

    /// Ends the lease if nobody has a hold, and returns whether it has ended. Nobody can join it then.
    ///
    /// # Errors
    ///
    /// As [`holders`](Self::holders): it has not ended, and does not where nobody knows.
    pub fn try_end(&mut self) -> Result<bool, Error> {
        self.require_same_process()?;
        if self.is_over {
            return Ok(true);
        }
        // A child of a fork that came meanwhile would keep the lock.
        let _no_fork = NoFork::begin();
        let others = self.others()?;
        let locked = others.lock_all(FIRST_SEAT, SEATS).map_err(|error| failed(&self.path, &error))?;
        if locked.is_none() {
            return Ok(false);
        }
        let dead: Vec<Life> = (0..SEATS).filter_map(|seat| self.table.sitter(seat)).collect();
        if what_is_left_of(&self.room, &dead) != Left::Nothing {
            return Ok(false);
        }
        self.end();
        Ok(true)
    }

    fn require_same_process(&self) -> Result<(), Error> {
        if self.is_forked_child() {
            return Err(DriverError::new(Call::Init, Code::NOT_INITIALIZED).into());
        }
        Ok(())
    }

    fn end(&mut self) {
        self.is_over = true;
        self.table.set_state(State::Ended);
        let _ = fs::remove_file(&self.path);
    }

    /// Returns `true` in a child of the process that began it, which has no part of it.
    #[must_use]
    pub fn is_forked_child(&self) -> bool {
        self.table.words().is_forked_child()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_over && !self.is_forked_child() {
            self.end();
        }
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    if error.kind() == io::ErrorKind::Unsupported {
        return no_locks("the locks that tell which processes live are Linux's");
    }
    Error::unwritable(path.display(), error)
}

fn no_locks(why: &'static str) -> Error {
    Error::unsupported("memory that processes share", why, "copy it through the host")
}

/// The directory from the root, so that the process may go elsewhere.
fn absolute(directory: &Path) -> Result<PathBuf, Error> {
    path::absolute(directory).map_err(|error| failed(directory, &error))
}

/// What is left of processes that left their seats without giving them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// One of them is about to end, or somebody that may be a child of one.
    Ending,
    /// Children of one of them, which may live for long.
    Kin,
}

/// The caller has their locks, or knows that nobody has.
fn what_is_left_of(room: &Path, dead: &[Life]) -> Left {
    if dead.iter().any(|life| joint::is_dying(life.process, life.started)) {
        return Left::Ending;
    }
    if joint::kin_is_left(room, dead) {
        return Left::Kin;
    }
    // A child that has let go of its lock has its descriptors for a moment longer. It is not older than its parent.
    let of_others = dead.iter().filter(|life| life.process != std::process::id());
    match of_others.map(|life| life.started).min() {
        Some(since) if joint::is_ending_since(since) => Left::Ending,
        _ => Left::Nothing,
    }
}

/// Asks whether the lock of a byte is kept by the mapping alone: everything rests on that.
fn require_kept(others: &Others, at: usize) -> Result<(), Error> {
    match others.is_locked(at) {
        Ok(true) => Ok(()),
        _ => Err(no_locks("this system lets go of the locks of a file that is closed and still mapped")),
    }
}

/// Removes the files of exporters that have died. Returns how many.
#[allow(clippy::must_use_candidate, reason = "it is called for what it removes")]
pub fn sweep(directory: &Path) -> usize {
    let Ok(entries) = fs::read_dir(joint::room_of(directory)) else { return 0 };
    let of_leases = entries.flatten().filter(|entry| {
        entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.strip_prefix(KIND).is_some_and(|name| name.len() == 32))
    });
    of_leases.filter(|entry| clear_up(&entry.path())).count()
}

/// Removes the file of an exporter, if that is dead.
fn clear_up(path: &Path) -> bool {
    // A child of a fork that came meanwhile would keep the lock.
    let _no_fork = NoFork::begin();
    let Ok(others) = Others::open(path) else { return false };
    // A file with a second name is something else's as well.
    if !others.identity().is_ok_and(|(_, names)| names == 1) {
        return false;
    }
    // An exporter that is about to lock it does not get the lock, and takes another name.
    let Ok(Some(_lock)) = others.lock(EXPORTER) else { return false };
    // Who died before the table was made has left zeros, which nobody can join.
    if let Ok(Some(page)) = others.page(WORDS) {
        let table = Table::new(page);
        if table.is_any() {
            table.set_state(State::Ended);
        }
    }
    fs::remove_file(path).is_ok()
}
