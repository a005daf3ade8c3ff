//! `Log`: a file with a row for each call.

mod at_end;
mod config;
mod files;
mod os;
mod queue;
mod record;
mod shared;
mod sink;
mod writer;
mod writer_mark;

use core::fmt;
use core::mem;
use std::io::Write;
use std::path::Path;

pub use config::LogConfig;
use record::{Record, nanoseconds_now};
use shared::LogShared;
use writer::Writer;
use writer_mark::is_writer;

use crate::error::Error;
use crate::sync::{Arc, Builder, JoinHandle, Mutex};
use crate::tag::Tag;
use crate::trace::{Action, RowFormat};

type FailureHook = Arc<dyn Fn(&Error) + Send + Sync>;

/// A file with a row for each call: the book of [`Logging`](super::Logging).
///
/// A handle: clones are the same log, and several layers, of several stacks and devices, may write one. The format is
/// RMM's, byte for byte: the heading `Thread,Time,Action,Pointer,Size,Stream`, and a row for each call. See
/// [`Logging`](super::Logging) for the contents of a row.
///
/// # The writer
///
/// A call puts a few numbers into a queue; a thread of the log formats rows from them and writes those, about 100 KiB
/// at a time. It runs within a millisecond of a call, and sleeps when there are no more calls.
///
/// The queue has [room](LogConfig::room) for 16384 rows. Where a program allocates for longer than the writer can keep up with
/// that, calls wait: [`stalls`](Self::stalls) counts them. No row is ever left out while the log is being written.
///
/// When a write fails, for example on a full disk, the log ends: the failure is reported once
/// ([`on_failure`](LogConfig::on_failure)), and later rows are [counted](Self::dropped) instead of written. Calls go
/// on, and do not wait. A panic of the writer counts as a failure. A writer that blocks makes calls wait.
///
/// # When it is written
///
/// All of it: when the last handle is dropped; when [`flush`](Self::flush) returns; when the process exits, also over a log in
/// a static; and when a thread panics, so that a process which aborts then has written what led there. The last two wait for
/// five seconds at most. For panics a hook is put before the one that was there when the first log was made.
///
/// A child of a fork has no writer: what it logs is dropped and counted, and it writes nothing of what its parent has not
/// written yet. A log that is made in the child is written when it is dropped.
///
/// # Examples
///
/// ```
/// use alluvion::adaptor::Log;
/// use alluvion::trace::Trace;
/// use alluvion::{DeviceVec, Resource, ResourceExt, Sim, source::Cuda};
///
/// let path = std::env::temp_dir().join(format!("alluvion-log-{}.csv", std::process::id()));
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let resource = Cuda::new(&sim.device(0)).logging(Log::create(&path)?);
/// drop(DeviceVec::<f32, _>::zeroed_in(1000, &stream, &resource)?);
/// resource.book().flush()?;
///
/// let file = std::io::BufReader::new(std::fs::File::open(&path).unwrap());
/// assert_eq!(Trace::from_rmm_csv(file)?.events.len(), 2);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Log(Arc<LogOwner>);

static_assertions::assert_impl_all!(Log: Send, Sync, Clone);

/// The end of a log: dropped with the last handle.
struct LogOwner {
    shared: Arc<LogShared>,
    format: RowFormat,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl Log {
    /// A log in that file, which is made, or emptied: [`LogConfig::create`] with the default configuration.
    ///
    /// # Errors
    ///
    /// As [`LogConfig::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Self, Error> {
        LogConfig::default().create(path)
    }

    /// A log in the file that `ALLUVION_LOG_FILE` names, else `RMM_LOG_FILE`.
    ///
    /// # Errors
    ///
    /// As [`LogConfig::from_env`].
    pub fn from_env() -> Result<Self, Error> {
        LogConfig::default().from_env()
    }

    /// A log that writes to `writer`.
    ///
    /// # Errors
    ///
    /// As [`LogConfig::write_to`].
    pub fn write_to(writer: impl Write + Send + 'static) -> Result<Self, Error> {
        LogConfig::default().write_to(writer)
    }

    fn begin(shared: Arc<LogShared>, writer: Writer, format: RowFormat) -> Result<Self, Error> {
        let spawned = Builder::new().name("alluvion-log".to_owned()).spawn(move || writer.run());
        let thread = spawned.map_err(|error| Error::unwritable(&shared.name, &error))?;
        at_end::watch(&shared);
        Ok(Self(Arc::new(LogOwner { shared, format, writer: Mutex::new(Some(thread)) })))
    }

    /// Waits until all rows that were logged before the call are written.
    ///
    /// # Errors
    ///
    /// `Unwritable` if they could not be: the log is over then, or belongs to the parent of this process; or this is the thread
    /// that writes it.
    pub fn flush(&self) -> Result<(), Error> {
        self.0.shared.flush(None)
    }

    /// The number of logged rows, written or not.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.0.shared.rows()
    }

    /// The number of rows that the writer has written.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.0.shared.written()
    }

    /// How many rows were not written, and will not be: because a write has failed; because it is the writer itself that
    /// allocates, and there was no room; because the log belongs to the parent of this process.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.shared.dropped()
    }

    /// The number of calls that found no room, and waited for the writer.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.0.shared.stalls()
    }

    /// Why the log has ended, if it has.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.0.shared.failure()
    }

    /// Its name: that of its file, or `writer`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.shared.name
    }

    /// Returns `true` if rows say what is reserved.
    #[inline]
    pub(super) fn has_reserved(&self) -> bool {
        self.0.format.reserved
    }

    /// Logs a call.
    #[inline]
    pub(super) fn note(
        &self,
        action: Action,
        address: u64,
        bytes: usize,
        stream: u64,
        device: u32,
        reserved_bytes: Option<u64>,
    ) {
        self.0.shared.push(Record {
            thread: os::thread_number(),
            nanoseconds: nanoseconds_now(),
            action,
            address,
            bytes: bytes as u64,
            stream,
            device,
            tag: Tag::current(),
            reserved_bytes,
        });
    }
}

impl Drop for LogOwner {
    fn drop(&mut self) {
        if self.shared.is_forked_child() {
            // There is no such thread here to wait for, or to let go of: the lock leaks it.
            return;
        }
        let Some(writer) = self.writer.get_mut().take() else { return };
        self.shared.stop();
        // The last handle may be dropped by the writer that was given to the log, or by that of another which waits for this.
        if !is_writer()
            && let Err(thrown) = writer.join()
        {
            // Panics of the user's have been caught there, but those of a thread's own locals, which are not to be dropped.
            mem::forget(thrown);
        }
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Log({}, {} rows)", self.name(), self.rows())
    }
}
