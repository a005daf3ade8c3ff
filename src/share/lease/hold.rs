//! `Hold`: the importer's side of a lease.

use std::io;
use std::path::{Path, PathBuf};

use super::process::this_process;
use super::table::{EXPORTER, FIRST_SEAT, SEATS, State, Table, WORDS};
use super::{LeaseName, OVER, clear_up, failed, require_kept};
use crate::error::Error;
use crate::joint::{JointFile, JointPage, Locked, Opening, Others};

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
        let path = name.path(directory);
        let failed = |error: io::Error| failed(&path, &error);
        let file = match JointFile::open(path.clone(), Opening::Existing) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(over()),
            opened => opened.map_err(failed)?,
        };
        let Some((seat, lock)) = free_seat(&file).map_err(failed)? else {
            return Err(Error::in_use_that(format!("{SEATS} processes have opened it, which is the most")));
        };
        let malformed = |why| Error::malformed_file(format!("{}: {why}", path.display()));
        let Some(page) = file.map(WORDS).map_err(failed)? else {
            return Err(malformed("its size is not that of a lease"));
        };
        let table = Table::new(page);
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
        let (process, started) = this_process();
        table.enter(seat, process, started);
        lock.keep();
        let others = file.leave_to_mapping();
        let hold = Self { table, seat, path: path.clone(), is_given_up: false };
        let joined = require_kept(&others, FIRST_SEAT + seat).and_then(|()| {
            let is_alive = others.first_locked(EXPORTER, 1).map_err(failed)?.is_some();
            if is_alive { Ok(()) } else { Err(over()) }
        });
        if let Err(error) = joined {
            hold.end();
            if error.is_stale() {
                clear_up(&path);
            }
            return Err(error);
        }
        Ok(hold)
    }

    /// Whether the exporter lives, and has not ended the lease.
    #[must_use]
    pub fn exporter_lives(&self) -> bool {
        let asked = Others::open(&self.path).and_then(|others| others.first_locked(EXPORTER, 1));
        matches!(asked, Ok(Some(_)))
    }

    /// Gives it up: the exporter may free what it lent.
    pub fn end(mut self) {
        if self.table.words().is_of_parent() {
            return;
        }
        self.table.leave(self.seat);
        self.is_given_up = true;
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

fn free_seat(file: &JointFile) -> io::Result<Option<(usize, Locked<'_>)>> {
    for seat in 0..SEATS {
        if let Some(lock) = file.lock(FIRST_SEAT + seat)? {
            return Ok(Some((seat, lock)));
        }
    }
    Ok(None)
}

fn over() -> Error {
    Error::stale(OVER)
}
