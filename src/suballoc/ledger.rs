//! `Ledger`: the live blocks of a suballocator that checks frees.

use hashbrown::HashMap;

use crate::resource::card::{ArgumentKind, Parameter};
use crate::resource::{DevicePtr, Layout};
use crate::sync::Mutex;
use crate::tag::Tag;

/// With sixteen books, two threads seldom meet in one on a host of 16 cores; a book has two cache lines of its own.
const BOOKS: usize = 16;
const BOOK_BITS: u32 = BOOKS.ilog2();

/// The live blocks, with the size and the tag of each request.
///
/// It is used at every allocation and every free of a suballocator that checks. An insertion and a removal cost 42 ns
/// together with a thousand live blocks, and 120 ns with a million, when the books no longer fit the caches of the
/// processor: `cargo test --release --features testing --lib -- --ignored --nocapture the_cost_of_a_ledger`, on a
/// virtual machine with two cores. A live block takes 20 to 39 bytes of the host's memory, and the books do not shrink.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    books: [Book; BOOKS],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Book(Mutex<HashMap<u64, LedgerEntry>>);

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
        let entry = LedgerEntry::new(layout.bytes(), Tag::current());
        self.book(block).lock().insert(block.address(), entry);
    }

    /// The tag of a block; [`Tag::NONE`] if it is not live.
    pub(crate) fn tag(&self, block: DevicePtr) -> Tag {
        self.book(block).lock().get(&block.address()).map_or(Tag::NONE, |entry| entry.tag())
    }

    /// Removes a freed block. Of two threads that free one block at once, one gets [`LedgerMatch::Same`]. Sizes are
    /// compared; alignments are not, because a free does not use them.
    pub(crate) fn remove(&self, block: DevicePtr, layout: Layout) -> LedgerMatch {
        let mut book = self.book(block).lock();
        match book.get(&block.address()) {
            Some(entry) if entry.bytes() != layout.bytes() => LedgerMatch::OtherSize { bytes: entry.bytes() },
            Some(_) => {
                book.remove(&block.address());
                LedgerMatch::Same
            }
            None => LedgerMatch::Absent,
        }
    }

    /// Removes a block that may not be freed in the end: [`put_back`](Self::put_back) enters it again. `None` if it is not live
    /// with this size.
    pub(crate) fn withdraw(&self, block: DevicePtr, layout: Layout) -> Option<LedgerEntry> {
        let mut book = self.book(block).lock();
        let entry = *book.get(&block.address())?;
        if entry.bytes() != layout.bytes() {
            return None;
        }
        book.remove(&block.address())
    }

    /// Enters a block again that was withdrawn and not freed.
    pub(crate) fn put_back(&self, block: DevicePtr, entry: LedgerEntry) {
        self.book(block).lock().insert(block.address(), entry);
    }

    fn book(&self, block: DevicePtr) -> &Mutex<HashMap<u64, LedgerEntry>> {
        // Fibonacci hashing: the top bits of the product depend on all bits of the address.
        let hash = block.address().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.books[(hash >> (u64::BITS - BOOK_BITS)) as usize].0
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

    #[test]
    fn blocks_in_a_row_are_spread_over_the_books() {
        let ledger = Ledger::new();
        // Blocks of one unit, of a power of two, and of an odd multiple.
        for stride in [1, 8192, 8193] {
            for at in 0..1600 {
                ledger.insert(block(at * stride), layout(256));
            }
            for book in &ledger.books {
                let blocks = book.0.lock().len();
                assert!(
                    (50..200).contains(&blocks),
                    "{blocks} of 1600 blocks {stride} units apart are in one book"
                );
                book.0.lock().clear();
            }
        }
    }

    #[test]
    fn of_two_threads_that_free_a_block_one_does() {
        let ledger = Ledger::new();
        let blocks = 20_000;
        (0..blocks).for_each(|at| ledger.insert(block(at), layout(256)));
        let free_all =
            || (0..blocks).filter(|at| ledger.remove(block(*at), layout(256)) == LedgerMatch::Same).count();
        let freed = std::thread::scope(|scope| {
            let other = scope.spawn(free_all);
            free_all() + other.join().expect("it does not panic")
        });
        assert_eq!(freed as u64, blocks);
    }

    #[test]
    #[ignore = "a measurement, and no test"]
    fn the_cost_of_a_ledger() {
        for live in [1_000, 1_000_000] {
            let ledger = Ledger::new();
            (0..live).for_each(|at| ledger.insert(block(at), layout(256)));
            let (mut at, pairs) = (0, 4_000_000);
            let begin = std::time::Instant::now();
            for _ in 0..pairs {
                // In an order that the hardware cannot predict.
                at = (at + 7919 * 31) % live;
                assert_eq!(ledger.remove(block(at), layout(256)), LedgerMatch::Same);
                ledger.insert(block(at), layout(256));
            }
            println!("{live} live: {} ns a pair", begin.elapsed().as_nanos() / pairs);
        }
    }
}
