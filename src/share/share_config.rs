//! `ShareConfig`: how something is shared.

use std::path::{Path, PathBuf};

use crate::joint;

/// How something is shared, set by chaining: to be read, unless it says otherwise.
///
/// ```
/// use alluvion::share::{ShareConfig, Shared};
/// use alluvion::{DeviceVec, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice_in(&[1_u32, 2], &stream, Cuda::new(&sim.device(0)))?;
/// let shared = Shared::with_config(vector, ShareConfig::default().writable(), &stream)?;
/// assert!(shared.message().is_writable());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a configuration does nothing until something is shared with it"]
pub struct ShareConfig {
    pub(super) is_writable: bool,
    pub(super) directory: PathBuf,
}

impl Default for ShareConfig {
    fn default() -> Self {
        Self { is_writable: false, directory: PathBuf::from(joint::DIRECTORY) }
    }
}

impl ShareConfig {
    /// Lets importers write. Who writes when, the processes agree on themselves.
    pub fn writable(mut self) -> Self {
        self.is_writable = true;
        self
    }

    /// The directory of the lease's file, which both sides name; `/dev/shm` unless set. The file is in a directory there that is this
    /// user's alone, `alluvion-` and the user's number. It must be on this machine, and should be memory.
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = directory.as_ref().to_owned();
        self
    }
}
