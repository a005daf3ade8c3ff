//! `Stats`: counts allocations and frees.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

mod book;

pub use book::{Counter, Counts, Scope, StatsBook, TagCounts};
use book::{SLACK_BYTES, SignedSize};

use core::fmt;

use crate::error::{Error, is_freed_by};
use crate::forward_resource;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, Figures, Layer, LayerBook, Layout, Resource, ResourceId,
    blocks_of_upstream,
};
use crate::stream::StreamRef;

/// Counts bytes and blocks: live, peak and total, and refused requests.
///
/// Its book is a [`StatsBook`], which has scopes and tags. A pair of calls costs 5 ns at most, takes no lock, and shares no line of
/// memory with another thread: `alluvion bench layers` measures it.
///
/// Bytes are the requested ones, before the upstream rounds them up. Requests for zero bytes are passed on and not
/// counted; RMM counts them as allocations, and so does [`count_empty`](Self::count_empty). A block is counted after the upstream has allocated it, and its free before
/// the upstream frees it.
///
/// # Stream ordering
///
/// As the upstream's.
///
/// # Thread safety
///
/// As the upstream's. A block may be freed on another thread than it was allocated on.
///
/// # Examples
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stats = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(8 << 20))?.stats();
/// let stream = sim.device(0).stream()?;
/// let numbers = DeviceVec::<u32, _>::zeroed_in(1 << 18, &stream, &stats)?;
/// assert_eq!(stats.describe().to_string(), "Stats(1 MiB) > Pool(8 MiB) > Cuda(gpu 0)");
/// drop(numbers);
/// let counts = stats.counts();
/// assert_eq!((counts.bytes.live, counts.bytes.peak, counts.allocations.total), (0, 1 << 20, 1));
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Stats<U = AnyResource> {
    upstream: U,
    tally: StatsBook,
    id: ResourceId,
    counts_empty: bool,
}

static_assertions::assert_impl_all!(Stats<crate::source::Cuda>: Send, Sync, DeviceAccessible);
static_assertions::assert_impl_all!(Stats<crate::source::Pinned>: crate::resource::HostAccessible);
static_assertions::assert_not_impl_any!(Stats<crate::source::Cuda>: Clone, crate::resource::HostAccessible);

impl Stats {
    pub(crate) const CARD: Card = Card {
        name: "stats",
        about: "Counts live and peak bytes and blocks, in total and by tag.",
        parameters: &[Parameter::new(
            "slack",
            ArgumentKind::Size,
            "how far a thread's bytes may be from the common count; 4MiB if left out",
        )],
    };
}

impl<U> Stats<U> {
    /// Counts the calls to `upstream`.
    #[must_use]
    pub fn new(upstream: U) -> Self {
        Self::with_slack(upstream, SLACK_BYTES)
    }

    /// As [`new`](Self::new), with another slack for the peaks of several threads: see [`StatsBook`]. With 0 they are exact, and
    /// every call takes a lock that the threads share.
    ///
    /// ```
    /// use alluvion::adaptor::Stats;
    /// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stats = Stats::with_slack(Cuda::new(&sim.device(0)), 0);
    /// assert_eq!(stats.describe().to_string(), "Stats(0 B) > Cuda(gpu 0)");
    /// ```
    #[must_use]
    pub fn with_slack(upstream: U, slack_bytes: usize) -> Self {
        Self { upstream, tally: StatsBook::new(slack_bytes), id: ResourceId::unique(), counts_empty: false }
    }

    /// Counts requests for zero bytes, too, as RMM does: a block of no bytes.
    ///
    /// ```
    /// use alluvion::adaptor::Stats;
    /// use alluvion::{Layout, Resource, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stats = Stats::new(Cuda::new(&sim.device(0))).count_empty(true);
    /// stats.allocate_sync(Layout::from_bytes(0)?)?;
    /// assert_eq!((stats.counts().allocations.live, stats.counts().bytes.live), (1, 0));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn count_empty(mut self, counts_empty: bool) -> Self {
        self.counts_empty = counts_empty;
        self
    }

    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// Its book.
    #[must_use]
    pub fn book(&self) -> &StatsBook {
        &self.tally
    }

    /// The counts: see [`StatsBook::counts`].
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.tally.counts()
    }

    /// Whether a block of this layout is counted.
    #[inline]
    fn counts_one(&self, layout: Layout) -> bool {
        self.counts_empty || !layout.is_empty()
    }

    #[inline]
    fn note(&self, layout: Layout, outcome: &Result<DevicePtr, Error>) {
        match outcome {
            Ok(_) if !self.counts_one(layout) => {}
            Ok(_) => self.tally.allocated(layout.bytes()),
            Err(_) => self.tally.failed(),
        }
    }

    #[inline]
    fn forget(&self, layout: Layout) {
        if self.counts_one(layout) {
            self.tally.freed(layout.bytes());
        }
    }

    /// A block that was counted as freed is out still: the upstream has refused it.
    #[cold]
    fn remember(&self, layout: Layout) {
        if self.counts_one(layout) {
            self.tally.not_freed(layout.bytes());
        }
    }
}

// SAFETY: the blocks are the upstream's, which keeps the contract; the id is this layer's own, so only what came through it
// comes back through it.
unsafe impl<U: Resource> Resource for Stats<U> {
    #[inline]
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        let outcome = self.upstream.allocate(layout, stream);
        self.note(layout, &outcome);
        outcome
    }

    #[inline]
    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.forget(layout);
        // SAFETY: the caller's promises; a block with this id came from the upstream.
        if !is_freed_by(|| unsafe { self.upstream.deallocate(block, layout, stream) }) {
            self.remember(layout);
        }
    }

    #[inline]
    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        let block = self.upstream.allocate_at_once(layout, stream)?;
        self.note(layout, &Ok(block));
        Some(block)
    }

    #[inline]
    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        self.forget(layout);
        // SAFETY: the caller's promises; a block with this id came from the upstream.
        let is_free = unsafe { self.upstream.deallocate_at_once(block, layout, stream) };
        if !is_free {
            self.remember(layout);
        }
        is_free
    }

    #[inline]
    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        let outcome = self.upstream.allocate_sync(layout);
        self.note(layout, &outcome);
        outcome
    }

    #[inline]
    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.forget(layout);
        // SAFETY: the caller's promises; a block with this id came from the upstream.
        if !is_freed_by(|| unsafe { self.upstream.deallocate_sync(block, layout) }) {
            self.remember(layout);
        }
    }

    forward_resource!(unchanged upstream, except allocate, deallocate, id, fmt_layer);

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stats({})", SignedSize(self.tally.live_bytes()))
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.tally))
    }
}

impl<U> Layer for Stats<U> {
    type Book = StatsBook;

    fn figures(tally: &StatsBook, to: &mut Figures<'_>) {
        // What was counted since the tally was made, whatever scopes there are.
        let Counts { bytes, allocations, failures, .. } = tally.whole();
        to.gauge("alluvion_live_bytes", "Bytes in blocks that are out.", bytes.live);
        to.gauge("alluvion_peak_live_bytes", "The most bytes that were ever out.", bytes.peak);
        to.gauge("alluvion_live_blocks", "Blocks that are out.", allocations.live);
        to.gauge("alluvion_peak_live_blocks", "The most blocks that were ever out.", allocations.peak);
        let allocated = "Bytes that were ever asked for and given.";
        to.counter("alluvion_allocated_bytes_total", allocated, bytes.total);
        to.counter("alluvion_allocations_total", "Blocks that were allocated.", allocations.total);
        to.counter("alluvion_frees_total", "Blocks that were freed.", allocations.total - allocations.live);
        to.counter("alluvion_failures_total", "Allocations that failed.", failures);
        for of in tally.by_tag() {
            to.labelled(&[("tag", &of.tag.to_string())], |to| {
                let bytes = "Bytes that were asked for and given under a tag.";
                to.counter("alluvion_tag_allocated_bytes_total", bytes, of.bytes);
                let blocks = "Blocks that were allocated under a tag.";
                to.counter("alluvion_tag_allocations_total", blocks, of.allocations);
                let failures = "Allocations that failed under a tag.";
                to.counter("alluvion_tag_failures_total", failures, of.failures);
            });
        }
    }
}

blocks_of_upstream!(Stats);
