//! Which files the logs of this process are in: no two write one.

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

/// So many forks below the first process, logs still know of each other's files.
#[cfg(not(loom))]
const GENERATIONS: usize = 16;

/// The files that logs are in, until their writers have closed them.
#[derive(Default)]
pub(super) struct Files {
    open: Mutex<OpenFiles>,
    /// One has gone, or its log has been made.
    changed: Condvar,
}

#[derive(Default)]
struct OpenFiles {
    all: Vec<OpenFile>,
    /// The number of the next one: no two have one, so that a log that is late is not entered for another.
    next: u64,
}

/// Who has a file.
struct OpenFile {
    file: Identity,
    /// Of its claim.
    number: u64,
    /// None while the log is being made.
    made: Option<LogEntry>,
}

struct LogEntry {
    log: Weak<LogOwner>,
    shared: Arc<LogShared>,
    format: RowFormat,
}

/// The right to write a file, alone. The writer of a log drops it when it has closed the file.
pub(super) struct FileClaim {
    files: Arc<Files>,
    number: u64,
}

/// What becomes of a log that is to be in some file.
pub(super) enum ClaimOutcome {
    /// It is the log that is there.
    Join(Log),
    /// Nobody writes the file.
    Alone(FileClaim),
}

/// Why there can be no log in some file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimRefusal {
    /// The log in it has others.
    Columns,
    /// The last one in it is not written to its end, and nobody has it any more.
    StillWritten,
}

impl Files {
    /// Those of this process. None where it is the child of more forks than are counted.
    ///
    /// The child of a fork has others than its parent, of which a thread may have had the lock when the process forked, and
    /// have it for ever. What its parent writes is not the child's to go on with, either.
    #[cfg(not(loom))]
    pub(super) fn of_this_process() -> Option<Arc<Self>> {
        // Each place is touched by processes of one generation alone.
        static FILES: [std::sync::OnceLock<Arc<Files>>; GENERATIONS] =
            [const { std::sync::OnceLock::new() }; GENERATIONS];
        let generation = MadeIn::this_process().number() as usize;
        FILES.get(generation).map(|files| Arc::clone(files.get_or_init(Arc::default)))
    }

    #[cfg(loom)]
    pub(super) fn of_this_process() -> Option<Arc<Self>> {
        // Of one run of a model, and gone with it.
        loom::lazy_static! {
            static ref FILES: Arc<Files> = Arc::default();
        }
        Some(Arc::clone(&FILES))
    }

    /// Asks for a file. Waits, for so long at most, while it is not written to its end, or another log in it is being made.
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
            // One that has failed is not written any more: its writer lets go of it.
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
    /// What says that the log has been made, if the claim is still there then.
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

/// Where a log is to be entered once it is made.
pub(super) struct ClaimNumber {
    files: Arc<Files>,
    number: u64,
}

impl ClaimNumber {
    /// The log has been made. Its writer may have failed by now, and be gone.
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

/// What a file is, whatever it is called: the numbers of its device and of its node, which is used for no other while the file is
/// open.
#[cfg(unix)]
pub(super) type Identity = (u64, u64);

#[cfg(not(unix))]
pub(super) type Identity = std::path::PathBuf;

/// What that file is. None for a device: what two write to it does not meet.
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
