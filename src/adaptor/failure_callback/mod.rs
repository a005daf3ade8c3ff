//! `FailureCallback`: asks before a request fails.

use core::fmt;

use super::watched::{Proven, Watch, Watched, WatchedRequest};
use crate::driver::MemoryInfo;
use crate::error::{Error, OutOfMemory};
use crate::relief::{Handlers, Relief};
use crate::resource::{AnyResource, Figures};
use crate::stream::StreamRef;
use crate::sync::{AtomicU64, Ordering};

/// The most attempts of one request: a handler that frees one thing at a time may need many. The bound is needed
/// because other threads may change the figures for ever while the handler frees nothing.
const ATTEMPTS: u32 = 1024;

/// The most answers [`Relief::Freed`] in a row without a change of the figures. More than one, because the freed memory
/// may not be counted, or may be taken by other threads at once.
const IDLE_ATTEMPTS: u32 = 3;

/// Asks a handler when its upstream is out of memory, and retries if the handler has freed some.
///
/// The handler gets the report of the resource that refused. If a resource of your own gives none, the layer makes one
/// from the request, the limit that was hit, and the memory figures of the upstream, where all memory that is not free
/// counts as live. Other errors are returned at once, and so is a request that no handler can help with, because it is
/// [too large](crate::error::Cause::TooLarge).
///
/// It runs on the thread whose request failed, with no lock held, so it may free and allocate. Its own requests ask no
/// handlers, here or elsewhere, and fail without memory. If it panics, it has freed nothing.
///
/// # How long it is asked
///
/// As long as it answers [`Relief::Freed`] and the request still fails, within bounds: after 3 answers in a row that
/// changed no figure of the report, and after 1,024 in all, the request fails with the last error of the upstream.
///
/// A [`Pool`](crate::Pool) has handlers of its own (`PoolConfig::on_out_of_memory`), which are asked before the handler
/// of this layer.
///
/// # Stream ordering, thread safety
///
/// As the upstream's.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use alluvion::source::Cuda;
/// use alluvion::relief::Relief;
/// use alluvion::{DeviceVec, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let limited = Arc::new(Cuda::new(&sim.device(0)).limiting(4 << 20));
/// // What can be done without is let go of, one piece at a time.
/// let cache: Arc<Mutex<Vec<DeviceVec<u8, _>>>> = Arc::default();
/// for _ in 0..4 {
///     let piece = DeviceVec::zeroed_in(1 << 20, &stream, Arc::clone(&limited))?;
///     cache.lock().unwrap().push(piece);
/// }
/// let pieces = Arc::clone(&cache);
/// let resource = Arc::clone(&limited).failure_callback(move |report| {
///     assert_eq!((report.requested_bytes, report.maximum_bytes), (3 << 20, Some(4 << 20)));
///     let piece = pieces.lock().ok().and_then(|mut pieces| pieces.pop());
///     if piece.is_some() { Relief::Freed } else { Relief::None }
/// });
/// let needed = DeviceVec::<u8, _>::zeroed_in(3 << 20, &stream, &resource)?;
/// assert_eq!(cache.lock().unwrap().len(), 1, "three pieces of four have gone");
/// assert_eq!((resource.book().asked(), resource.book().rescued()), (3, 1));
/// # Ok::<(), alluvion::Error>(())
/// ```
pub type FailureCallback<U = AnyResource> = Watched<FailureCallbackWatch, U>;

/// The watch of a [`FailureCallback`]: asks its handlers where the upstream is out of memory.
#[derive(Debug)]
pub struct FailureCallbackWatch {
    handlers: Handlers,
    appeals: FailureCallbackBook,
}

static_assertions::assert_impl_all!(FailureCallback<crate::source::Cuda>: Send, Sync, crate::resource::DeviceAccessible);
static_assertions::assert_not_impl_any!(FailureCallback<crate::source::Cuda>: Clone, crate::resource::HostAccessible);
static_assertions::assert_impl_all!(FailureCallback<crate::source::Pinned>: crate::resource::HostAccessible);

/// The book of a [`FailureCallback`]: how often its handler was asked, and with which results.
#[derive(Debug, Default)]
pub struct FailureCallbackBook {
    asked: AtomicU64,
    rescued: AtomicU64,
    failed: AtomicU64,
}

impl FailureCallbackBook {
    // Relaxed, all: figures.

    /// The number of calls of the handler.
    #[must_use]
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Requests that were served after the handler was asked.
    #[must_use]
    pub fn rescued(&self) -> u64 {
        self.rescued.load(Ordering::Relaxed)
    }

    /// Requests that failed although the handler was asked.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

impl<U> FailureCallback<U> {
    /// Asks `handler` when `upstream` is out of memory.
    #[must_use]
    pub fn new(upstream: U, handler: impl Fn(&OutOfMemory) -> Relief + Send + Sync + 'static) -> Self {
        Self::fallible(upstream, move |report| Ok(handler(report)))
    }

    /// As [`new`](Self::new), with a handler that may fail itself: the request then fails with its error, unchanged, and the
    /// handler is not asked again for it. For handlers in a language with exceptions, see [`Error::foreign`].
    ///
    /// ```
    /// use alluvion::adaptor::FailureCallback;
    /// use alluvion::source::Cuda;
    /// use alluvion::{Error, Layout, Resource, ResourceExt, Sim};
    ///
    /// let limited = Cuda::new(&Sim::new().device(0)).limiting(1 << 20);
    /// let resource = FailureCallback::fallible(limited, |_| Err(Error::foreign("the cache is locked")));
    /// let error = resource.allocate_sync(Layout::from_bytes(2 << 19)?).and_then(|_| resource.allocate_sync(Layout::from_bytes(1)?));
    /// assert!(error.unwrap_err().is_foreign());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn fallible(
        upstream: U,
        handler: impl Fn(&OutOfMemory) -> Result<Relief, Error> + Send + Sync + 'static,
    ) -> Self {
        let mut handlers = Handlers::default();
        handlers.push_fallible(handler);
        Self::over(upstream, FailureCallbackWatch { handlers, appeals: FailureCallbackBook::default() })
    }
}

impl FailureCallbackWatch {
    fn report(request: &WatchedRequest<'_>, error: &Error, attempt: u32) -> OutOfMemory {
        let stream = request.stream().map(StreamRef::id);
        if let Some(report) = error.out_of_memory_report() {
            return OutOfMemory { attempt, stream: report.stream.or(stream), ..report.clone() };
        }
        let memory = request.upstream().memory_info().ok();
        let taken = memory.map_or(0, |memory| memory.total_bytes.saturating_sub(memory.free_bytes));
        let report = OutOfMemory {
            align: request.layout().align(),
            stream,
            attempt,
            live_bytes: taken,
            free_bytes: memory.map_or(0, |memory| memory.free_bytes),
            reserved_bytes: taken,
            maximum_bytes: error.limit(),
            upstream_memory: memory,
            upstream_error: Some(error.clone()),
            ..OutOfMemory::new("FailureCallback", request.layout().bytes())
        };
        report.explained()
    }
}

impl Watch for FailureCallbackWatch {
    type Book = FailureCallbackBook;
    type Entry = ();

    const SHARES_ID: bool = true;
    const NEVER_PANICS: Option<Proven> = Some(Proven::OF_THIS_CRATE);

    fn book(&self) -> &FailureCallbackBook {
        &self.appeals
    }

    /// Retries until the request succeeds or the handler cannot help. Nobody is asked [at once](crate::Resource::allocate_at_once).
    #[cold]
    fn rescue(
        &self,
        request: &WatchedRequest<'_>,
        mut error: Error,
        again: &mut dyn FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !error.is_out_of_memory() {
            return Err(error);
        }
        let (mut figures, mut idle) = (None, 0);
        for attempt in 1..=ATTEMPTS {
            if !error.is_out_of_memory() {
                break;
            }
            let report = Self::report(request, &error, attempt);
            if report.is_hopeless() {
                if attempt == 1 {
                    return Err(error);
                }
                break;
            }
            let now = Some(Amounts::of(&report));
            idle = if now == figures { idle + 1 } else { 0 };
            if idle == IDLE_ATTEMPTS {
                break;
            }
            figures = now;
            self.appeals.asked.fetch_add(1, Ordering::Relaxed);
            match self.handlers.ask(&report) {
                Ok(Relief::Freed) => {}
                Ok(Relief::None) => break,
                Err(of_handler) => {
                    error = of_handler;
                    break;
                }
            }
            match again() {
                Ok(()) => {
                    self.appeals.rescued.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Err(next) => error = next,
            }
        }
        self.appeals.failed.fetch_add(1, Ordering::Relaxed);
        Err(error)
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FailureCallback({} asked)", self.appeals.asked())
    }

    fn figures(appeals: &FailureCallbackBook, to: &mut Figures<'_>) {
        to.counter(
            "alluvion_appeals_asked_total",
            "Times that a callback was asked for memory.",
            appeals.asked(),
        );
        to.counter(
            "alluvion_appeals_rescued_total",
            "Requests that were served after a callback had helped.",
            appeals.rescued(),
        );
        to.counter("alluvion_appeals_failed_total", "Requests that failed all the same.", appeals.failed());
    }
}

/// The figures that show a change between two attempts.
#[derive(PartialEq, Eq)]
struct Amounts {
    bytes: [usize; 5],
    memory: Option<MemoryInfo>,
}

impl Amounts {
    fn of(report: &OutOfMemory) -> Self {
        let OutOfMemory { live_bytes, free_bytes, pending_bytes, reserved_bytes, largest_bytes, .. } =
            *report;
        let bytes = [live_bytes, free_bytes, pending_bytes, reserved_bytes, largest_bytes];
        Self { bytes, memory: report.upstream_memory }
    }
}
