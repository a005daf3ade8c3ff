//! `Pool`: a suballocator for everything.

#![expect(unsafe_code, reason = "implements the contract of resources")]

mod config;
mod graph_memory;
mod handle;
mod sleeper;

pub use config::PoolConfig;
pub use graph_memory::GraphMemory;
pub use sleeper::Sleeper;

use core::fmt;

use super::core::MAX_UNITS;
use super::engine::resource_by_engine;
use super::engine::{Engine, EngineConfig};
use super::snapshot::SnapshotFiles;
use super::{SegmentHooks, SegmentView, Snapshot, Status};
use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, HostAccessible, Layer, LayerBook, Layout, Pages, Resource,
    ResourceId,
};
use crate::size::Size;
use crate::stream::{OnStream, StreamRef};
use crate::suballoc::ledger::Ledger;

/// Takes large segments from its upstream and carves them: blocks of all sizes, for all streams.
///
/// A stream first gets back the blocks that it has freed, from a cache of its own: no driver call, no shared lock, no
/// heap. It gets a block of another stream if its own work comes after the free, if the driver says that the work is
/// completed, or, if the pool cannot grow, after a wait on the device: see [`Reuse`](super::Reuse). Nothing is written
/// to the memory itself.
///
/// A request of up to 1 MiB gets a block that is at most an eighth longer; a larger one exactly what it asks for, in units
/// of 256 bytes.
///
/// # Stream ordering
///
/// A block may be used by work ordered after the call. Dropping a stream loses nothing: its blocks stay with the pool.
///
/// Synchronous calls take and free blocks that no work uses, so a pool over [`Pinned`](crate::source::Pinned) serves
/// the host's containers without a driver call.
///
/// # Thread safety
///
/// Any thread may call it. Threads with a stream each do not contend; threads that share a stream take turns of a few
/// nanoseconds.
///
/// # Captures
///
/// A graph has the addresses of its memory for as long as it can be launched. [`capture`](Self::capture) opens memory for the graph
/// that a stream captures: from then on calls of the pool on streams of that capture are served from it, and what they free serves
/// nobody else. A pool that is told of no capture takes a block that is freed in one for free, unless it [asks at each
/// free](PoolConfig::watch_captures).
///
/// # Sleep
///
/// Over a source of pages, such as [`Mapped`](crate::source::Mapped), a pool or what carries a tag gives its memory back and keeps
/// its addresses: [`sleep`](Self::sleep). Single containers do so without `unsafe`: [`DeviceVec::sleep`](crate::DeviceVec::sleep).
///
/// # The end
///
/// A pool that is dropped waits on the host for the work before each free, and returns its segments. Containers keep
/// their pool alive; a block that was allocated by hand and not freed ends with the pool, which then waits for all work
/// on every stream that its machine knows: work on other streams must be completed before. Where it cannot wait,
/// because a stream captures or the context is lost, the segments are leaked, and so are those of a graph whose memory was not
/// [released](super::GraphMemory::release). No capture is broken of a stream that this crate holds, nor of a blocking stream of
/// anybody; see [`RawStreams`](crate::stream::RawStreams) for when a device is waited for.
///
/// # Examples
///
/// ```
/// use alluvion::source::CudaAsync;
/// use alluvion::{DeviceVec, Pool, PoolConfig, Resource, ResourceExt, ResourceRef, Sim};
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let pool = CudaAsync::new(&device)?.pool(PoolConfig::default().initial(8 << 20).maximum(32 << 20))?;
/// for _ in 0..100 {
///     let numbers = DeviceVec::<f32, _>::zeroed_in(10_000, &stream, ResourceRef::new(&pool))?;
///     drop(numbers);
/// }
/// let status = pool.status();
/// assert_eq!((status.upstream_calls, status.misses), (1, 1), "all but the first came from the stream's cache");
/// assert_eq!(pool.describe().to_string(), "Pool(8 MiB) > CudaAsync(gpu 0)");
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Pool<U: Resource = AnyResource> {
    engine: Engine<U>,
    id: ResourceId,
}

/// The page of device memory.
const DEVICE_PAGE: usize = 2 << 20;

static_assertions::assert_impl_all!(Pool<crate::source::Cuda>: Send, Sync, DeviceAccessible);
static_assertions::assert_not_impl_any!(Pool<crate::source::Cuda>: HostAccessible);
static_assertions::assert_impl_all!(Pool<crate::source::Pinned>: HostAccessible);

impl Pool {
    pub(crate) const CARD: Card = Card {
        name: "pool",
        about: "Takes memory as it is needed, keeps what is freed, and serves every size from it.",
        parameters: &[
            Parameter::new("initial", ArgumentKind::Size, "bytes taken when it is made; none if left out"),
            Parameter::new(
                "maximum",
                ArgumentKind::Size,
                "the most bytes that it takes; no limit if left out",
            ),
            Parameter::new(
                "growth",
                ArgumentKind::WordOrSize(&["spare", "doubling", "exact"]),
                "how much it takes at a time: a policy, or a size; spare if left out",
            ),
            Parameter::new(
                "reuse",
                ArgumentKind::Word(&["own", "completed", "wait"]),
                "which memory freed on other streams a stream may take; wait if left out",
            ),
            Ledger::CHECKED,
            Parameter::new(
                "budget",
                ArgumentKind::TimesOrSize,
                "over mapped: moves free pages rather than hold more than this many times the live peak, or this size",
            ),
            Parameter::new(
                "registered",
                ArgumentKind::Size,
                "whole segments of this size that never change, for what registers memory; no if left out",
            ),
            SnapshotFiles::ON_OUT_OF_MEMORY,
        ],
    };
}

impl<U: Resource> Pool<U> {
    /// A pool over `upstream`.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the initial size is above the maximum, the maximum below 256 bytes, or below a page of an upstream
    /// that has [pages](crate::resource::Pages), or a growth step zero; as the upstream says, if there is an initial size.
    pub fn new(upstream: U, mut config: PoolConfig) -> Result<Self, Error> {
        let page_bytes = upstream.pages().map(Pages::page_bytes);
        // Segments that stay are whole pages of the device.
        let whole = config.engine.segment_bytes.map(|_| DEVICE_PAGE.max(page_bytes.unwrap_or(0)));
        if config.takes_half {
            // In whole units or pages, rounded down, and no more than a segment holds.
            let half = (upstream.memory_info()?.free_bytes / 2).min(config.engine.maximum_bytes);
            let most = half.min((MAX_UNITS as usize - 1) * Layout::MIN_ALIGN);
            config.initial_bytes = most - most % whole.or(page_bytes).unwrap_or(Layout::MIN_ALIGN);
        }
        config.validate()?;
        if let Some(page_bytes) = whole.or(page_bytes) {
            config.validate_over_pages(page_bytes)?;
        }
        if let Some(whole) = whole {
            config.engine.maximum_bytes -= config.engine.maximum_bytes % whole;
            // It is not above the maximum, so it does not overflow.
            config.initial_bytes = config.initial_bytes.next_multiple_of(whole);
        }
        if page_bytes.is_some() && whole.is_none() && config.engine.segment_hooks.is_some() {
            return Err(Error::invalid_argument(
                "hooks of segments over pages that move",
                "no segment stays what it is",
                "make the pool with `registered`",
            ));
        }
        let initial_units = config.initial_units()?;
        let engine = Engine::new(upstream, EngineConfig { name: "Pool", in_place: true, ..config.engine });
        if initial_units > 0 {
            engine.take_initial(initial_units)?;
        }
        Ok(Self { engine, id: ResourceId::unique() })
    }

    /// The memory that it has of its upstream, in the order of addresses: see [`SuballocBook::segments`](crate::suballoc::SuballocBook::segments).
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentView> {
        self.engine.book().segments()
    }

    /// Has other hooks told of its segments from now on, and returns those that are there: see [`SuballocBook::set_segment_hooks`](crate::suballoc::SuballocBook::set_segment_hooks).
    ///
    /// # Errors
    ///
    /// `Unsupported` over pages that move.
    pub fn set_segment_hooks(&self, hooks: SegmentHooks) -> Result<Vec<SegmentView>, Error> {
        self.engine.book().set_segment_hooks(hooks)
    }

    /// Takes no more memory, and gives none back: see [`SuballocBook::freeze`](crate::suballoc::SuballocBook::freeze).
    pub fn freeze(&self) {
        self.engine.book().freeze();
    }

    /// The bytes that it has from its upstream.
    #[must_use]
    pub fn pool_size(&self) -> usize {
        self.engine.reserved_bytes()
    }

    /// Makes `stream` wait, on the device, for all frees on other streams, and merges all free memory for it. For a
    /// safe point before a large request on one stream.
    ///
    /// ```
    /// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let (first, second) = (sim.device(0).stream()?, sim.device(0).stream()?);
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(4 << 20))?;
    /// let halves = [&first, &second].map(|stream| DeviceVec::filled_in(2 << 20, 7_u8, &stream, &pool));
    /// drop(halves);
    /// pool.merge(&first)?;
    /// assert_eq!(pool.largest_bytes(&first), 4 << 20);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Capture errors, while the stream captures; those of the work itself.
    pub fn merge<'s>(&self, stream: impl OnStream<'s>) -> Result<(), Error> {
        self.engine.merge(stream.stream_ref())
    }
}

resource_by_engine!(Pool, |this, f| write!(f, "Pool({})", Size(this.pool_size())));
