//! `Stats`: counts allocations and frees.

mod book;

pub use book::{Counter, Counts, Scope, StatsBook, TagCounts};
use book::{SLACK_BYTES, SignedSize};

use core::fmt;

use super::watched::{Proven, Watch, Watched, WatchedBlock, WatchedRequest};
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{AnyResource, Figures, Layout};

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
pub type Stats<U = AnyResource> = Watched<StatsWatch, U>;

/// The watch of a [`Stats`]: counts each block that comes and goes.
#[derive(Debug)]
pub struct StatsWatch {
    tally: StatsBook,
    counts_empty: bool,
}

static_assertions::assert_impl_all!(Stats<crate::source::Cuda>: Send, Sync, crate::resource::DeviceAccessible);
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
        Self::over(upstream, StatsWatch { tally: StatsBook::new(slack_bytes), counts_empty: false })
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
        self.watch_mut().counts_empty = counts_empty;
        self
    }

    /// The counts: see [`StatsBook::counts`].
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.book().counts()
    }
}

impl StatsWatch {
    /// Whether a block of this layout is counted.
    #[inline]
    fn counts_one(&self, layout: Layout) -> bool {
        self.counts_empty || !layout.is_empty()
    }
}

impl Watch for StatsWatch {
    type Book = StatsBook;
    type Entry = ();

    const SEES_EMPTY: bool = true;
    const NEVER_PANICS: Option<Proven> = Some(Proven::OF_THIS_CRATE);

    fn book(&self) -> &StatsBook {
        &self.tally
    }

    #[inline(always)]
    fn serve(&self, block: &WatchedBlock<'_>) {
        if self.counts_one(block.layout()) {
            self.tally.allocated(block.layout().bytes());
        }
    }

    fn fail(&self, _: &WatchedRequest<'_>, _: &Error) {
        self.tally.failed();
    }

    #[inline(always)]
    fn leave(&self, block: &WatchedBlock<'_>) -> Option<()> {
        if self.counts_one(block.layout()) {
            self.tally.freed(block.layout().bytes());
        }
        Some(())
    }

    #[cold]
    fn stay(&self, block: &WatchedBlock<'_>, (): ()) {
        if self.counts_one(block.layout()) {
            self.tally.not_freed(block.layout().bytes());
        }
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stats({})", SignedSize(self.tally.live_bytes()))
    }

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
