//! `StatsShard`: the counts of one thread.

use std::sync::OnceLock;

use super::by_tag::{ByTag, OfTag};
use crate::sync::{AtomicU64, Ordering};
use crate::tag::Tag;

/// Numbers that one thread writes and others read, in cache lines of their own. Two lines, because a processor fetches
/// them in pairs.
///
/// Accesses are Relaxed where nothing else is said: there is one writer, so nothing is lost between a load and a store of its own; who reads an exact
/// number comes after what was counted by other means, such as a join. The writer is the thread that has the seat, and the
/// next one that has it comes after it: see [`Seat`](crate::sync::Seat).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct StatsShard {
    /// The interval in which `bytes.high` and `blocks.high` were reached: see `Summit`.
    pub(super) interval: AtomicU64,
    pub(super) bytes: Count,
    pub(super) blocks: Count,
    pub(super) failures: AtomicU64,
    by_tag: OnceLock<Box<ByTag>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<StatsShard>() == 128);

/// One quantity that a thread counts. Differences are two's complement: a thread may free more than it has allocated.
///
/// Allocations and frees are two numbers, so that each call stores once, and the two stores are independent.
#[derive(Debug, Default)]
pub(super) struct Count {
    came: AtomicU64,
    went: AtomicU64,
    /// The peak since the interval began, or since the last publication.
    high: AtomicU64,
    /// The peak in the interval before the last publication.
    top: AtomicU64,
    /// The live amount at the last publication.
    published: AtomicU64,
    /// Below this live amount it is published again.
    floor: AtomicU64,
}

/// Adds to a number that no other thread writes.
#[inline]
pub(super) fn bump(number: &AtomicU64, by: u64) -> u64 {
    let sum = number.load(Ordering::Relaxed).wrapping_add(by);
    number.store(sum, Ordering::Relaxed);
    sum
}

#[inline]
fn signed(number: &AtomicU64) -> i64 {
    number.load(Ordering::Relaxed) as i64
}

impl Count {
    /// Counts an allocation. Returns a negative number if the live amount is a new peak of this thread.
    #[inline]
    pub(super) fn come(&self, amount: u64) -> i64 {
        let live = bump(&self.came, amount).wrapping_sub(self.went.load(Ordering::Relaxed));
        signed(&self.high).wrapping_sub(live as i64)
    }

    /// Counts a free. Returns a negative number if the live amount has to be published.
    #[inline]
    pub(super) fn go(&self, amount: u64) -> i64 {
        let went = self.went.load(Ordering::Relaxed).wrapping_add(amount);
        // Release: pairs with the acquire in `live`.
        self.went.store(went, Ordering::Release);
        let live = self.came.load(Ordering::Relaxed).wrapping_sub(went);
        (live as i64).wrapping_sub(signed(&self.floor))
    }

    /// Takes back a free that was counted. Returns a negative number if the live amount is a new peak of this thread.
    pub(super) fn stay(&self, amount: u64) -> i64 {
        let went = self.went.load(Ordering::Relaxed).wrapping_sub(amount);
        // Release: as in `go`.
        self.went.store(went, Ordering::Release);
        let live = self.came.load(Ordering::Relaxed).wrapping_sub(went);
        signed(&self.high).wrapping_sub(live as i64)
    }

    /// What came, less what went.
    pub(super) fn live(&self) -> i64 {
        // Acquire: pairs with the release in `go`. The thread may count meanwhile: who sees a block go has seen it come.
        let went = self.went.load(Ordering::Acquire);
        self.came.load(Ordering::Relaxed).wrapping_sub(went) as i64
    }

    /// What came.
    pub(super) fn total(&self) -> i64 {
        signed(&self.came)
    }

    /// The peak in the interval.
    pub(super) fn highest(&self) -> i64 {
        // Acquire: pairs with the releases of those who write it. Who sees it begin anew has seen it go to `top`.
        let high = self.high.load(Ordering::Acquire) as i64;
        high.max(signed(&self.top))
    }

    /// Returns `true` if no call has been counted.
    pub(super) fn is_untouched(&self) -> bool {
        (self.came.load(Ordering::Relaxed) | self.went.load(Ordering::Relaxed)) == 0
    }

    /// By how much the peak is above the published amount.
    pub(super) fn rise(&self) -> i64 {
        signed(&self.high).wrapping_sub(signed(&self.published))
    }

    /// By how much the live amount differs from the published one.
    pub(super) fn drift(&self) -> i64 {
        self.live().wrapping_sub(signed(&self.published))
    }

    /// Sets the peak to the live amount before `amount` was allocated.
    pub(super) fn begin_interval(&self, amount: i64) {
        let before = self.live().wrapping_sub(amount) as u64;
        self.top.store(before, Ordering::Relaxed);
        // Release, here and below: pairs with the acquire in `highest`.
        self.high.store(before, Ordering::Release);
    }

    /// Raises the peak to the live amount.
    pub(super) fn raise(&self) {
        let live = self.live();
        if live > signed(&self.high) {
            self.high.store(live as u64, Ordering::Release);
        }
    }

    /// Notes that the live amount has been published.
    pub(super) fn note_published(&self, slack: i64) {
        let live = self.live();
        self.top.store(signed(&self.top).max(signed(&self.high)) as u64, Ordering::Relaxed);
        self.high.store(live as u64, Ordering::Release);
        self.published.store(live as u64, Ordering::Relaxed);
        self.floor.store(live.saturating_sub(slack) as u64, Ordering::Relaxed);
    }
}

/// The identity of a shard, by its address: shards do not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardId(usize);

impl StatsShard {
    pub(super) fn id(&self) -> ShardId {
        ShardId(core::ptr::from_ref(self).addr())
    }

    /// Bytes and blocks.
    pub(super) fn counts(&self) -> [&Count; 2] {
        [&self.bytes, &self.blocks]
    }

    /// A new shard, which publishes a live amount below `-slack`.
    pub(super) fn new(interval: u64, slack: [i64; 2]) -> Self {
        let shard = Self::default();
        shard.interval.store(interval, Ordering::Relaxed);
        shard.bytes.note_published(slack[0]);
        shard.blocks.note_published(slack[1]);
        shard
    }

    /// The counts of this thread under `tag`, made at the first use.
    pub(super) fn of_tag(&self, tag: Tag) -> &OfTag {
        self.by_tag.get_or_init(Box::default).of(tag)
    }

    pub(super) fn tags(&self) -> impl Iterator<Item = &OfTag> {
        self.by_tag.get().into_iter().flat_map(|by_tag| by_tag.iter())
    }
}
