//! `Violation`: how a resource, or its user, broke the contract.

use core::fmt;

use super::block::byte_of;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout};

/// How a resource, or its caller, broke the contract of [`Resource`](crate::Resource). Prints as one sentence.
///
/// ```
/// use alluvion::testing::ShadowHeap;
/// use alluvion::{DevicePtr, Layout};
///
/// let mut heap = ShadowHeap::new();
/// let layout = Layout::from_bytes(512)?;
/// heap.insert(DevicePtr::new(0x1000).unwrap(), layout).unwrap();
/// let violation = heap.insert(DevicePtr::new(0x1100).unwrap(), layout).unwrap_err();
/// assert_eq!(violation.to_string(), "512 bytes at 0x1100 overlap the live block of 512 bytes at 0x1000");
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Violation {
    /// A block overlaps a live one.
    Overlap {
        /// The new block.
        block: (DevicePtr, Layout),
        /// The one that was there.
        live: (DevicePtr, Layout),
    },
    /// A block is not aligned to what was asked for, or to 256.
    Misaligned {
        /// The block.
        block: (DevicePtr, Layout),
    },
    /// A block that is not live was freed: twice, or never allocated.
    NotLive {
        /// What was freed.
        block: (DevicePtr, Layout),
    },
    /// A block was freed with another layout than it was allocated with.
    WrongLayout {
        /// What was freed.
        block: (DevicePtr, Layout),
        /// The layout of its allocation.
        allocated: Layout,
    },
    /// A block does not hold what was written to it.
    Corrupt {
        /// The block.
        block: (DevicePtr, Layout),
        /// The first byte that is wrong.
        at: usize,
        /// What was written, repeated.
        word: u32,
        /// The byte that is there.
        found: u8,
    },
    /// A call failed that had no reason to.
    Refused {
        /// What the call was.
        what: &'static str,
        /// What it returned.
        error: Error,
    },
    /// An alignment above the largest was served, not refused.
    AlignmentIgnored {
        /// The requested layout.
        layout: Layout,
        /// The largest that the resource says it honours.
        max_align: usize,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |layout: &Layout| layout.bytes();
        match self {
            Self::Overlap { block: (at, layout), live: (other, live) } => write!(
                f,
                "{} bytes at {at} overlap the live block of {} bytes at {other}",
                bytes(layout),
                bytes(live)
            ),
            Self::Misaligned { block: (at, layout) } => {
                write!(f, "{} bytes at {at} are not aligned to {}", bytes(layout), layout.block_align())
            }
            Self::NotLive { block: (at, layout) } => {
                write!(f, "{} bytes at {at} were freed and are not live", bytes(layout))
            }
            Self::WrongLayout { block: (at, layout), allocated } => write!(
                f,
                "the block at {at} was allocated with {} bytes aligned to {} and freed with {} aligned to {}",
                bytes(allocated),
                allocated.align(),
                bytes(layout),
                layout.align()
            ),
            Self::Corrupt { block: (at, layout), at: offset, word, found } => write!(
                f,
                "byte {offset} of the {} bytes at {at} is {found:#04x} and should be {:#04x}: {word:#x} was written, over and over",
                bytes(layout),
                byte_of(*word, *offset, bytes(layout))
            ),
            Self::Refused { what, error } => write!(f, "{what} failed: {error}"),
            Self::AlignmentIgnored { layout, max_align } => {
                let align = layout.align();
                write!(
                    f,
                    "a block aligned to {align} was served, and `max_align` says that {max_align} is the largest"
                )
            }
        }
    }
}

impl core::error::Error for Violation {}
