//! `Op`: a language of what can be done to a resource.

use crate::resource::Layout;

/// One step of a made-up program. Numbers are counted round, so that every list of operations means something.
///
/// A block is named by its place among the live ones, a stream by its place among the open ones. [`run_ops`](super::run_ops)
/// runs them.
///
/// ```
/// use alluvion::testing::Op;
///
/// let ops: Vec<Op> = Op::random(7).take(3).collect();
/// assert_eq!(ops, Op::random(7).take(3).collect::<Vec<_>>());
/// // What a fuzzer has: six bytes are one operation.
/// assert_eq!(Op::decode(&[0; 13]).len(), 2);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Allocates on a stream, and writes the whole block there.
    Allocate {
        /// The size.
        bytes: usize,
        /// The binary logarithm of the alignment, counted round at 64.
        align_log2: u8,
        /// The stream.
        stream: u8,
    },
    /// Allocates synchronously, and writes the whole block on a stream that has waited for nothing.
    AllocateSync {
        /// The size.
        bytes: usize,
        /// The stream.
        stream: u8,
    },
    /// Reads a block and writes it anew, on a stream that is made to wait for the last use.
    Use {
        /// The block.
        block: u8,
        /// The stream.
        stream: u8,
    },
    /// Reads a block and frees it, on a stream that is made to wait for the last use.
    Free {
        /// The block.
        block: u8,
        /// The stream.
        stream: u8,
    },
    /// Waits for the last use of a block, and frees it synchronously.
    FreeSync {
        /// The block.
        block: u8,
    },
    /// Makes a stream wait for another.
    Wait {
        /// Who waits.
        stream: u8,
        /// For whom.
        on: u8,
    },
    /// Makes the host wait for a stream.
    Synchronize {
        /// The stream.
        stream: u8,
    },
    /// Opens one more stream, up to eight.
    Open,
    /// Drops a stream, down to one. Its blocks stay live.
    Close {
        /// The stream.
        stream: u8,
    },
    /// Trims the resource.
    Trim {
        /// What it may keep.
        keep_bytes: usize,
    },
}

/// Six bytes make an operation: a kind, two numbers, and a size in three.
const ENCODED_BYTES: usize = 6;

impl Op {
    /// Random operations without end. The sizes are as likely to be small as large; about half of what is allocated is
    /// freed before long.
    pub fn random(seed: u64) -> impl Iterator<Item = Self> {
        // SplitMix64: good enough to choose by, and the same for one seed everywhere.
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x6A09_E667_F3BC_C909;
        core::iter::repeat_with(move || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            let [a, b, c, d, e, f, ..] = (mixed ^ (mixed >> 31)).to_le_bytes();
            Self::from_encoded([a, b, c, d, e, f])
        })
    }

    /// The operations that some bytes mean, six bytes each; what is left over means nothing.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Vec<Self> {
        bytes.as_chunks::<ENCODED_BYTES>().0.iter().copied().map(Self::from_encoded).collect()
    }

    fn from_encoded([kind, first, second, low, high, scale]: [u8; ENCODED_BYTES]) -> Self {
        // 16 bits of a size, and up to 8 more of a magnitude, so that small ones are as likely as large ones.
        let size = usize::from(u16::from_le_bytes([low, high]));
        let bytes = (size << (scale % 9)) >> (scale / 9 % 16);
        let (stream, block) = (first, second);
        match kind % 32 {
            // Alignments above 256 are rarer in programs, and most resources refuse them.
            0..=9 => Self::Allocate { bytes, align_log2: second % 9, stream },
            10 => Self::Allocate { bytes, align_log2: second % 64, stream },
            11 | 12 => Self::AllocateSync { bytes, stream },
            13..=16 => Self::Use { block, stream },
            17..=24 => Self::Free { block, stream },
            25 => Self::FreeSync { block },
            26 => Self::Wait { stream, on: second },
            27 => Self::Synchronize { stream },
            28 | 29 => Self::Open,
            30 => Self::Close { stream },
            _ => Self::Trim { keep_bytes: bytes },
        }
    }

    /// The same operation with a size that is at most `largest_bytes`, and an alignment that is at most twice `max_align`:
    /// one step too far, which must be refused.
    #[must_use]
    pub fn limited(self, largest_bytes: usize, max_align: usize) -> Self {
        match self {
            Self::Allocate { bytes, align_log2, stream } => Self::Allocate {
                bytes: bytes.min(largest_bytes),
                align_log2: (align_log2 % 64).min(max_align.trailing_zeros() as u8 + 1),
                stream,
            },
            Self::AllocateSync { bytes, stream } => {
                Self::AllocateSync { bytes: bytes.min(largest_bytes), stream }
            }
            other => other,
        }
    }

    /// The layout that is asked for, if it is an allocation and there is such a layout.
    pub(super) fn layout(self) -> Option<Layout> {
        match self {
            Self::Allocate { bytes, align_log2, .. } => Layout::new(bytes, 1 << (align_log2 % 64)).ok(),
            Self::AllocateSync { bytes, .. } => Layout::from_bytes(bytes).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_operations_are_of_every_kind_and_size() {
        let ops: Vec<Op> = Op::random(3).take(2000).collect();
        let kinds: std::collections::HashSet<_> = ops.iter().map(core::mem::discriminant).collect();
        assert_eq!(kinds.len(), 10);
        let sizes: Vec<usize> = ops.iter().filter_map(|op| op.layout()).map(Layout::bytes).collect();
        assert!(sizes.contains(&0) && sizes.iter().any(|&bytes| bytes > 1 << 20));
        assert!(sizes.iter().filter(|&&bytes| bytes < 256).count() > sizes.len() / 8);
    }

    #[test]
    fn a_limit_leaves_one_alignment_too_far() {
        let op = Op::Allocate { bytes: 1 << 30, align_log2: 40, stream: 0 };
        assert_eq!(op.limited(1 << 20, 256).layout(), Layout::new(1 << 20, 512).ok());
    }
}
