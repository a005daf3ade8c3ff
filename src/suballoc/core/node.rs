//! `BlockNode`: the data of one block.

use super::{Owner, UNIT};

/// The place of a node in the table.
pub(super) type Id = u32;

/// No node. The table has a node there, out and empty, that may be read, and whose neighbours may be written: so the
/// ends of a chain or of a bin need no branch.
pub(super) const NONE: Id = 0;

/// The data of one block.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockNode {
    pub(super) address: u64,
    /// The epoch of the free, if a stream owns the block; else 0.
    pub(super) epoch: u64,
    pub(super) units: u32,
    /// The neighbours within the segment, in the order of addresses.
    pub(super) before: Id,
    pub(super) after: Id,
    /// The neighbours in the bin, of a free block. Of a vacant node, `next` is the next vacant one.
    pub(super) prev: Id,
    pub(super) next: Id,
    /// The owner of a free block, or one of the constants of [`Owner`], such as [`Owner::OUT`].
    pub(super) holder: Owner,
}

impl BlockNode {
    pub(super) const VACANT: Self = Self {
        address: 0,
        epoch: 0,
        units: 0,
        before: NONE,
        after: NONE,
        prev: NONE,
        next: NONE,
        holder: Owner::VACANT,
    };

    /// The node at [`NONE`].
    pub(super) const NOTHING: Self = Self { holder: Owner::OUT, ..Self::VACANT };

    /// The address behind its last byte.
    #[inline]
    pub(super) const fn end(&self) -> u64 {
        self.address + self.units as u64 * UNIT
    }

    /// Returns `true` if the block is its whole segment.
    #[inline]
    pub(super) const fn is_whole(&self) -> bool {
        self.before == NONE && self.after == NONE
    }
}

const _: () = assert!(size_of::<BlockNode>() == 40, "the promise of 64 bytes a block is counted from this");
