//! `Logging`: logs each call.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

mod log;

pub use log::{Log, LogConfig};

use core::fmt;

use crate::error::Error;
use crate::forward_resource;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, Figures, Layer, LayerBook, Layout, Resource, ResourceId,
    blocks_of_upstream, find,
};
use crate::stream::StreamRef;
use crate::suballoc::SuballocBook;
use crate::trace::Action;

/// Logs each call in RMM's format, in a [`Log`].
///
/// A row has: the number of the thread in the operating system; the local time; the action, `allocate`, `allocate
/// failure` or `free`; the address, `(nil)` if there is none; the requested bytes; the handle of the stream, `0x1` for
/// the default stream, `0x2` for that of the thread.
///
/// As in RMM, an allocation is logged after the upstream has answered, and a free before the upstream gets the block.
/// So the free of an address comes before its next allocation, on any threads. Synchronous calls have the stream `0`.
/// Requests for zero bytes are logged too, with the address `(nil)`.
///
/// The offset of local time is that at which the log was made: a change to or from summer time does not show, so that times do
/// not go back.
///
/// # Stream ordering
///
/// As the upstream's.
///
/// # Thread safety
///
/// As the upstream's. No call waits while the writer keeps up: see [`Log`].
///
/// # Examples
///
/// ```
/// use alluvion::adaptor::{Log, LogConfig, Logging};
/// use alluvion::tag::with_tag;
/// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let log = LogConfig::default().tags(true).reserved(true).write_to(std::io::sink())?;
/// let resource = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?.logging(log);
/// let block = with_tag("join", || resource.allocate_sync(Layout::array::<f32>(1000)?))?;
/// // SAFETY: the block came from this resource with this layout, and nothing uses it.
/// unsafe { resource.deallocate_sync(block, Layout::array::<f32>(1000)?) };
/// assert_eq!(resource.find::<Logging>().map(Log::rows), Some(2));
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Logging<U = AnyResource> {
    upstream: U,
    log: Log,
    id: ResourceId,
}

static_assertions::assert_impl_all!(Logging<crate::source::Cuda>: Send, Sync, DeviceAccessible);

impl Logging {
    pub(crate) const CARD: Card = Card {
        name: "logging",
        about: "Logs every allocation and free in RMM's format.",
        parameters: &[
            Parameter::new(
                "file",
                ArgumentKind::Text,
                "the file, packed if it ends in .gz; the one that ALLUVION_LOG_FILE names if left out",
            ),
            Parameter::new("tags", ArgumentKind::Flag, "adds a column for tags; false if left out"),
            Parameter::new(
                "reserved",
                ArgumentKind::Flag,
                "adds a column for reserved bytes; false if left out",
            ),
            Parameter::new(
                "devices",
                ArgumentKind::Flag,
                "adds a column for the number of the device, for stacks of several; false if left out",
            ),
        ],
    };
}

impl<U> Logging<U> {
    /// A layer over `upstream` that writes to `log`.
    #[must_use]
    pub fn new(upstream: U, log: Log) -> Self {
        Self { upstream, log, id: ResourceId::unique() }
    }

    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// Its log.
    #[must_use]
    pub fn book(&self) -> &Log {
        &self.log
    }
}

impl<U: Resource> Logging<U> {
    #[inline]
    fn reserved_bytes(&self) -> Option<u64> {
        if !self.log.has_reserved() {
            return None;
        }
        // Looked for each time, because the layer may be moved, and what is under it with it.
        find::<SuballocBook>(&self.upstream).map(|stock| stock.reserved_bytes() as u64)
    }

    #[inline]
    fn ordinal(&self) -> u32 {
        self.upstream.device().ordinal()
    }

    #[inline]
    fn note_answer(&self, answer: &Result<DevicePtr, Error>, layout: Layout, stream: u64) {
        let (action, address) = match answer {
            Ok(_) if layout.is_empty() => (Action::Allocate, 0),
            Ok(block) => (Action::Allocate, block.address()),
            Err(_) => (Action::AllocateFailure, 0),
        };
        self.log.note(action, address, layout.bytes(), stream, self.ordinal(), self.reserved_bytes());
    }

    #[inline]
    fn note_free(&self, block: DevicePtr, layout: Layout, stream: u64) {
        let address = if layout.is_empty() { 0 } else { block.address() };
        let (bytes, device) = (layout.bytes(), self.ordinal());
        self.log.note(Action::Free, address, bytes, stream, device, self.reserved_bytes());
    }
}

/// The stream of the blocking forms.
const NO_STREAM: u64 = 0;

// SAFETY: the blocks are the upstream's, which keeps the contract; the id is this layer's own, so that what it hands out comes
// back through it.
unsafe impl<U: Resource> Resource for Logging<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        let answer = self.upstream.allocate(layout, stream);
        self.note_answer(&answer, layout, stream.raw().0);
        answer
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // First: once the upstream has the block, another thread may be handed its address, and write that down.
        self.note_free(block, layout, stream.raw().0);
        // SAFETY: the caller's promises; a block that came from here came from the upstream.
        unsafe { self.upstream.deallocate(block, layout, stream) };
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        let answer = self.upstream.allocate_sync(layout);
        self.note_answer(&answer, layout, NO_STREAM);
        answer
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        // First: as in `deallocate`.
        self.note_free(block, layout, NO_STREAM);
        // SAFETY: the caller's promises; a block that came from here came from the upstream.
        unsafe { self.upstream.deallocate_sync(block, layout) };
    }

    forward_resource!(unchanged upstream, except allocate, deallocate, id, fmt_layer);

    fn id(&self) -> ResourceId {
        self.id
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(&self.log))
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Logging({})", self.log.name())
    }
}

impl<U> Layer for Logging<U> {
    type Book = Log;

    fn figures(log: &Log, to: &mut Figures<'_>) {
        to.labelled(&[("log", log.name())], |to| {
            to.counter("alluvion_log_rows_total", "Rows that were logged, written or not.", log.rows());
            to.counter("alluvion_log_written_total", "Rows that the writer has taken.", log.written());
            to.counter("alluvion_log_dropped_total", "Rows that will not be written.", log.dropped());
            to.counter("alluvion_log_stalls_total", "Calls that waited for the writer.", log.stalls());
            let failed = u64::from(log.failure().is_some());
            to.gauge("alluvion_log_failed", "1 if nothing is written any more.", failed);
        });
    }
}

blocks_of_upstream!(Logging);
