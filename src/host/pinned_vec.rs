//! `PinnedVec`: elements on the host, where the device reaches them.

use super::{PinnedAlloc, Vec};

/// A vector of pinned memory: what to upload from and download to, at full speed and while the host goes on.
///
/// ```
/// use alluvion::{DeviceVec, PinnedAlloc, PinnedVec, Sim};
///
/// let sim = Sim::new();
/// let (stream, pinned) = (sim.device(0).stream()?, PinnedAlloc::new(&sim.device(0))?);
/// let mut host: PinnedVec<f32> = PinnedVec::with_capacity_in(1000, pinned);
/// host.resize(1000, 0.5);
/// let mut vector = DeviceVec::uninit(1000, &stream)?;
/// let upload = vector.upload(host, &stream)?;
/// // Something else is done here; the vector may be used at once.
/// assert_eq!(vector.get(999, &stream)?, 0.5);
/// let host: PinnedVec<f32> = upload.wait()?;
/// # assert_eq!(host.len(), 1000);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub type PinnedVec<T> = Vec<T, PinnedAlloc>;
