//! How a process joins those that share a limit.
//!
//! Who comes has the lock of the door: no two processes make the table, promise a guarantee or choose a place at the same time.
//! Who dies there lets go of it, and what it has begun is made anew: a table counts from its magic number on, which comes last,
//! and a place from its lock on.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::membership::{is_held, members};
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

/// Why somebody who comes does not get in.
enum Stop {
    /// Not now: somebody is at the door, or about to end.
    Busy(Error),
    Refused(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Joins.
pub(super) fn join(config: &SharedConfig) -> Result<Membership, Error> {
    config.check()?;
    let begun = Instant::now();
    loop {
        match Joining::begin(config) {
            Ok(membership) => return Ok(membership),
            Err(Stop::Refused(error)) => return Err(error),
            Err(Stop::Busy(error)) if begun.elapsed() > PATIENCE => return Err(error),
            Err(Stop::Busy(_)) => nap(),
        }
    }
}

/// The directory of this user's files, and the file of a limit.
fn open(config: &SharedConfig) -> Result<(PathBuf, JointFile), Error> {
    let opened = joint::room_in(&config.directory).and_then(|room| {
        let file = JointFile::open(room.join(&config.name), Opening::Either)?;
        Ok((room, file))
    });
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::Unsupported => Error::unsupported(
            "a limit that processes share",
            "the locks that tell which of them live are Linux's",
            "give each process a limit of its own, such as `Limiting`",
        ),
        _ => Error::unwritable(joint::room_of(&config.directory).join(&config.name).display(), &error),
    })
}

/// A lock that was asked for.
fn lock_of(answer: io::Result<Option<Locked<'_>>>) -> Result<Option<Locked<'_>>, Error> {
    answer.map_err(|error| Error::unwritable("the lock of a shared limit", &error))
}

struct Joining<'c> {
    config: &'c SharedConfig,
    room: PathBuf,
    file: &'c JointFile,
    table: Table<JointPage>,
}

impl Joining<'_> {
    fn begin(config: &SharedConfig) -> Result<Membership, Stop> {
        let (room, file) = open(config)?;
        let Some(door) = lock_of(file.lock(DOOR))? else {
            return Err(busy(
                config,
                "another process is joining it, and does not come to an end; it may be stopped",
            ));
        };
        let page = file.map(WORDS).map_err(|error| Error::unwritable(file.path().display(), &error))?;
        let page = page.ok_or_else(|| malformed(&file, "its size is not that of a shared limit"))?;
        let joining = Joining { config, room, file: &file, table: Table::new(page, config.limit_bytes) };
        joining.make_if_new()?;
        if !joining.table.picture().is_sound(config.limit_bytes) {
            return Err(malformed(&file, "more is taken and guaranteed there than its limit").into());
        }
        joining.clear_dead();
        for (member, bytes) in &config.guarantees {
            joining.guarantee(member, *bytes)?;
        }
        let (at, place) = joining.find_place()?;
        let life = joint::life_in(&joining.room)
            .map_err(|error| Error::unwritable(file.path().display(), &error))?;
        let owner = joining.table.enter(at, life, &config.member);
        place.keep();
        let (room, table) = (joining.room, joining.table);
        drop(door);
        let others = file.leave_to_mapping();
        require_kept(&others, at)?;
        Ok(Membership::new(table, at, owner, config, others, room))
    }

    fn is_held(&self, at: usize) -> bool {
        is_held(&self.table, self.file.others(), &self.room, at)
    }

    fn clear_dead(&self) {
        self.table.clear_dead(MEMBERS, |at| self.is_held(at));
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
            let has_limit = matches!(found, Found::Limit(_));
            // Before its lock is had, with which it would seem to live.
            let is_left = has_limit && self.table.owner(at) != 0 && self.is_held(at);
            let place = if is_left { None } else { lock_of(self.file.lock(at))? };
            match (place, found) {
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
    fn guarantee(&self, member: &str, bytes: u64) -> Result<(), Stop> {
        let known = self.kept_for(member);
        let before = known.map_or(0, |at| self.table.picture().parts[at].guaranteed);
        if before == bytes {
            return Ok(());
        }
        let Some(at) = known else {
            let (at, _place) = self.free_place()?;
            self.table.set_name(at, member);
            return Ok(self.promise(at, member, bytes).inspect_err(|_| self.table.forget(at))?);
        };
        let Some(_place) = self.place_of_nobody(at)? else {
            let (has, wants, name) = (Size(before as usize), Size(bytes as usize), &self.config.name);
            return Err(Stop::Busy(Error::invalid_argument_that(format!(
                "the member `{member}` of the shared limit `{name}` runs with a guarantee of {has:#}, and not {wants:#}{}",
                self.of_kin(at)
            ))));
        };
        if bytes == 0 {
            self.table.forget(at);
            return Ok(());
        }
        Ok(self.promise(at, member, bytes)?)
    }

    fn promise(&self, at: usize, member: &str, bytes: u64) -> Result<(), Error> {
        let refusal = self.table.guarantee(at, 0, bytes).or_else(|_| {
            self.clear_dead();
            self.table.guarantee(at, 0, bytes)
        });
        let used = match refusal {
            Ok(()) => return Ok(()),
            Err(SharedRefusal::NoRoom { used, .. }) => used,
            Err(_) => return Err(malformed(self.file, "its values change while it is joined")),
        };
        let others = self.table.guaranteed_beside(at);
        let (limit, name) = (self.table.limit(), &self.config.name);
        if u128::from(bytes) + others > u128::from(limit) {
            let (wants, limit, others) = (Size(bytes as usize), Size(limit as usize), Size(others as usize));
            return Err(Error::invalid_argument_that(format!(
                "a guarantee of {wants:#} for the member `{member}`: the shared limit `{name}` is {limit:#}, of which {others:#} are \
                 guaranteed to others"
            )));
        }
        let mut report = OutOfMemory::new("Allowance", bytes as usize);
        report.name = Some(LimitName::from(name.as_str()));
        (report.live_bytes, report.reserved_bytes) = (used as usize, used as usize);
        report.maximum_bytes = Some(limit as usize);
        report.members = members(&self.table, MEMBERS);
        Err(report.refused_to_a_member().into())
    }

    /// The lock of a place that belongs to nobody, whether or not it is kept for a name.
    fn place_of_nobody(&self, at: usize) -> Result<Option<Locked<'_>>, Error> {
        let is_somebodys = |at| self.table.owner(at) != 0;
        // Also behind the lock: its owner may have died just now, and then it is for who clears up.
        if is_somebodys(at) {
            return Ok(None);
        }
        Ok(lock_of(self.file.lock(at))?.filter(|_| !is_somebodys(at)))
    }

    /// Why a place is not free, if its process has ended.
    fn of_kin(&self, at: usize) -> String {
        match self.file.others().is_locked(at) {
            Ok(false) => format!(
                ": process {} has ended, and a process that it forked keeps its memory",
                self.table.life(at).process
            ),
            _ => String::new(),
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
            if let Some(place) = self.place_of_nobody(at)? {
                return Ok((at, place));
            }
        }
        let name = &self.config.name;
        Err(Error::in_use_that(format!("the shared limit `{name}` has {MEMBERS} members, which is the most")))
    }

    /// The place for this process, and its lock.
    fn find_place(&self) -> Result<(usize, Locked<'_>), Stop> {
        let name = &self.config.member;
        let Some(at) = self.kept_for(name) else { return Ok(self.free_place()?) };
        match self.place_of_nobody(at)? {
            Some(place) => Ok((at, place)),
            None => {
                Err(busy(self.config, &format!("another process is its member `{name}`{}", self.of_kin(at))))
            }
        }
    }
}

fn busy(config: &SharedConfig, why: &str) -> Stop {
    Stop::Busy(Error::in_use_that(format!("the shared limit `{}`: {why}", config.name)))
}

/// Asks whether the lock of place `at` is kept by the mapping alone: everything rests on that.
fn require_kept(others: &Others, at: usize) -> Result<(), Error> {
    if others.is_locked(at).map_err(|error| Error::unwritable("the lock of a shared limit", &error))? {
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
