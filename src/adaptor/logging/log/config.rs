//! `LogConfig`: the columns, the queue and the destination of a log.

use core::fmt;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use super::files::{ClaimOutcome, ClaimRefusal, FileClaim, Files, PATIENCE, identity_of};
use super::shared::LogShared;
use super::sink::{PlainSink, Sink};
use super::writer::Writer;
use super::{FailureHook, Log};
use crate::environment;
use crate::error::Error;
use crate::sync::Arc;
use crate::trace::RowFormat;

/// Rows that may wait for the writer: 1 MiB of them. A program that allocates and frees as fast as one core can fills it in 1 ms,
/// the writer empties it in 3.
const ROOM: usize = 16 << 10;

/// Room is memory that is there from the beginning: this is 64 MiB, which a program fills in 60 ms.
const MOST_ROOM: usize = 1 << 20;

/// The variables that name the file of a log, the first that is set.
const VARIABLES: [&str; 2] = ["ALLUVION_LOG_FILE", "RMM_LOG_FILE"];

/// The columns, the queue and the destination of a [`Log`].
///
/// ```
/// use alluvion::adaptor::LogConfig;
///
/// let log = LogConfig::default().tags(true).room(1 << 10).write_to(std::io::sink())?;
/// assert_eq!(log.rows(), 0);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct LogConfig {
    format: RowFormat,
    room: usize,
    failure_hook: FailureHook,
}

impl Default for LogConfig {
    /// RMM's six columns, and room for 16384 rows. A failure is reported in one line on standard error.
    fn default() -> Self {
        Self { format: RowFormat::default(), room: ROOM, failure_hook: Arc::new(say_on_standard_error) }
    }
}

fn say_on_standard_error(error: &Error) {
    // Not `eprintln!`, which panics where there is no standard error.
    let _ = writeln!(std::io::stderr(), "alluvion: a log of allocations ends here: {error}");
}

impl LogConfig {
    /// Whether there is a column `Tag`: the path of [tags](crate::tag::Tag) that the call was made in. RMM's own reader
    /// passes over it.
    #[must_use]
    pub fn tags(self, tags: bool) -> Self {
        Self { format: RowFormat { tags, ..self.format }, ..self }
    }

    /// Whether there is a column `Reserved`: the bytes that the outermost suballocator under the layer had reserved of
    /// its upstream. RMM's own reader passes over it.
    #[must_use]
    pub fn reserved(self, reserved: bool) -> Self {
        Self { format: RowFormat { reserved, ..self.format }, ..self }
    }

    /// Whether there is a column `Device`: the number of the device that the block is memory of. RMM's own reader passes over it.
    /// For the stacks of several devices, whose logs in one file are one: without it their rows are told apart by nothing.
    #[must_use]
    pub fn devices(self, devices: bool) -> Self {
        Self { format: RowFormat { devices, ..self.format }, ..self }
    }

    /// The most rows that wait for the writer; then calls wait too. Rounded up to a power of two, of 64 bytes each; a
    /// million at most.
    #[must_use]
    pub fn room(self, rows: usize) -> Self {
        Self { room: rows.min(MOST_ROOM), ..self }
    }

    /// Sets a function that is called once, if the log can no longer be written. It runs on the writer's thread, with
    /// no lock held; a panic of it is caught.
    #[must_use]
    pub fn on_failure(self, hook: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        Self { failure_hook: Arc::new(hook), ..self }
    }

    /// A log in that file, which is made, or emptied. If its name ends in `.gz` it is packed by gzip.
    ///
    /// If a log of this process is in that file already, it is that log, with its room and its `on_failure`: as when each of
    /// several devices has a stack that logs to the file of the environment. A log that nobody has any more, and that is not
    /// written to its end, is waited for, for five seconds at most.
    ///
    /// The file is known by what it is, and not by its name: two names of one file are one. Another process, a child of a fork
    /// included, is not known.
    ///
    /// # Errors
    ///
    /// `Unwritable` if it cannot be opened, or if the last log in it is still being written; `Unsupported` for gzip without the
    /// feature `gzip`; `InvalidArgument` if a log with other columns is in it.
    pub fn create(self, path: impl AsRef<Path>) -> Result<Log, Error> {
        let path = path.as_ref();
        let is_packed = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gz"));
        if is_packed && !cfg!(feature = "gzip") {
            return Err(Error::unsupported(
                "a log packed by gzip",
                "the library was built without its feature `gzip`",
                "build it with that feature, or choose a name that does not end in .gz",
            ));
        }
        // No lock is held: a pipe takes as long to open as nobody reads it. And nothing is emptied yet: it may be another log's.
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = opened.map_err(|error| Error::unwritable(path.display(), &error))?;
        let Some(identity) = identity_of(&file, path) else {
            return self.begin_in(file, path, is_packed, None);
        };
        let refused = |why| Error::unwritable(path.display(), &std::io::Error::other(why));
        let files = Files::of_this_process()
            .ok_or_else(|| refused("this process is the child of more forks than logs know of"))?;
        match files.enter(identity, self.format, PATIENCE) {
            Ok(ClaimOutcome::Join(log)) => Ok(log),
            Ok(ClaimOutcome::Alone(claim)) => self.begin_in(file, path, is_packed, Some(claim)),
            Err(ClaimRefusal::StillWritten) => Err(refused("the last log in it is still being written")),
            Err(ClaimRefusal::Columns) => Err(Error::invalid_argument(
                "a log in a file that another is in",
                "their columns differ",
                "choose the same columns, or another file",
            )),
        }
    }

    /// A log in that file, which nobody writes.
    fn begin_in(
        self,
        file: File,
        path: &Path,
        is_packed: bool,
        claim: Option<FileClaim>,
    ) -> Result<Log, Error> {
        // What is no file on a disk has nothing to be emptied of.
        if file.metadata().is_ok_and(|found| found.is_file()) {
            file.set_len(0).map_err(|error| Error::unwritable(path.display(), &error))?;
        }
        #[cfg(feature = "gzip")]
        let sink: Box<dyn Sink> =
            if is_packed { Box::new(super::sink::GzipSink::new(file)) } else { Box::new(PlainSink(file)) };
        #[cfg(not(feature = "gzip"))]
        let (sink, _): (Box<dyn Sink>, _) = (Box::new(PlainSink(file)), is_packed);
        self.begin(sink, path.display(), claim)
    }

    /// A log in the file that the environment names: `ALLUVION_LOG_FILE`, else `RMM_LOG_FILE`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if neither is set, or both are empty, or if the process has raised privileges, as that of a program with
    /// the set-user-id bit: who started it may name a file there that they must not write. As [`create`](Self::create).
    pub fn from_env(self) -> Result<Log, Error> {
        if !environment::is_trusted() {
            return Err(Error::invalid_argument(
                "a log in the file that the environment names",
                "the process has raised privileges, and who started it wrote the environment",
                "name the file with `LogConfig::create`",
            ));
        }
        let named =
            VARIABLES.into_iter().filter_map(environment::variable).find(|name: &OsString| !name.is_empty());
        let path = named.ok_or_else(|| {
            Error::invalid_argument(
                "a log in the file that the environment names",
                "neither ALLUVION_LOG_FILE nor RMM_LOG_FILE is set",
                "set one of them, or name the file with `LogConfig::create`",
            )
        })?;
        self.create(path)
    }

    /// A log that `writer` gets, a piece of many rows at a time. It is called on a thread of the log's own; if it blocks, calls
    /// wait once there is no more [room](Self::room).
    ///
    /// # Errors
    ///
    /// `Unwritable` if the system has no thread for it.
    pub fn write_to(self, writer: impl Write + Send + 'static) -> Result<Log, Error> {
        self.begin(Box::new(PlainSink(writer)), "writer", None)
    }

    fn begin(
        self,
        sink: Box<dyn Sink>,
        name: impl fmt::Display,
        claim: Option<FileClaim>,
    ) -> Result<Log, Error> {
        let shared = Arc::new(LogShared::new(name.to_string(), self.room));
        let place = claim.as_ref().map(FileClaim::place);
        let writer = Writer::new(&shared, sink, claim, self.format, self.failure_hook);
        let log = Log::begin(shared, writer, self.format)?;
        if let Some(place) = place {
            place.enter(&log);
        }
        Ok(log)
    }
}

impl fmt::Debug for LogConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, room, failure_hook: _ } = self;
        f.debug_struct("LogConfig")
            .field("devices", &format.devices)
            .field("tags", &format.tags)
            .field("reserved", &format.reserved)
            .field("room", room)
            .finish_non_exhaustive()
    }
}
