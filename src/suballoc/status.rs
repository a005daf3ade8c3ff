//! `Status`: the figures of a suballocator.

use crate::resource::Figures;

/// The memory that a suballocator holds, and its counters since it was made.
///
/// The bytes add up: `reserved = live + cached + free`. The reserved bytes and the free ones are exact at one moment.
/// The cached bytes are read from one cache after the other, so a block that meanwhile moves from one cache to another
/// counts as live or as cached; without such moves both are exact. The counts only go up.
///
/// ```
/// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(4 << 20))?;
/// let numbers = DeviceVec::<u8, _>::uninit_in(1 << 20, &stream, &pool)?;
/// let status = pool.status();
/// assert_eq!((status.live_bytes, status.free_bytes, status.reserved_bytes), (1 << 20, 3 << 20, 4 << 20));
/// drop(numbers);
/// assert_eq!((pool.status().live_bytes, pool.status().cached_bytes), (0, 1 << 20));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// In blocks that are out: the lengths of the blocks, which may be more than the requests.
    pub live_bytes: usize,
    /// How many blocks are out, without those that sleep.
    pub live_blocks: usize,
    /// Free, in the shared core.
    pub free_bytes: usize,
    /// Free, in the caches of streams and of synchronous calls.
    pub cached_bytes: usize,
    /// Of the free and cached bytes, those of streams whose last free is not known to be completed, read a moment
    /// later. The driver is not queried.
    pub pending_bytes: usize,
    /// Of the live bytes, those that belong to [memory of graphs](super::GraphMemory): free or not, they serve nobody else.
    pub graph_bytes: usize,
    /// In blocks that [sleep](crate::Pool::sleep): their lengths. Most of it has no memory; what of it lies on pages that stay mapped
    /// for others counts as live, too.
    pub asleep_bytes: usize,
    /// Taken from the upstream and not returned.
    pub reserved_bytes: usize,
    /// The most that was ever reserved.
    pub peak_reserved_bytes: usize,
    /// The largest free piece in the core, of any owner. With more than 64 pieces of nearly that size, it may be one of
    /// them that is less by 1/32 at most.
    pub largest_free_bytes: usize,
    /// The host memory for the bookkeeping.
    pub metadata_bytes: usize,
    /// Allocations served by a cache: no shared lock, no driver call, no heap allocation.
    pub hits: u64,
    /// Allocations served by the core.
    pub misses: u64,
    /// Of the misses, those served with a block that another stream had freed.
    pub steals: u64,
    /// Pages that are mapped, over an upstream with [pages](crate::resource::Pages).
    pub pages: usize,
    /// Pages that were unmapped where they were free, to be mapped where memory was needed.
    pub moves: u64,
    /// The bytes of these pages.
    pub moved_bytes: u64,
    /// Waits of a stream for another, on the device, to reuse its memory.
    pub waits: u64,
    /// Events recorded for such waits.
    pub events_recorded: u64,
    /// Allocations and frees that reached the upstream.
    pub upstream_calls: u64,
    /// Frees of what was no block that is out: refused, and left alone. Without a ledger (see
    /// [`PoolConfig::checked`](crate::PoolConfig::checked)) only some are noticed.
    pub wrong_frees: u64,
}

impl Status {
    /// Reports each figure under its name in a page of metrics.
    pub(crate) fn figures(&self, to: &mut Figures<'_>) {
        to.gauge("alluvion_live_bytes", "Bytes in blocks that are out.", self.live_bytes);
        to.gauge("alluvion_live_blocks", "Blocks that are out.", self.live_blocks);
        to.gauge("alluvion_free_bytes", "Bytes that are free in the shared core.", self.free_bytes);
        to.gauge("alluvion_cached_bytes", "Bytes that are free in the caches of streams.", self.cached_bytes);
        to.gauge(
            "alluvion_pending_bytes",
            "Free bytes whose last use is not known to be over.",
            self.pending_bytes,
        );
        to.gauge("alluvion_graph_bytes", "Bytes that belong to captured graphs.", self.graph_bytes);
        to.gauge("alluvion_asleep_bytes", "Bytes of blocks that sleep.", self.asleep_bytes);
        to.gauge(
            "alluvion_reserved_bytes",
            "Bytes taken from the upstream and not given back.",
            self.reserved_bytes,
        );
        to.gauge(
            "alluvion_peak_reserved_bytes",
            "The most bytes that were ever reserved.",
            self.peak_reserved_bytes,
        );
        to.gauge(
            "alluvion_largest_free_bytes",
            "The largest free piece of the core.",
            self.largest_free_bytes,
        );
        to.gauge(
            "alluvion_metadata_bytes",
            "Bytes of the host's memory that the books take.",
            self.metadata_bytes,
        );
        let help = "How much of the core's free memory is not in its largest piece, 0 to 1.";
        to.gauge("alluvion_fragmentation_ratio", help, self.fragmentation());
        to.counter("alluvion_hits_total", "Allocations served by a cache.", self.hits);
        to.counter("alluvion_misses_total", "Allocations served by the core.", self.misses);
        to.counter("alluvion_steals_total", "Blocks served that another stream had freed.", self.steals);
        to.gauge("alluvion_pages", "Pages that are mapped, over an upstream with pages.", self.pages);
        to.counter("alluvion_moves_total", "Free pages moved to where memory was needed.", self.moves);
        to.counter("alluvion_moved_bytes_total", "The bytes of the pages that were moved.", self.moved_bytes);
        to.counter("alluvion_waits_total", "Waits of a stream for another, on the device.", self.waits);
        to.counter("alluvion_events_recorded_total", "Events recorded for such waits.", self.events_recorded);
        to.counter(
            "alluvion_upstream_calls_total",
            "Allocations and frees that reached the upstream.",
            self.upstream_calls,
        );
        to.counter("alluvion_misuses_total", "Frees that were wrong, and not passed on.", self.wrong_frees);
    }

    /// The figures of two suballocators together. The largest free pieces are added up, too: each has its own.
    #[must_use]
    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            live_bytes: self.live_bytes + other.live_bytes,
            live_blocks: self.live_blocks + other.live_blocks,
            free_bytes: self.free_bytes + other.free_bytes,
            cached_bytes: self.cached_bytes + other.cached_bytes,
            pending_bytes: self.pending_bytes + other.pending_bytes,
            graph_bytes: self.graph_bytes + other.graph_bytes,
            asleep_bytes: self.asleep_bytes + other.asleep_bytes,
            reserved_bytes: self.reserved_bytes + other.reserved_bytes,
            peak_reserved_bytes: self.peak_reserved_bytes + other.peak_reserved_bytes,
            largest_free_bytes: self.largest_free_bytes + other.largest_free_bytes,
            metadata_bytes: self.metadata_bytes + other.metadata_bytes,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            steals: self.steals + other.steals,
            pages: self.pages + other.pages,
            moves: self.moves + other.moves,
            moved_bytes: self.moved_bytes + other.moved_bytes,
            waits: self.waits + other.waits,
            events_recorded: self.events_recorded + other.events_recorded,
            upstream_calls: self.upstream_calls + other.upstream_calls,
            wrong_frees: self.wrong_frees + other.wrong_frees,
        }
    }

    /// How much of the core's free memory is not in its largest piece: 0 if all of it is, near 1 if all pieces are
    /// small.
    ///
    /// ```
    /// use alluvion::{PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(1 << 20))?;
    /// assert_eq!(pool.status().fragmentation(), 0.0);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn fragmentation(&self) -> f64 {
        if self.free_bytes == 0 {
            return 0.0;
        }
        1.0 - self.largest_free_bytes as f64 / self.free_bytes as f64
    }
}
