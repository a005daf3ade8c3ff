//! `SnapshotFile`: the outcome of writing a snapshot when memory ran out.

use std::path::PathBuf;

/// The outcome of writing a snapshot when memory ran out: part of the [report](super::OutOfMemory).
///
/// ```
/// use alluvion::error::SnapshotFile;
/// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let config = PoolConfig::default().maximum(1 << 20).snapshot_on_out_of_memory("/no/such/folder/pool.json");
/// let pool = Cuda::new(&sim.device(0)).pool(config)?;
/// let error = pool.allocate_sync(Layout::from_bytes(2 << 20)?).unwrap_err();
/// let report = error.out_of_memory_report().expect("a pool says why");
/// assert!(matches!(report.snapshot_file, Some(SnapshotFile::Failed { .. })));
/// assert!(error.to_string().contains("no snapshot in /no/such/folder/pool.json: "));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SnapshotFile {
    /// It was written to this file.
    Written(PathBuf),
    /// It could not be written.
    #[non_exhaustive]
    Failed {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        why: String,
    },
}
