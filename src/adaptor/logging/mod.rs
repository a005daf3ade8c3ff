//! `Logging`: logs each call.

mod log;

pub use log::{Log, LogConfig};

use core::fmt;

use super::watched::{Proven, Watch, Watched, WatchedBlock, WatchedRequest};
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{AnyResource, DevicePtr, Figures, find};
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
pub type Logging<U = AnyResource> = Watched<LoggingWatch, U>;

/// The watch of a [`Logging`]: writes a row for each call.
#[derive(Debug)]
pub struct LoggingWatch(Log);

static_assertions::assert_impl_all!(Logging<crate::source::Cuda>: Send, Sync, crate::resource::DeviceAccessible);

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
        Self::over(upstream, LoggingWatch(log))
    }
}

/// The stream of the blocking forms.
const NO_STREAM: u64 = 0;

impl LoggingWatch {
    #[inline]
    fn row(&self, action: Action, block: Option<DevicePtr>, request: &WatchedRequest<'_>) {
        let address = block.filter(|_| !request.layout().is_empty()).map_or(0, DevicePtr::address);
        let stream = request.stream().map_or(NO_STREAM, |stream| stream.raw().0);
        let upstream = request.upstream();
        let reserved = || find::<SuballocBook>(upstream).map(|book| book.reserved_bytes() as u64);
        let reserved_bytes = if self.0.has_reserved() { reserved() } else { None };
        let (bytes, device) = (request.layout().bytes(), upstream.device().ordinal());
        self.0.note(action, address, bytes, stream, device, reserved_bytes);
    }
}

impl Watch for LoggingWatch {
    type Book = Log;
    type Entry = ();

    const SEES_EMPTY: bool = true;
    const NEVER_PANICS: Option<Proven> = Some(Proven::OF_THIS_CRATE);

    fn book(&self) -> &Log {
        &self.0
    }

    /// A row of what happened at once would have to be taken back where it did not.
    fn answers_at_once(&self) -> bool {
        false
    }

    #[inline]
    fn serve(&self, block: &WatchedBlock<'_>) {
        self.row(Action::Allocate, Some(block.block()), block);
    }

    fn fail(&self, request: &WatchedRequest<'_>, _: &Error) {
        self.row(Action::AllocateFailure, None, request);
    }

    /// The row comes first: once the upstream has the block, another thread may own the address.
    #[inline]
    fn leave(&self, block: &WatchedBlock<'_>) -> Option<()> {
        self.row(Action::Free, Some(block.block()), block);
        Some(())
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Logging({})", self.0.name())
    }

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
