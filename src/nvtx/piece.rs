//! `Piece`: a piece of memory.

use super::abi::VirtualRange;

/// A piece of memory: where it begins, and how long it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Piece {
    pub(crate) fn new(address: u64, bytes: usize) -> Self {
        Self { address, bytes: bytes as u64 }
    }

    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }

    pub(super) fn contains(&self, other: &Self) -> bool {
        self.address <= other.address && other.end() <= self.end()
    }

    pub(super) fn range(&self) -> VirtualRange {
        VirtualRange { bytes: self.bytes as usize, address: self.address as usize }
    }
}
