//! How a process joins those that share a limit.
//!
//! Who comes has the lock of the door: no two processes make the table, promise a guarantee or choose a place at the same time.
//! Who dies there lets go of it, and what it has begun is made anew: a table counts from its magic number on, which comes last,
//! and a place from its lock on.

use std::io;
use std::process;
use std::time::{Duration, Instant};

use super::membership::members;
use super::table::{Found, MEMBERS, SharedRefusal, Table, WORDS};
use super::{Membership, SharedConfig};
use crate::error::{Error, LimitName, OutOfMemory};
use crate::joint::{self, JointFile, JointPage, Locked, Opening, Others};
use crate::size::Size;
use crate::sync::nap;

/// The lock of those who come, behind those of the members.
const DOOR: usize = MEMBERS;

/// The longest wait for somebody who comes at the same time, and for a process of the same name, which may be about to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// What somebody who comes has found.
enum Outcome {
    In(Membership),
    Busy(String),
}

/// Joins.
pub(super) fn join(config: &SharedConfig) -> Result<Membership, Error> {
    config.check()?;
    let begun = Instant::now();
    loop {
        match Joining::begin(config)? {
            Outcome::In(membership) => return Ok(membership),
            Outcome::Busy(why) if begun.elapsed() > PATIENCE => {
                return Err(Error::in_use_that(format!("the shared limit `{}`: {why}", config.name)));
            }
            Outcome::Busy(_) => nap(),
        }
    }
}

/// The file of a limit.
fn open(config: &SharedConfig) -> Result<JointFile, Error> {
    let path = joint::path_of(&config.directory, &config.name);
    let name = path.display().to_string();
    JointFile::open(path, Opening::Either).map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => Error::unsupported(
            "a limit that processes share",
            "the locks that tell which of them live are Linux's",
            "give each process a limit of its own, such as `Limiting`",
        ),
        _ => Error::unwritable(name, &error),
    })
}

/// A lock that was asked for.
pub(super) fn lock_of(answer: io::Result<Option<Locked<'_>>>) -> Result<Option<Locked<'_>>, Error> {
    answer.map_err(|error| Error::unwritable("the lock of a shared limit", &error))
}

struct Joining<'c> {
    config: &'c SharedConfig,
    file: &'c JointFile,
    table: Table<JointPage>,
}

impl Joining<'_> {
    fn begin(config: &SharedConfig) -> Result<Outcome, Error> {
        let file = open(config)?;
        let Some(door) = lock_of(file.lock(DOOR))? else {
            return Ok(Outcome::Busy("another process is joining it, and does not come to an end".into()));
        };
        let page = file.map(WORDS).map_err(|error| Error::unwritable(file.path().display(), &error))?;
        let page = page.ok_or_else(|| malformed(&file, "its size is not that of a shared limit"))?;
        let joining = Joining { config, file: &file, table: Table::new(page, config.limit_bytes) };
        joining.make_if_new()?;
        if !joining.table.picture().is_sound(config.limit_bytes) {
            return Err(malformed(&file, "more is taken and guaranteed there than its limit"));
        }
        joining.table.clear_dead(MEMBERS, |at| lock_of(file.lock(at)));
        for (member, bytes) in &config.guarantees {
            joining.guarantee(member, *bytes)?;
        }
        let Some((at, place)) = joining.find_place()? else {
            return Ok(Outcome::Busy(format!("another process is its member `{}`", config.member)));
        };
        // Its process is dead, if there was one.
        joining.table.clear(at);
        let owner = joining.table.enter(at, process::id(), &config.member);
        place.keep();
        let table = joining.table;
        drop(door);
        let others = file.leave_to_mapping();
        require_kept(&others, at)?;
        Ok(Outcome::In(Membership::new(table, at, owner, config, others)))
    }

    /// Makes the table, if there is none, or if it has another limit and nobody has a part of it.
    fn make_if_new(&self) -> Result<(), Error> {
        let found = self.table.found();
        match found {
            Found::Limit(limit) if limit == self.table.limit() => return Ok(()),
            Found::Limit(_) | Found::Nothing => {}
            Found::Version(version) => {
                let why = format!("another version of this library has made it, with layout {version}");
                return Err(malformed(self.file, &why));
            }
            Found::Other => return Err(malformed(self.file, "it is no shared limit")),
        }
        let mut places = Vec::new();
        for at in 0..MEMBERS {
            match (lock_of(self.file.lock(at))?, found) {
                (Some(place), _) => places.push(place),
                (None, Found::Limit(limit)) => {
                    let (has, wants) = (Size(limit as usize), Size(self.table.limit() as usize));
                    let name = &self.config.name;
                    return Err(Error::invalid_argument_that(format!(
                        "the shared limit `{name}` is {has:#} while a process has a part of it, and not {wants:#}"
                    )));
                }
                (None, _) => {
                    return Err(malformed(self.file, "it was overwritten while processes had parts of it"));
                }
            }
        }
        self.table.make();
        Ok(())
    }

    /// Guarantees `bytes` to a member of that name, whether or not it runs.
    fn guarantee(&self, member: &str, bytes: u64) -> Result<(), Error> {
        let known = self.kept_for(member);
        let before = known.map_or(0, |at| self.table.picture().parts[at].guaranteed);
        if before == bytes {
            return Ok(());
        }
        let Some(at) = known else {
            let (at, _place) = self.free_place()?;
            self.table.set_name(at, member);
            return self.promise(at, member, bytes).inspect_err(|_| self.table.forget(at));
        };
        let Some(_place) = lock_of(self.file.lock(at))? else {
            let (has, wants, name) = (Size(before as usize), Size(bytes as usize), &self.config.name);
            return Err(Error::invalid_argument_that(format!(
                "the member `{member}` of the shared limit `{name}` runs with a guarantee of {has:#}, and not {wants:#}"
            )));
        };
        self.table.clear(at);
        if bytes == 0 {
            self.table.forget(at);
            return Ok(());
        }
        self.promise(at, member, bytes)
    }

    fn promise(&self, at: usize, member: &str, bytes: u64) -> Result<(), Error> {
        loop {
            let (used, others) = match self.table.guarantee(at, 0, bytes) {
                Ok(()) => return Ok(()),
                Err(SharedRefusal::NoRoom { used }) => (used, self.table.guaranteed_beside(at)),
                Err(_) => return Err(malformed(self.file, "its values change while it is joined")),
            };
            let (limit, name) = (self.table.limit(), &self.config.name);
            if u128::from(bytes) + others > u128::from(limit) {
                let (wants, limit, others) =
                    (Size(bytes as usize), Size(limit as usize), Size(others as usize));
                return Err(Error::invalid_argument_that(format!(
                    "a guarantee of {wants:#} for the member `{member}`: the shared limit `{name}` is {limit:#}, of which {others:#} are \
                     guaranteed to others"
                )));
            }
            if !self.table.clear_dead(MEMBERS, |at| lock_of(self.file.lock(at))) {
                let mut report = OutOfMemory::new("Allowance", bytes as usize);
                report.name = Some(LimitName::from(name.as_str()));
                (report.live_bytes, report.reserved_bytes) = (used as usize, used as usize);
                report.maximum_bytes = Some(limit as usize);
                report.members = members(&self.table, MEMBERS);
                return Err(report.refused_to_a_member().into());
            }
        }
    }

    /// The place that is kept for a member of that name.
    fn kept_for(&self, member: &str) -> Option<usize> {
        let parts = self.table.picture().parts;
        (0..MEMBERS).find(|&at| parts[at].guaranteed > 0 && self.table.name(at) == member)
    }

    /// A place that is kept for nobody, and its lock.
    fn free_place(&self) -> Result<(usize, Locked<'_>), Error> {
        let parts = self.table.picture().parts;
        for at in (0..MEMBERS).filter(|&at| parts[at].guaranteed == 0) {
            if let Some(place) = lock_of(self.file.lock(at))? {
                self.table.clear(at);
                return Ok((at, place));
            }
        }
        let name = &self.config.name;
        Err(Error::in_use_that(format!("the shared limit `{name}` has {MEMBERS} members, which is the most")))
    }

    /// The place for this process, and its lock; `None` if it is that of a name, and another process has it.
    fn find_place(&self) -> Result<Option<(usize, Locked<'_>)>, Error> {
        match self.kept_for(&self.config.member) {
            Some(at) => Ok(lock_of(self.file.lock(at))?.map(|place| (at, place))),
            None => self.free_place().map(Some),
        }
    }
}

/// Asks whether the lock of place `at` is kept by the mapping alone: everything rests on that.
fn require_kept(others: &Others, at: usize) -> Result<(), Error> {
    if lock_of(others.lock(at))?.is_none() {
        return Ok(());
    }
    Err(Error::unsupported(
        "a limit that processes share",
        "this system lets go of the locks of a file that is closed and still mapped",
        "give each process a limit of its own, such as `Limiting`",
    ))
}

fn malformed(file: &JointFile, why: &str) -> Error {
    let path = file.path().display();
    Error::malformed_file(format!("{path}: {why}; remove it when no process shares the limit any more"))
}
