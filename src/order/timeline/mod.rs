//! `Timeline`: the epoch of a stream, the events that cover it, the points that it has waited for, and its end.
//!
//! A timeline outlives its stream. The table of a machine keeps it until all of the stream's work is known to be done,
//! so a block that was freed on a stream stays safe to take after the stream is gone.
//!
//! # The protocols, each with a model in `loom-tests/`
//!
//! - **Free**: read the epoch. No lock, no driver call.
//! - **Cover**: advance the epoch, *then* record an event. A free that read the old epoch had submitted its work before:
//!   suppose that its submission came after the record in the driver's own order of the stream. Then the advance happens
//!   before the record, the record before the submission, the submission before the read, and the read would have
//!   returned the new epoch. The driver need have no more than that order: one fence between the advance and the record,
//!   another between the submission and the read make the rest of it. Where one thread submits and another one frees, the second
//!   fence comes too late for the first thread; there the driver's calls for one stream must follow each other as under a lock,
//!   which CUDA's do.
//! - **Host wait**: advance the epoch, *then* wait or ask. For the same reason.
//! - **Wait**: make the driver wait, *then* teach the clock. A thread that reads in the clock that the stream has waited submits
//!   behind the wait.
//! - **Retire**: the last handle notes the epoch that the last work lies in, covers the stream once more, publishes that cover,
//!   and only then releases the stream. A thread that is recording holds a *pin*; dropping the last pin destroys the stream. A
//!   stream with another owner may be gone as soon as the last handle is, so there the last handle waits for the pins.
//! - **Defer**: a free of a block on a *fleeting* stream that comes again and again is covered with later ones. Its point is not
//!   handed out but to the pool that keeps the block, and is out of reach of other streams until an event covers it or the device has
//!   been waited for.
//! - **Visit**: such a free takes no lease where the thread came with the handle last, and does not ask the driver whether the handle
//!   still is this stream's. If it is, the next lease vouches for that: a stream that lives now has lived since. If it is another one's,
//!   this stream is gone and takes no lease again, so its newest epoch, in which the free lies, is over when the device has been waited
//!   for, of which the handle is. While nobody holds a lease, nothing is recorded and nothing waited for by the handle. A visit holds the entry, which keeps the
//!   timeline from ending.
//! - **Rest**: a *fleeting* timeline is of a stream that its owner lends for a call at a time. While it is lent, it has *leases*. The
//!   last lease covers the newest point that was handed out, unless an event does, goes to rest, and waits for the pins. At rest no
//!   pin is taken, so that the handle, which may be of another stream by now, reaches no call of the driver.

mod covers;
mod ends;
mod points;
mod state;
mod waits;

use core::any::Any;
use core::fmt;

use smallvec::SmallVec;

use super::clock::VectorClock;
use super::event_pool::EventPool;
use super::{Epoch, StreamId};
use crate::driver::{CaptureId, Driver, RawStream};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, ThreadToken};
pub(crate) use covers::Uncovered;
use state::{Phase, TimelineState};

/// The end of the raw stream when its last handle is dropped.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The crate made the stream and destroys it.
    Destroy,
    /// The stream has another owner: only the value that keeps it alive is dropped.
    Leave(Option<Arc<dyn Any + Send + Sync>>),
    /// The timeline is of a stream's part in a capture: none of its work runs, so that nothing covers the end. The value keeps
    /// the stream alive.
    Branch(Option<Arc<dyn Any + Send + Sync>>),
}

/// The stream behind a timeline.
#[derive(Debug)]
pub(crate) struct Underlying {
    pub(crate) raw: RawStream,
    /// The thread whose default stream it is, if it is one.
    pub(crate) owner: Option<ThreadToken>,
    pub(crate) ending: Ending,
    /// Record an event at every free: the stream has another owner, which may destroy it once the last handle is gone.
    pub(crate) eager: bool,
    /// The handle is good only while a lease is held: see [`Timeline::wake`].
    pub(crate) fleeting: bool,
    /// The capture whose part of a raw stream it is: for as long as that lasts, it is a stream of its own.
    pub(crate) capture: Option<CaptureId>,
}

impl Underlying {
    /// A stream of no thread, whose handle is good for as long as the timeline, and at whose frees no event is recorded before one is needed.
    pub(crate) fn of(raw: RawStream, ending: Ending) -> Self {
        Self { raw, owner: None, ending, eager: false, fleeting: false, capture: None }
    }
}

pub(crate) struct Timeline {
    id: StreamId,
    driver: Arc<dyn Driver>,
    events: Arc<EventPool>,
    ordinal: u32,
    raw: RawStream,
    /// The thread whose default stream it is.
    owner: Option<ThreadToken>,
    /// An event is recorded at each free rather than on demand: the owner may destroy the stream once the last handle is gone.
    eager: bool,
    /// Code outside of the crate has the stream too, and may begin a capture on another thread at any moment: by safe functions, or because
    /// it cannot know which calls of the crate cover what was freed there.
    lent: bool,
    /// The handle is good only while a lease is held.
    fleeting: bool,
    /// The capture whose part of a raw stream it is.
    capture: Option<CaptureId>,
    /// The newest epoch that was handed out in a point. Kept for a fleeting stream alone.
    handed_out: AtomicU64,
    /// The newest epoch of a free that is covered with later ones.
    deferred: AtomicU64,
    /// The frees since the last event that are covered with later ones, times [`ONE_FREE`], and their bytes.
    open: AtomicU64,
    /// The epoch that work submitted now lies in. Starts at 1.
    epoch: AtomicU64,
    /// Every epoch up to here is over on the device.
    done: AtomicU64,
    state: Mutex<TimelineState>,
}

impl Timeline {
    pub(crate) fn new(
        id: StreamId,
        driver: Arc<dyn Driver>,
        events: Arc<EventPool>,
        ordinal: u32,
        stream: Underlying,
    ) -> Self {
        let Underlying { raw, owner, ending, eager, fleeting, capture } = stream;
        let is_wrapped = eager && !fleeting;
        let lent = is_wrapped || matches!(ending, Ending::Leave(Some(_)));
        if fleeting {
            events.note_fleeting();
        }
        let state = TimelineState {
            phase: Phase::Live,
            last: None,
            pins: 0,
            leases: 0,
            covers: SmallVec::new(),
            clock: VectorClock::default(),
            grown: Epoch::NONE,
            waits: 0,
            looked_up_to: id.index(),
            ending,
        };
        Self {
            id,
            driver,
            events,
            ordinal,
            raw,
            owner,
            eager,
            lent,
            fleeting,
            capture,
            handed_out: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            open: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            done: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    #[inline]
    pub(crate) fn id(&self) -> StreamId {
        self.id
    }

    /// The device of the stream.
    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Returns `true` unless it is the default stream of another thread.
    #[inline]
    pub(crate) fn is_mine(&self) -> bool {
        self.owner.is_none_or(|owner| owner == ThreadToken::current())
    }

    /// The thread whose default stream it is, if it is one.
    pub(crate) fn owner(&self) -> Option<ThreadToken> {
        self.owner
    }

    /// The handle to make driver calls with, from this thread.
    ///
    /// The handle of a per-thread stream means another stream on another thread. There the legacy stream stands in for it:
    /// it waits for every blocking stream of the device, and they for it, so the order is kept.
    pub(crate) fn raw(&self) -> RawStream {
        if self.is_mine() { self.raw } else { RawStream::LEGACY }
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = self.now();
        write!(f, "Timeline({now:?}, done {})", self.done.load(Ordering::Acquire))
    }
}
