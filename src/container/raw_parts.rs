//! `RawParts`: a container taken apart.

use core::fmt;

use crate::resource::{DevicePtr, Layout};
use crate::stream::{Frontier, Stream};

/// A container taken apart: the owner of the parts frees the block, or makes a container of them again.
///
/// ```
/// use alluvion::{DeviceVec, Resource, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let parts = DeviceVec::from_slice(&[1_u32, 2], &stream)?.into_raw_parts();
/// assert_eq!((parts.len_bytes, parts.layout.bytes()), (8, 8));
/// // First the home stream follows the uses of others.
/// parts.home.wait_for(&parts.frontier)?;
/// // SAFETY: the block came from the resource with this layout, its uses come before, and nobody uses it again.
/// unsafe { parts.resource.deallocate(parts.block, parts.layout, parts.home.as_ref()) };
/// # Ok::<(), alluvion::Error>(())
/// ```
#[must_use = "the block is leaked unless somebody gives it back"]
pub struct RawParts<R> {
    /// The address of the block.
    pub block: DevicePtr,
    /// What it was allocated with: the capacity.
    pub layout: Layout,
    /// Bytes in use, from the start.
    pub len_bytes: usize,
    /// The home stream. All that it has been given comes before the block is given back.
    pub home: Stream,
    /// The uses of other streams, which must come first, too.
    pub frontier: Frontier,
    /// Where the block came from.
    pub resource: R,
}

impl<R> fmt::Debug for RawParts<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "RawParts({} of {} bytes at {}, home {:?}, after {:?})",
            self.len_bytes,
            self.layout.bytes(),
            self.block,
            self.home,
            self.frontier
        )
    }
}
