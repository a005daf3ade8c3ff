//! `Hold`: the importer's side of a lease.

use std::io;
use std::path::{Path, PathBuf};

use super::table::{EXPORTER, FIRST_SEAT, SEATS, State, Table, WORDS};
use super::{LeaseName, Left, OVER, absolute, clear_up, failed, require_kept, what_is_left_of};
use crate::error::Error;
use crate::joint::{self, JointFile, JointPage, Locked, Opening, Others};
use crate::sync::nap;

/// An importer's part of a [`Lease`](super::Lease), which does not end while it is there.
///
/// One that is dropped, and was not [given up](Self::end), lasts as long as the process: what it stands for may be in use.
#[derive(Debug)]
pub struct Hold {
    /// Has the lock of the seat.
    table: Table<JointPage>,
    seat: usize,
    path: PathBuf,
    is_given_up: bool,
}

impl Hold {
    /// Joins the lease with this name, if it is one of what `message` describes.
    ///
    /// # Errors
    ///
    /// `Stale` if the lease has ended, or its exporter; `Malformed` if it is one of something else; `InUse` if as many processes
    /// have a hold as there can be; `Unwritable`.
    pub fn join(directory: &Path, name: LeaseName, message: &[u8]) -> Result<Self, Error> {
        let room = &joint::room_of(&absolute(directory)?);
        let path = name.path(room);
        let failed = |error: io::Error| failed(&path, &error);
        let file = match JointFile::open(path.clone(), Opening::Existing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(over()),
            opened => opened.map_err(failed)?,
        };
        let malformed = |why| Error::malformed_file(format!("{}: {why}", path.display()));
        let Some(page) = file.page(WORDS).map_err(failed)? else {
            return Err(malformed("its size is not that of a lease"));
        };
        let table = Table::new(page);
        let (seat, lock) = loop {
            match free_seat(&file, &table, room).map_err(failed)? {
                Vacancy::Seat(seat, lock) => break (seat, lock),
                Vacancy::None => {
                    return Err(Error::in_use_that(format!(
                        "{SEATS} processes have opened it, which is the most"
                    )));
                }
                // For as long as the exporter's few questions to the system take, or until a process has ended.
                Vacancy::Soon => nap(),
            }
        };
        // With the lock: see the module.
        match table.state() {
            State::Live => {}
            State::Ended => return Err(over()),
            State::Other => {
                return Err(malformed("another version of this library has made it, or something else"));
            }
        }
        if !table.is_of(message) {
            return Err(Error::malformed_file(
                "the message is not the one that its exporter made".to_owned(),
            ));
        }
        table.enter(seat, joint::life_in(room).map_err(failed)?);
        lock.keep();
        let others = file.leave_to_mapping();
        let hold = Self { table, seat, path: path.clone(), is_given_up: false };
        let joined = require_kept(&others, FIRST_SEAT + seat).and_then(|()| {
            let is_alive = others.is_locked(EXPORTER).map_err(failed)?;
            if is_alive { Ok(()) } else { Err(over()) }
        });
        if let Err(error) = joined {
            hold.end();
            return Err(error);
        }
        Ok(hold)
    }

    /// Whether the exporter lives, and has not ended the lease. Where that cannot be asked now, as without a free descriptor, it is not
    /// known to have ended.
    #[must_use]
    pub fn exporter_lives(&self) -> bool {
        match Others::open(&self.path).and_then(|others| others.is_locked(EXPORTER)) {
            Ok(is_alive) => is_alive,
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Gives it up: the exporter may free what it lent. If that is dead, its file is removed.
    pub fn end(mut self) {
        if self.table.words().is_forked_child() {
            return;
        }
        self.table.leave(self.seat);
        self.is_given_up = true;
        if !self.exporter_lives() {
            clear_up(&self.path);
        }
    }

    /// Lets go of the lock, as a crash does: for an end of the driver, which takes the memory from this process.
    pub fn abandon(mut self) {
        self.is_given_up = true;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_given_up {
            self.table.words_mut().keep();
        }
    }
}

/// What free seats there are.
enum Vacancy<'f> {
    Seat(usize, Locked<'f>),
    /// The exporter has the locks of all for a moment, in which it asks whether it may end the lease; or who had one is about to end.
    Soon,
    /// As many processes have one as there are.
    None,
}

/// Finds a seat that nobody has. That of a process which is about to end, or has kin, names it until it has gone, so it is no free one.
fn free_seat<'f>(file: &'f JointFile, table: &Table<JointPage>, room: &Path) -> io::Result<Vacancy<'f>> {
    let mut of_kin = 0;
    for seat in 0..SEATS {
        let Some(lock) = file.lock(FIRST_SEAT + seat)? else { continue };
        match table.sitter(seat).map_or(Left::Nothing, |dead| what_is_left_of(room, &[dead])) {
            Left::Nothing => return Ok(Vacancy::Seat(seat, lock)),
            Left::Ending => {}
            Left::Kin => of_kin += 1,
        }
    }
    // The exporter's is one lock, and each importer has one of its own.
    let locks = file.others().locks_in(FIRST_SEAT..FIRST_SEAT + SEATS)?;
    Ok(if locks.len() + of_kin == SEATS { Vacancy::None } else { Vacancy::Soon })
}

fn over() -> Error {
    Error::stale(OVER)
}
