//! `Ledger`: the live blocks of a suballocator that checks frees.

use crate::blocks::BlockTable;
use crate::resource::card::{ArgumentKind, Parameter};
use crate::resource::{DevicePtr, Layout};
use crate::tag::Tag;

/// The live blocks, with the size and the tag of each request.
///
/// It is used at every allocation and every free of a suballocator that checks: [`BlockTable`] says what that costs.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    blocks: BlockTable<LedgerEntry>,
}

/// The bytes and the tag of a block, in one word, so that tags need no more memory. A block of a suballocator has less
/// than 1 TiB, 40 bits, and there are 65,537 tags, 17 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerEntry(u64);

const BYTES_BITS: u32 = 44;

impl LedgerEntry {
    fn new(bytes: usize, tag: Tag) -> Self {
        Self(u64::from(tag.number()) << BYTES_BITS | bytes as u64)
    }

    fn bytes(self) -> usize {
        (self.0 & ((1 << BYTES_BITS) - 1)) as usize
    }

    fn tag(self) -> Tag {
        Tag::numbered((self.0 >> BYTES_BITS) as u32)
    }
}

/// The answer of the ledger about a freed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum LedgerMatch {
    /// The block was live, with this size. Now it is not.
    Same,
    /// The block is live, and stays so: it was allocated with `bytes`.
    OtherSize {
        /// The bytes that it was allocated with.
        bytes: usize,
    },
    /// No live block begins there.
    Absent,
}

impl Ledger {
    /// The parameter `checked` of a suballocator.
    pub(super) const CHECKED: Parameter = Parameter::new(
        "checked",
        ArgumentKind::Flag,
        "refuses wrong frees; if left out, true in debug builds and on a simulated machine",
    );

    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a block that goes out, with the tag of this thread.
    pub(crate) fn insert(&self, block: DevicePtr, layout: Layout) {
        self.blocks.insert(block, LedgerEntry::new(layout.bytes(), Tag::current()));
    }

    /// The tag of a block; [`Tag::NONE`] if it is not live.
    pub(crate) fn tag(&self, block: DevicePtr) -> Tag {
        self.blocks.get(block).map_or(Tag::NONE, LedgerEntry::tag)
    }

    /// Removes a freed block. Of two threads that free one block at once, one gets [`LedgerMatch::Same`]. Sizes are
    /// compared; alignments are not, because a free does not use them.
    pub(crate) fn remove(&self, block: DevicePtr, layout: Layout) -> LedgerMatch {
        match self.blocks.take_if(block, |entry| entry.bytes() == layout.bytes()) {
            Ok(_) => LedgerMatch::Same,
            Err(Some(entry)) => LedgerMatch::OtherSize { bytes: entry.bytes() },
            Err(None) => LedgerMatch::Absent,
        }
    }

    /// Removes a block that may not be freed in the end: [`put_back`](Self::put_back) enters it again. `None` if it is not live
    /// with this size.
    pub(crate) fn withdraw(&self, block: DevicePtr, layout: Layout) -> Option<LedgerEntry> {
        self.blocks.take_if(block, |entry| entry.bytes() == layout.bytes()).ok()
    }

    /// Enters a block again that was withdrawn and not freed.
    pub(crate) fn put_back(&self, block: DevicePtr, entry: LedgerEntry) {
        self.blocks.insert(block, entry);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn block(at: u64) -> DevicePtr {
        DevicePtr::new(0x7F00_0000_0000 + at * 256).expect("it is not null")
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_bytes(bytes).expect("it is small")
    }

    #[test]
    fn a_block_leaves_once_and_with_its_own_size() {
        let ledger = Ledger::new();
        ledger.insert(block(1), layout(300));
        assert_eq!(ledger.remove(block(1), layout(301)), LedgerMatch::OtherSize { bytes: 300 });
        assert_eq!(ledger.remove(block(2), layout(300)), LedgerMatch::Absent);
        // It is live all the same.
        assert_eq!(ledger.remove(block(1), layout(300)), LedgerMatch::Same);
        assert_eq!(ledger.remove(block(1), layout(300)), LedgerMatch::Absent);
        // And may come again, of another size.
        ledger.insert(block(1), layout(512));
        assert_eq!(ledger.remove(block(1), layout(300)), LedgerMatch::OtherSize { bytes: 512 });
        assert_eq!(ledger.remove(block(1), layout(512)), LedgerMatch::Same);
    }

    #[test]
    fn a_block_that_is_put_back_is_live_as_before() {
        use crate::tag::with_tag;

        let ledger = Ledger::new();
        let tag = with_tag("join", || {
            ledger.insert(block(1), layout(300));
            Tag::current()
        });
        assert!(
            ledger.withdraw(block(1), layout(301)).is_none()
                && ledger.withdraw(block(2), layout(300)).is_none()
        );
        let entry = ledger.withdraw(block(1), layout(300)).expect("it is live");
        assert_eq!(ledger.remove(block(1), layout(300)), LedgerMatch::Absent);
        ledger.put_back(block(1), entry);
        assert_eq!(ledger.tag(block(1)), tag);
        assert_eq!(ledger.remove(block(1), layout(300)), LedgerMatch::Same);
    }

    #[test]
    fn a_block_has_the_tag_that_it_was_allocated_under() {
        use crate::tag::with_tag;

        let ledger = Ledger::new();
        let largest = layout((1 << 40) - 256);
        let join = with_tag("join", || {
            ledger.insert(block(1), largest);
            Tag::current()
        });
        ledger.insert(block(2), layout(1));
        assert_eq!(
            (ledger.tag(block(1)), ledger.tag(block(2)), ledger.tag(block(3))),
            (join, Tag::NONE, Tag::NONE)
        );
        assert_eq!(ledger.remove(block(1), layout(1)), LedgerMatch::OtherSize { bytes: (1 << 40) - 256 });
        assert_eq!(ledger.remove(block(1), largest), LedgerMatch::Same);
        assert_eq!(ledger.tag(block(1)), Tag::NONE);
        let last = Tag::numbered((1 << 16) + 1);
        assert_eq!((LedgerEntry::new(7, last).tag(), LedgerEntry::new(7, last).bytes()), (last, 7));
    }
}
