//! `FallbackBook`: the blocks of the second resource.

use core::fmt;

use crate::blocks::BlockTable;
use crate::resource::{DevicePtr, Layout};
use crate::sync::{AtomicU64, Ordering};

/// The book of a [`Fallback`](super::Fallback): the blocks that its second resource has out.
#[derive(Default)]
pub struct FallbackBook {
    /// The bytes of each.
    addresses: BlockTable<u64>,
    blocks: AtomicU64,
    bytes: AtomicU64,
    served: AtomicU64,
    failed: AtomicU64,
}

static_assertions::assert_impl_all!(FallbackBook: Send, Sync);

impl FallbackBook {
    // Relaxed, all that count: figures, but for one read, which says why.

    /// The live blocks of the second resource.
    #[must_use]
    pub fn live_blocks(&self) -> usize {
        self.blocks.load(Ordering::Relaxed) as usize
    }

    /// Their requested bytes.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) as usize
    }

    /// Requests that the second resource has served.
    #[must_use]
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Requests that failed because both were out.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Returns `true` in a child of the process that it was made in: whose a block is may not be known there.
    #[inline]
    pub(super) fn is_forked_child(&self) -> bool {
        self.addresses.is_forked_child()
    }

    pub(super) fn count_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Records a block of the second resource.
    pub(super) fn enter(&self, block: DevicePtr, layout: Layout) {
        if layout.is_empty() {
            return;
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        self.add(block, layout.bytes() as u64);
    }

    /// The second resource has refused the free of a block: it is out still.
    #[cold]
    pub(super) fn stays(&self, block: DevicePtr, bytes: u64) {
        if !self.is_forked_child() {
            self.add(block, bytes);
        }
    }

    fn add(&self, block: DevicePtr, bytes: u64) {
        self.addresses.insert(block, bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a block. Returns the bytes that it was asked for with, if it was one of the second resource.
    #[inline]
    pub(super) fn leave(&self, block: DevicePtr, layout: Layout) -> Option<u64> {
        // Relaxed: whoever frees a block comes after its `enter`, as the one who passed the block on saw to; so the read sees at
        // least that addition, which only its own `leave` takes back.
        if self.blocks.load(Ordering::Relaxed) == 0 { None } else { self.forget(block, layout) }
    }

    /// Returns `true` if a live block is one of the second resource.
    pub(super) fn has(&self, block: DevicePtr) -> bool {
        // Relaxed: as in `leave`.
        self.blocks.load(Ordering::Relaxed) != 0 && self.addresses.get(block).is_some()
    }

    #[cold]
    fn forget(&self, block: DevicePtr, layout: Layout) -> Option<u64> {
        if layout.is_empty() {
            return None;
        }
        let bytes = self.addresses.take(block)?;
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        Some(bytes)
    }
}

impl fmt::Debug for FallbackBook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FallbackBook({} blocks, {} bytes)", self.live_blocks(), self.live_bytes())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_entered_leaves_once() {
        let spill = FallbackBook::default();
        let (block, layout) = (DevicePtr::new(0x1000).unwrap(), Layout::from_bytes(100).unwrap());
        assert!(spill.leave(block, layout).is_none());
        spill.enter(block, layout);
        assert_eq!(format!("{spill:?}"), "FallbackBook(1 blocks, 100 bytes)");
        assert!(spill.leave(block.offset(256), layout).is_none());
        assert!(spill.leave(block, Layout::from_bytes(0).unwrap()).is_none(), "zero bytes are nobody's");
        assert_eq!((spill.leave(block, layout), spill.leave(block, layout)), (Some(100), None));
        assert_eq!((spill.live_blocks(), spill.live_bytes(), spill.served()), (0, 0, 1));
    }
}
