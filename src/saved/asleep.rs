//! What sleeps is kept in files.

// Not of `sync`: the count lives as long as the process, and no model covers it.
use core::sync::atomic::{AtomicUsize, Ordering};
use std::path::PathBuf;
use std::sync::Arc;

use super::{SavedFile, Saver};
use crate::error::Error;
use crate::resource::{ContentFiles, ContentWriter, Kept, KeptContents};
use crate::suballoc::SleepConfig;

/// The block of a file.
const NAME: &str = "contents";

impl SleepConfig<'_> {
    /// Keeps the contents in a file of a folder, in place of memory of the host, and restores them on waking: for more than the host has
    /// room for. They go by way of 16 MiB of pinned memory.
    ///
    /// The file is a [saved one](SavedFile) with one block, `contents`, and is named `alluvion-`, the number of the process, another number, and
    /// `.asleep`. Only the user of the process may read it. It goes when the contents are back, or with what sleeps. A process that is
    /// killed leaves it.
    ///
    /// ```
    /// use alluvion::source::Mapped;
    /// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, SleepConfig};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Mapped::new(&sim.device(0))?.pool(PoolConfig::default())?;
    /// let weights = DeviceVec::from_slice_in(&[1.0, 2.0, 3.0], &stream, &pool)?;
    /// let config = SleepConfig::default().keep_on_disk(std::env::temp_dir());
    /// // SAFETY: no work uses `weights` until it is awake.
    /// let mut sleeper = unsafe { pool.sleep(config) }?;
    /// assert_eq!(sleeper.record().kept_bytes(), 256);
    /// sleeper.wake()?;
    /// assert_eq!(weights.to_vec(&stream)?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors of sleeping and waking
    ///
    /// A sleep is `Unwritable`, with the words of the system, where the folder is not there or cannot be written to, or the disk is full:
    /// nothing sleeps then, and no file is left. A wake is `Unreadable`, or `Malformed` where the file was cut short or is damaged: everything
    /// sleeps on, and it can be called again. A file that is removed is no loss where the system keeps open ones, as Linux does.
    pub fn keep_on_disk(mut self, folder: impl Into<PathBuf>) -> Self {
        self.keep = Kept::in_files(Arc::new(Folder(folder.into())));
        self
    }
}

/// A folder with a file for each sleep.
struct Folder(PathBuf);

impl ContentFiles for Folder {
    fn create(&self, bytes: u64) -> Result<Box<dyn ContentWriter>, Error> {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        // Relaxed: it only gives each file a name of its own.
        let number = BEGUN.fetch_add(1, Ordering::Relaxed);
        let path = self.0.join(format!("alluvion-{}-{number}.asleep", std::process::id()));
        // The process may be in another folder by the time it wakes.
        let path = std::path::absolute(&path).map_err(|error| Error::unwritable(path.display(), &error))?;
        let mut saver = Saver::create(&path)?;
        saver.make_private()?;
        saver.begin(NAME, bytes)?;
        Ok(Box::new(Writer { saver, path, bytes }))
    }
}

/// The file of contents that are on their way out.
struct Writer {
    saver: Saver,
    path: PathBuf,
    bytes: u64,
}

impl ContentWriter for Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.saver.write(bytes)
    }

    fn finish(self: Box<Self>) -> Result<Box<dyn KeptContents>, Error> {
        let Self { saver, path, bytes } = *self;
        let named = Named { path, process: std::process::id() };
        let file = saver.finish_and_open()?;
        Ok(Box::new(Contents { file, bytes, _named: named }))
    }
}

/// The file of contents that sleep. It is open until they are awake.
struct Contents {
    file: SavedFile,
    bytes: u64,
    // Closed before it is removed, as some systems want it.
    _named: Named,
}

impl KeptContents for Contents {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.file.begin(NAME).map(drop)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.file.read(into)
    }
}

/// The name of a file, which goes with it.
struct Named {
    path: PathBuf,
    /// A fork has a copy of this.
    process: u32,
}

impl Drop for Named {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // One that cannot be removed stays, and one that somebody else has removed is gone.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
