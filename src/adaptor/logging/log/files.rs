//! The files of the logs of this process: no two logs write one file.

use std::fs::File;
use std::path::Path;
use std::sync::Weak;
use std::time::{Duration, Instant};

use super::shared::LogShared;
use super::{Log, LogOwner};
#[cfg(not(loom))]
use crate::sync::MadeIn;
use crate::sync::{Arc, Condvar, Mutex};
use crate::trace::RowFormat;

/// How long the maker of a log waits for the last one in its file to be written to its end: a disk takes 16384 rows in
/// milliseconds, and a pipe that nobody reads never does.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The most nested forks below the first process in which logs know of each other's files.
#[cfg(not(loom))]
const GENERATIONS: usize = 16;

/// The files that logs write, until their writers have closed them.
#[derive(Default)]
pub(super) struct Files {
    open: Mutex<OpenFiles>,
    /// Signalled when a file is closed, or its log is made.
    changed: Condvar,
}

#[derive(Default)]
struct OpenFiles {
    all: Vec<OpenFile>,
    /// The number of the next claim. Numbers are unique, so that a late log is not noted for another claim.
    next: u64,
}

/// A file that is claimed by a log.
struct OpenFile {
    file: Identity,
    /// The number of its claim.
    number: u64,
    /// None while the log is being made.
    made: Option<LogEntry>,
}

struct LogEntry {
    log: Weak<LogOwner>,
    shared: Arc<LogShared>,
    format: RowFormat,
}

/// The exclusive right to write a file. The writer of a log drops it after closing the file.
pub(super) struct FileClaim {
    files: Arc<Files>,
    number: u64,
}

/// The result of claiming a file.
pub(super) enum ClaimOutcome {
    /// The file has a log already: use that.
    Join(Log),
    /// No log writes the file: it is claimed now.
    Alone(FileClaim),
}

/// Why a file cannot be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimRefusal {
    /// The log in it has other columns.
    Columns,
    /// The last log in it has no handles any more, but is not written to its end.
    StillWritten,
}

impl Files {
    /// The files of this process. `None` after more nested forks than [`GENERATIONS`].
    ///
    /// A forked child has a list of its own: a thread of the parent may have had the lock at the fork, and the child
    /// must not continue the files of its parent.
    #[cfg(not(loom))]
    pub(super) fn of_this_process() -> Option<Arc<Self>> {
        // Each slot is used by processes of one generation only.
        static FILES: [std::sync::OnceLock<Arc<Files>>; GENERATIONS] =
            [const { std::sync::OnceLock::new() }; GENERATIONS];
        let generation = MadeIn::this_process().number() as usize;
        FILES.get(generation).map(|files| Arc::clone(files.get_or_init(Arc::default)))
    }

    #[cfg(loom)]
    pub(super) fn of_this_process() -> Option<Arc<Self>> {
        // It lives for one run of a model.
        loom::lazy_static! {
            static ref FILES: Arc<Files> = Arc::default();
        }
        Some(Arc::clone(&FILES))
    }

    /// Claims a file. Waits, for `patience` at most, while its last log is not written to its end, or another log in it
    /// is being made.
    pub(super) fn enter(
        self: &Arc<Self>,
        file: Identity,
        format: RowFormat,
        patience: Duration,
    ) -> Result<ClaimOutcome, ClaimRefusal> {
        let until = Instant::now() + patience;
        let mut open = self.open.lock();
        loop {
            let Some(file_entry) = open.all.iter().find(|file_entry| file_entry.file == file) else {
                let number = open.next;
                open.next += 1;
                open.all.push(OpenFile { file, number, made: None });
                return Ok(ClaimOutcome::Alone(FileClaim { files: Arc::clone(self), number }));
            };
            // A failed log is not written any more: its writer drops its claim.
            if let Some(made) = file_entry.made.as_ref().filter(|made| made.shared.failure().is_none()) {
                if made.log.strong_count() > 0 && made.format != format {
                    return Err(ClaimRefusal::Columns);
                }
                // No handle is dropped here, which could be the last and would wait for its writer.
                if let Some(log) = made.log.upgrade() {
                    return Ok(ClaimOutcome::Join(Log(log)));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ClaimRefusal::StillWritten);
            }
            open = self.changed.wait_timeout(open, left);
        }
    }
}

impl FileClaim {
    /// The number to note the log under, once it is made.
    pub(super) fn place(&self) -> ClaimNumber {
        ClaimNumber { files: Arc::clone(&self.files), number: self.number }
    }
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        let gone = {
            let mut open = self.files.open.lock();
            let at = open.all.iter().position(|file_entry| file_entry.number == self.number);
            at.map(|at| open.all.swap_remove(at))
        };
        drop(gone);
        self.files.changed.notify_all();
    }
}

/// The number of a claim, under which its log is noted once it is made.
pub(super) struct ClaimNumber {
    files: Arc<Files>,
    number: u64,
}

impl ClaimNumber {
    /// Notes the log. Its writer may have failed by now, and dropped the claim.
    pub(super) fn enter(self, log: &Log) {
        let made =
            LogEntry { log: Arc::downgrade(&log.0), shared: Arc::clone(&log.0.shared), format: log.0.format };
        {
            let mut open = self.files.open.lock();
            if let Some(file_entry) = open.all.iter_mut().find(|file_entry| file_entry.number == self.number)
            {
                file_entry.made = Some(made);
            }
        }
        self.files.changed.notify_all();
    }
}

/// The identity of a file under any name: the numbers of its device and inode, which no other file has while this one
/// is open.
#[cfg(unix)]
pub(super) type Identity = (u64, u64);

#[cfg(not(unix))]
pub(super) type Identity = std::path::PathBuf;

/// The identity of that file. `None` for a device, which several logs may write.
#[cfg(unix)]
pub(super) fn identity_of(file: &File, _: &Path) -> Option<Identity> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let found = file.metadata().ok()?;
    (!found.file_type().is_char_device()).then(|| (found.dev(), found.ino()))
}

#[cfg(not(unix))]
pub(super) fn identity_of(file: &File, path: &Path) -> Option<Identity> {
    file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    path.canonicalize().ok()
}

#[cfg(all(test, unix, not(loom)))]
mod tests {
    use super::*;

    const FILE: Identity = (1, 2);

    fn alone(files: &Arc<Files>, patience: Duration) -> Option<FileClaim> {
        match files.enter(FILE, RowFormat::default(), patience) {
            Ok(ClaimOutcome::Alone(claim)) => Some(claim),
            Ok(ClaimOutcome::Join(log)) => panic!("{log:?} is not in it"),
            Err(refusal) => {
                assert_eq!(refusal, ClaimRefusal::StillWritten);
                None
            }
        }
    }

    #[test]
    fn a_file_has_one_tenant_at_a_time() {
        let files = Arc::<Files>::default();
        let first = alone(&files, Duration::ZERO).expect("nobody is there");
        assert!(alone(&files, Duration::ZERO).is_none());
        assert!(matches!(
            files.enter((1, 3), RowFormat::default(), Duration::ZERO),
            Ok(ClaimOutcome::Alone(_))
        ));
        drop(first);
        let second = alone(&files, Duration::ZERO).expect("the first has gone");
        assert!(alone(&files, Duration::from_millis(1)).is_none());
        drop(second);
        assert!(files.open.lock().all.is_empty());
    }

    #[test]
    fn who_waits_gets_the_file_when_it_is_free() {
        let files = Arc::<Files>::default();
        let first = alone(&files, Duration::ZERO).expect("nobody is there");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    // Each lets go of it at once, and not when it is joined: another is joined before, which may wait for it.
                    drop(alone(&files, Duration::from_secs(600)).expect("it gets free"));
                });
            }
            drop(first);
        });
        assert!(files.open.lock().all.is_empty());
    }

    /// The one that joins is not dropped on the way, and the one that is over is not joined.
    #[test]
    fn a_log_is_joined_while_somebody_has_it_and_it_goes_on() {
        let files = Arc::<Files>::default();
        let claim = alone(&files, Duration::ZERO).expect("nobody is there");
        let log = Log::write_to(std::io::sink()).expect("there is a thread for it");
        claim.place().enter(&log);
        let format = RowFormat::default();
        assert!(matches!(files.enter(FILE, format, Duration::ZERO), Ok(ClaimOutcome::Join(_))));
        let others = RowFormat { tags: true, ..format };
        assert_eq!(files.enter(FILE, others, Duration::ZERO).err(), Some(ClaimRefusal::Columns));
        log.0.shared.fail(crate::Error::out_of_memory(1));
        assert!(alone(&files, Duration::ZERO).is_none(), "its writer has the file");
        drop(log);
        assert_eq!(files.enter(FILE, others, Duration::ZERO).err(), Some(ClaimRefusal::StillWritten));
        drop(claim);
        let next = alone(&files, Duration::ZERO).expect("its writer has gone");
        // A log that is done before it is entered is not entered for the next one.
        let late = Log::write_to(std::io::sink()).expect("there is a thread for it");
        ClaimNumber { files: Arc::clone(&files), number: next.number - 1 }.enter(&late);
        assert!(alone(&files, Duration::ZERO).is_none());
    }
}
