//! `BlockRange`: part of a block, checked once.

use core::ops::{Bound, RangeBounds};

use crate::error::Error;
use crate::resource::{DevicePtr, Layout};

/// Bytes of one block, for migration and advice. It lies within its block, checked when it is made.
///
/// ```
/// use alluvion::{DevicePtr, Layout, source::BlockRange};
///
/// let (block, layout) = (DevicePtr::new(0x1000).unwrap(), Layout::from_bytes(4096)?);
/// let half = BlockRange::new(block, layout, 2048..)?;
/// assert_eq!((half.start().address(), half.bytes()), (0x1800, 2048));
/// assert_eq!(BlockRange::new(block, layout, ..)?, BlockRange::whole(block, layout));
/// assert!(BlockRange::new(block, layout, 2048..4097).unwrap_err().is_out_of_range());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockRange {
    start: DevicePtr,
    bytes: usize,
}

impl BlockRange {
    /// All bytes of a block.
    #[must_use]
    pub const fn whole(block: DevicePtr, layout: Layout) -> Self {
        Self { start: block, bytes: layout.bytes() }
    }

    /// Some bytes of a block, counted from its start.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if the range ends behind the block, or before it starts.
    pub fn new(block: DevicePtr, layout: Layout, range: impl RangeBounds<usize>) -> Result<Self, Error> {
        let bytes = layout.bytes();
        let start = match range.start_bound() {
            Bound::Included(&start) => start,
            Bound::Excluded(&start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.saturating_add(1),
            Bound::Excluded(&end) => end,
            Bound::Unbounded => bytes,
        };
        if end > bytes {
            return Err(Error::out_of_range(end, bytes));
        }
        if start > end {
            return Err(Error::out_of_range(start, end));
        }
        // Checked, because the address may be none of a block, and overflow.
        let address = block.address().checked_add(start as u64).and_then(DevicePtr::new);
        let start = address.ok_or_else(|| Error::out_of_range(start, bytes))?;
        Ok(Self { start, bytes: end - (start.address() - block.address()) as usize })
    }

    /// The first address.
    #[must_use]
    pub const fn start(self) -> DevicePtr {
        self.start
    }

    /// The number of bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }

    /// Returns `true` if the range has no bytes.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bytes == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_range_never_leaves_its_block() {
        let (block, layout) = (DevicePtr::new(4096).unwrap(), Layout::from_bytes(100).unwrap());
        let range = |bounds: (Bound<usize>, Bound<usize>)| {
            BlockRange::new(block, layout, bounds).map(|range| (range.start().address(), range.bytes()))
        };
        use Bound::{Excluded, Included, Unbounded};
        assert_eq!(range((Unbounded, Unbounded)).ok(), Some((4096, 100)));
        assert_eq!(range((Excluded(9), Included(99))).ok(), Some((4106, 90)));
        assert_eq!(range((Included(100), Unbounded)).ok(), Some((4196, 0)));
        for bad in [
            (Included(0), Excluded(101)),
            (Included(0), Included(100)),
            (Included(101), Unbounded),
            (Included(5), Excluded(4)),
            (Excluded(usize::MAX), Unbounded),
            (Unbounded, Included(usize::MAX)),
        ] {
            assert!(range(bad).is_err_and(|error| error.is_out_of_range()), "{bad:?}");
        }
        let last = DevicePtr::new(u64::MAX).unwrap();
        assert!(BlockRange::new(last, layout, 50..).is_err_and(|error| error.is_out_of_range()));
    }
}
