//! `LiveBlocks`: layouts and owners of the blocks that are out, by their addresses.

use core::cmp::Ordering;
use core::fmt;
use std::collections::BTreeMap;

use crate::blocks::Shards;
use crate::driver::DriverResult;
use crate::error::{Error, Misuse, MisuseKind};
use crate::resource::{DevicePtr, Layout};
use crate::stream::{Frontier, Stream, StreamRef};

/// A power of two. Of 16 threads that each use one block again and again, two pairs meet in one of 64 shards on average, and hold its
/// lock for some 20 ns each. A question about the middle of a block looks into each shard.
const SHARDS: usize = 64;

/// The largest alignment that a resource honours, which [`Pinned`](crate::source::Pinned) does. It is less than the addresses of a device, of which some are powers of two.
const LARGEST_DANGLING: u64 = 1 << 30;

/// Whether an address that no block has is that of zero bytes: [`Layout::dangling`]. No memory begins there.
#[cold]
fn is_of_zero_bytes(block: DevicePtr) -> bool {
    let address = block.address();
    address.is_power_of_two() && (Layout::MIN_ALIGN as u64..=LARGEST_DANGLING).contains(&address)
}

/// That no block which is out is at an address.
#[cold]
pub(super) fn not_out(block: DevicePtr) -> Error {
    Error::of_misuse(Misuse { block, bytes: 0, what: MisuseKind::NotOut })
}

/// A block of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerBlock {
    /// Its address.
    pub block: DevicePtr,
    /// The layout that it was asked for with.
    pub layout: Layout,
}

impl LedgerBlock {
    fn contains(self, address: DevicePtr) -> bool {
        // A block of a ledger is never empty, and its own address is at most the one asked for.
        address.address() - self.block.address() < self.layout.bytes() as u64
    }
}

/// The blocks that are out, by their addresses.
///
/// The shard of a block follows from its address, so an insertion and a removal take one lock each, for one step of an ordered table.
/// The tables are ordered so that the block around an address is the last one at or below it, in one of them: see
/// [`containing`](Self::containing).
pub(super) struct LiveBlocks<O> {
    shards: Box<Shards<Shard<O>, SHARDS>>,
}

struct Shard<O> {
    blocks: BTreeMap<Address, LiveBlock<O>>,
    /// The sum of the bytes that were asked for.
    bytes: usize,
}

/// What is known of a block that is out.
pub(super) struct LiveBlock<O> {
    pub(super) layout: Layout,
    /// Where it goes back to.
    pub(super) owner: O,
    /// The streams that were recorded.
    #[expect(
        clippy::box_collection,
        reason = "one word of each entry where there are none, as almost always"
    )]
    users: Option<Box<Vec<Stream>>>,
}

/// An address as the key of a table. In tests its comparisons are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Address(u64);

impl PartialOrd for Address {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Address {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        #[cfg(all(test, not(loom)))]
        tests::count_comparison();
        self.0.cmp(&other.0)
    }
}

impl<O> LiveBlock<O> {
    pub(super) fn new(layout: Layout, owner: O) -> Self {
        Self { layout, owner, users: None }
    }

    /// Makes `stream`, which the block is freed on, come after the work of the streams that were recorded.
    pub(super) fn settle(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        let Some(users) = &self.users else { return Ok(()) };
        stream.wait_for(&released(users.iter().filter(|user| user.id() != stream.id())))
    }

    /// Waits for the work of the streams that were recorded, on the host.
    pub(super) fn settle_on_host(&self) -> Result<(), Error> {
        let Some(users) = &self.users else { return Ok(()) };
        users.iter().try_for_each(|user| user.device().machine().wait_quiescent(&released([user])))
    }
}

/// The points that streams have come to.
fn released<'s>(streams: impl IntoIterator<Item = &'s Stream>) -> Frontier {
    let mut points = Frontier::quiescent();
    streams.into_iter().for_each(|stream| points.extend(stream.release()));
    points
}

impl<O> Default for Shard<O> {
    fn default() -> Self {
        Self { blocks: BTreeMap::new(), bytes: 0 }
    }
}

impl<O> Default for LiveBlocks<O> {
    fn default() -> Self {
        Self { shards: Box::default() }
    }
}

impl<O> LiveBlocks<O> {
    pub(super) fn require_same_process(&self) -> DriverResult<()> {
        self.shards.require_same_process()
    }

    /// Enters a block that goes out.
    pub(super) fn insert(&self, block: DevicePtr, live: LiveBlock<O>) {
        let bytes = live.layout.bytes();
        let stale = {
            let mut shard = self.shards.of(block).lock();
            let stale = shard.blocks.insert(Address(block.address()), live);
            let stale_bytes = stale.as_ref().map_or(0, |stale| stale.layout.bytes());
            shard.bytes = shard.bytes - stale_bytes + bytes;
            stale
        };
        // Somebody has freed the block past the ledger. Its owner and its streams may be their last handles: not under the lock.
        drop(stale);
    }

    /// Removes a block that comes back. Of two threads that free one block at once, one gets it.
    fn take(&self, block: DevicePtr) -> Result<LiveBlock<O>, Error> {
        let taken = {
            let mut shard = self.shards.of(block).lock();
            let taken = shard.blocks.remove(&Address(block.address()));
            shard.bytes -= taken.as_ref().map_or(0, |taken| taken.layout.bytes());
            taken
        };
        taken.ok_or_else(|| self.misuse(block))
    }

    /// Takes a block out that is freed, and settles its recorded streams: where that fails, the block is out as before. `None` for the
    /// address of zero bytes.
    #[inline]
    pub(super) fn take_settled(
        &self,
        block: DevicePtr,
        settle: impl FnOnce(&LiveBlock<O>) -> Result<(), Error>,
    ) -> Result<Option<LiveBlock<O>>, Error> {
        let live = match self.take(block) {
            Ok(live) => live,
            Err(_) if is_of_zero_bytes(block) => return Ok(None),
            Err(misuse) => return Err(misuse),
        };
        match settle(&live) {
            Ok(()) => Ok(Some(live)),
            Err(error) => {
                self.insert(block, live);
                Err(error)
            }
        }
    }

    /// Takes a block out that is not freed here.
    pub(super) fn forget(&self, block: DevicePtr) -> Result<LedgerBlock, Error> {
        let live = self.take(block)?;
        Ok(LedgerBlock { block, layout: live.layout })
    }

    /// Whether a block that is out begins there. One step of a table.
    pub(super) fn is_out(&self, block: DevicePtr) -> bool {
        self.shards.of(block).lock().blocks.contains_key(&Address(block.address()))
    }

    /// Why a block cannot come back that was not found.
    #[cold]
    fn misuse(&self, block: DevicePtr) -> Error {
        match self.containing(block) {
            Some(around) => {
                let what = MisuseKind::InteriorPointer { block: around.block };
                Error::of_misuse(Misuse { block, bytes: 0, what })
            }
            None => not_out(block),
        }
    }

    /// The block that an address lies in, which may be its start. One step of a table for the start of a block, and else one for each
    /// shard.
    pub(super) fn containing(&self, address: DevicePtr) -> Option<LedgerBlock> {
        self.look_at(address, |block, _| block)
    }

    /// Calls `look` with the block that an address lies in, under the lock of its shard: `look` runs no foreign code.
    pub(super) fn look_at<T>(
        &self,
        address: DevicePtr,
        look: impl FnOnce(LedgerBlock, &mut LiveBlock<O>) -> T,
    ) -> Option<T> {
        let mut look = Some(look);
        let mut look_once =
            |block: LedgerBlock, live: &mut LiveBlock<O>| look.take().map(|look| look(block, live));
        if let Some(live) = self.shards.of(address).lock().blocks.get_mut(&Address(address.address())) {
            return look_once(LedgerBlock { block: address, layout: live.layout }, live);
        }
        self.shards.each().find_map(|mut shard| {
            let (start, live) = shard.blocks.range_mut(..=Address(address.address())).next_back()?;
            let block = LedgerBlock { block: DevicePtr::new(start.0)?, layout: live.layout };
            if block.contains(address) { look_once(block, live) } else { None }
        })
    }

    /// Notes that a stream uses the block that an address lies in, besides the one that it is freed on.
    pub(super) fn record_stream(&self, address: DevicePtr, stream: StreamRef<'_>) -> Result<(), Error> {
        let noted = self.look_at(address, |_, live| {
            let users = live.users.get_or_insert_default();
            if users.iter().all(|user| user.id() != stream.id()) {
                users.push(stream.to_stream());
            }
        });
        noted.ok_or_else(|| not_out(address))
    }

    /// The number of blocks that are out.
    pub(super) fn blocks(&self) -> usize {
        self.shards.each().map(|shard| shard.blocks.len()).sum()
    }

    /// The bytes that were asked for in them.
    pub(super) fn bytes(&self) -> usize {
        self.shards.each().map(|shard| shard.bytes).sum()
    }

    /// The blocks that are out, in the order of their addresses. Each shard is looked at in its turn.
    pub(super) fn all(&self) -> Vec<LedgerBlock> {
        let mut all = Vec::new();
        for shard in self.shards.each() {
            all.extend(shard.blocks.iter().filter_map(|(start, live)| {
                Some(LedgerBlock { block: DevicePtr::new(start.0)?, layout: live.layout })
            }));
        }
        all.sort_unstable_by_key(|block| block.block.address());
        all
    }
}

impl<O> fmt::Debug for LiveBlocks<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.require_same_process().is_err() {
            return f.write_str("of a parent process");
        }
        write!(f, "{} blocks of {} bytes", self.blocks(), self.bytes())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::cell::Cell;

    use super::*;

    thread_local! {
        static COMPARISONS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_comparison() {
        COMPARISONS.set(COMPARISONS.get() + 1);
    }

    fn comparisons_of<T>(body: impl FnOnce() -> T) -> (T, usize) {
        let before = COMPARISONS.get();
        let answer = body();
        (answer, COMPARISONS.get() - before)
    }

    fn block(at: u64) -> DevicePtr {
        DevicePtr::new(0x7F00_0000_0000 + at * 256).expect("it is not null")
    }

    fn live(bytes: usize) -> LiveBlock<()> {
        LiveBlock::new(Layout::from_bytes(bytes).expect("it is small"), ())
    }

    /// Each node of the table has at most 11 keys, and all but the root have 5 at least: a shard with its share of a million blocks,
    /// 15,625, has at most 6 levels, so a step compares at most 66 keys.
    #[test]
    fn a_million_blocks_cost_no_scan() {
        let blocks = LiveBlocks::default();
        let count = 1_000_000;
        (0..count).for_each(|at| blocks.insert(block(4 * at), live(1024)));
        assert_eq!((blocks.blocks(), blocks.bytes()), (1_000_000, 1_024_000_000));
        // A generator with a whole period over the blocks.
        let mut at = 1;
        for _ in 0..1000 {
            at = (at * 421 + 54_773) % count;
            let (found, start) = comparisons_of(|| blocks.containing(block(4 * at)));
            assert_eq!(found.map(|found| found.block), Some(block(4 * at)));
            let (found, middle) = comparisons_of(|| blocks.containing(block(4 * at).offset(1023)));
            assert_eq!(found.map(|found| found.block), Some(block(4 * at)));
            let (taken, pair) = comparisons_of(|| {
                let taken = blocks.take(block(4 * at)).expect("it is out");
                blocks.insert(block(4 * at), taken);
            });
            assert_eq!(taken, ());
            assert!(start <= 66 && pair <= 2 * 66, "{start} for a start, {pair} for a pair");
            // The shard of the address itself is asked twice; a step over a range compares with both ends of the range.
            assert!(middle <= 2 * 66 * (SHARDS + 1), "{middle} for the middle of a block");
        }
    }

    #[test]
    fn an_address_is_in_a_block_up_to_the_last_byte_asked_for() {
        let blocks = LiveBlocks::default();
        blocks.insert(block(4), live(300));
        blocks.insert(block(6), live(1));
        let start = |address: DevicePtr| blocks.containing(address).map(|found| found.block);
        assert_eq!(start(block(4)), Some(block(4)));
        assert_eq!(start(block(4).offset(299)), Some(block(4)));
        // Rounded up it would be inside.
        assert_eq!(start(block(4).offset(300)), None);
        assert_eq!((start(block(6)), start(block(6).offset(1))), (Some(block(6)), None));
        assert_eq!((start(block(3)), start(block(7)), start(block(0))), (None, None, None));
    }

    #[test]
    fn a_stranger_and_the_middle_of_a_block_do_not_come_back() {
        let blocks = LiveBlocks::default();
        blocks.insert(block(4), live(300));
        let misuse =
            |address: DevicePtr| blocks.take(address).err().and_then(|error| error.misuse().copied());
        let of = |address: DevicePtr, what| Some(Misuse { block: address, bytes: 0, what });
        assert_eq!(misuse(block(5)), of(block(5), MisuseKind::InteriorPointer { block: block(4) }));
        assert_eq!(misuse(block(6)), of(block(6), MisuseKind::NotOut));
        assert!(blocks.take(block(4)).is_ok());
        assert_eq!(misuse(block(4)), of(block(4), MisuseKind::NotOut));
        assert_eq!((blocks.blocks(), blocks.bytes()), (0, 0));
    }

    #[test]
    fn a_block_that_was_freed_past_the_ledger_makes_room() {
        let blocks = LiveBlocks::default();
        blocks.insert(block(4), live(300));
        blocks.insert(block(4), live(100));
        assert_eq!((blocks.blocks(), blocks.bytes()), (1, 100));
    }

    #[test]
    #[ignore = "a measurement, and no test"]
    fn the_cost_of_a_ledger() {
        for count in [1, 1000, 1_000_000] {
            let blocks = LiveBlocks::default();
            (0..count).for_each(|at| blocks.insert(block(at), live(256)));
            let (mut at, pairs) = (0, 4_000_000);
            let begin = std::time::Instant::now();
            for _ in 0..pairs {
                // In an order that the hardware cannot predict.
                at = (at + 7919 * 31) % count;
                let taken = blocks.take(block(at)).expect("it is out");
                blocks.insert(block(at), taken);
            }
            println!("{count} live: {} ns a pair", begin.elapsed().as_nanos() / pairs);
        }
    }
}
