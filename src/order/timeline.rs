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
//! - **Defer**: a free of a small block on a *fleeting* stream that comes again and again is covered with later ones. Its point is not
//!   handed out but to the pool that keeps the block, and is out of reach of other streams until an event covers it or the device has
//!   been waited for.
//! - **Rest**: a *fleeting* timeline is of a stream that its owner lends for a call at a time. While it is lent, it has *leases*. The
//!   last lease covers the newest point that was handed out, unless an event does, goes to rest, and waits for the pins. At rest no
//!   pin is taken, so that the handle, which may be of another stream by now, reaches no call of the driver.

#![expect(unsafe_code, reason = "records on, waits on and destroys raw streams")]

use core::any::Any;

use smallvec::SmallVec;

use super::clock::VectorClock;
use super::cover::Cover;
use super::event_pool::EventPool;
use super::past::Past;
use super::{Epoch, Stamp, StreamId};
use crate::contain::contain;
use crate::driver::{
    Call, CaptureStatus, Code, Driver, DriverError, DriverResult, RawStream, RelaxedCapture,
};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, ThreadToken, fence, yield_now};

/// The number of covers that a timeline keeps: the oldest that is not done, because it completes first, and the newest ones, so
/// that a wait waits for as little as it must. Dropping one in between costs a longer wait at worst.
const COVERS: usize = 4;

/// After this many waits, up to sixteen points of the clock are checked, in turn, and removed if they are over. So a wait checks
/// two points for each one that it adds, and the clock shrinks while waits go on.
const WAITS_A_LOOK: u32 = 8;

/// The number of events after which a fleeting stream is one that comes again: the frees of a task that has a stream of its own are all
/// covered. In the models after the first one.
const COVERS_OF_A_GUEST: u64 = if cfg!(loom) { 1 } else { 256 };

/// A free of a fleeting stream that comes again is covered at once from this size on.
const DEFERRED_BYTES: usize = 64 << 10;

/// At most this much is freed without an event, and so many times. An event costs 136 ns on an H200, and 6.6 us where sixteen threads
/// record: a sixty-fourth of that is the cost of a pair or less. What no event covers waits for the stream, or for the device.
const OPEN_BYTES: u64 = 512 << 10;
const OPEN_FREES: u64 = if cfg!(loom) { 2 } else { 64 };

/// With so many streams that have ended with frees that no event covers, every free is covered, until the device has been waited for:
/// that much memory at most, times [`OPEN_BYTES`], waits for it.
const OPEN_ENDS: u64 = 64;

/// One free in the count of `open`, above its bytes.
const ONE_FREE: u64 = 1 << 40;

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
}

/// The answer of the driver about the covers of a stream.
#[derive(Debug)]
pub(crate) struct HowFar {
    /// The newest cover that is now known to be done.
    pub(crate) newest: Option<Cover>,
    /// The number of queries made.
    pub(crate) queries: u32,
}

/// An event that covers the requested epoch.
#[derive(Debug)]
pub(crate) struct Covered {
    pub(crate) cover: Cover,
    /// The event was recorded for this request: two driver calls, and one more where no spare event was left.
    pub(crate) is_new: bool,
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
    /// Code outside of the crate has the stream too, and may begin a capture on another thread at any moment, by safe functions.
    lent: bool,
    /// The handle is good only while a lease is held.
    fleeting: bool,
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

struct TimelineState {
    phase: Phase,
    /// Set by the last handle, after which no work is submitted: the last work lies in this epoch or an earlier one.
    last: Option<Epoch>,
    /// Threads that are recording on `raw` at this moment, with the lock released.
    pins: u32,
    /// The number of leases of a fleeting stream.
    leases: u32,
    /// Sorted by epoch.
    covers: SmallVec<[Cover; COVERS]>,
    /// The points that this stream has waited for.
    clock: VectorClock,
    /// The epoch of this stream in which the clock last grew.
    grown: Epoch,
    /// The waits since points of the clock were last checked, and the place from which they are checked next.
    waits: u32,
    looked_up_to: u32,
    ending: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Live,
    /// Of a fleeting stream without a lease: the handle must not be used. A lease makes it live again.
    Resting,
    /// The last handle is gone and the final cover is published; pins may be left.
    Closing,
    /// The raw stream is gone.
    Gone,
}

impl Timeline {
    pub(crate) fn new(
        id: StreamId,
        driver: Arc<dyn Driver>,
        events: Arc<EventPool>,
        ordinal: u32,
        stream: Underlying,
    ) -> Self {
        let Underlying { raw, owner, ending, eager, fleeting } = stream;
        let lent = matches!(ending, Ending::Leave(Some(_)));
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

    /// The point that all work submitted so far lies before. Frees and uses carry it.
    #[inline]
    pub(crate) fn now(&self) -> Stamp {
        // Acquire: pairs with the fence in `advance`, through the driver's order of the stream: see the proof at the top of the
        // file. Nothing on x86, a load barrier on Arm.
        fence(Ordering::Acquire);
        // Relaxed: only the number is read from it, and the fence keeps it from being read too early.
        let epoch = self.epoch.load(Ordering::Relaxed);
        if self.fleeting {
            // Relaxed: the lease of the caller is given up under the lock, where the number is read.
            self.handed_out.fetch_max(epoch, Ordering::Relaxed);
        }
        Stamp { stream: self.id, epoch: Epoch(epoch) }
    }

    /// As [`now`](Self::now), for a free. A stream with another owner is covered at once.
    #[inline]
    pub(crate) fn release(&self) -> Stamp {
        let stamp = self.now();
        if self.eager {
            // If no event can be recorded, as while the stream captures, the point stays uncovered until a wait for it, or the
            // last handle, covers it.
            let _ = self.cover(stamp.epoch);
        }
        stamp
    }

    /// As [`release`](Self::release), for a block of `bytes` bytes that the caller hands to no other stream before the point is
    /// covered: the event may come with a later free.
    #[inline]
    pub(crate) fn release_block(&self, bytes: usize) -> Stamp {
        if self.fleeting && bytes < DEFERRED_BYTES { self.defer(bytes) } else { self.release() }
    }

    fn defer(&self, bytes: usize) -> Stamp {
        fence(Ordering::Acquire);
        // Relaxed, with the fence: as in `now`.
        let epoch = self.epoch.load(Ordering::Relaxed);
        // Each event begins an epoch.
        if epoch <= COVERS_OF_A_GUEST || self.events.open_ends() >= OPEN_ENDS {
            return self.release();
        }
        // Relaxed: the lease of the caller is given up under the lock, where the number is read.
        self.deferred.fetch_max(epoch, Ordering::Relaxed);
        let one = ONE_FREE + bytes as u64;
        // Relaxed: a free that two threads count at once comes with an event too many, or one later.
        let open = self.open.fetch_add(one, Ordering::Relaxed) + one;
        if open >= OPEN_FREES * ONE_FREE || open % ONE_FREE >= OPEN_BYTES {
            let _ = self.cover(Epoch(epoch));
        }
        Stamp { stream: self.id, epoch: Epoch(epoch) }
    }

    /// Whether frees of the stream are over only when its device has been waited for, or when it comes again.
    pub(crate) fn has_open_end(&self) -> bool {
        let Some(state) = self.state.lock_here() else { return false };
        // Relaxed: whoever wrote it has given its lease up under the lock.
        let deferred = Epoch(self.deferred.load(Ordering::Relaxed));
        state.phase != Phase::Live
            && state.covers.last().map_or(Epoch::NONE, Cover::epoch) < deferred
            && !self.is_done(deferred)
    }

    /// As [`release`](Self::release), if that takes no driver call.
    #[inline]
    pub(crate) fn release_at_once(&self) -> Option<Stamp> {
        (!self.eager).then(|| self.now())
    }

    /// Ends the current epoch. Returns it.
    fn advance(&self) -> Epoch {
        // Relaxed: the fence orders it.
        let ended = Epoch(self.epoch.fetch_add(1, Ordering::Relaxed));
        // Release: pairs with the fence in `now`. A thread that submits behind the next driver call of the caller reads a later
        // epoch.
        fence(Ordering::Release);
        ended
    }

    pub(crate) fn is_done(&self, epoch: Epoch) -> bool {
        // Acquire: pairs with the release in `finish`. The effects of the device up to there are visible after it.
        epoch.0 <= self.done.load(Ordering::Acquire)
    }

    /// Notes that everything up to `epoch` is over on the device.
    pub(crate) fn finish(&self, epoch: Epoch) {
        // Release: pairs with the acquire in `is_done`.
        self.done.fetch_max(epoch.0, Ordering::AcqRel);
    }

    /// Every epoch up to this one is known to be over on the device.
    pub(crate) fn done(&self) -> Epoch {
        // Acquire: as in `is_done`.
        Epoch(self.done.load(Ordering::Acquire))
    }

    pub(crate) fn has_waited_for(&self, stamp: Stamp) -> bool {
        self.state.lock_here().is_some_and(|state| state.clock.includes(stamp))
    }

    /// The epoch of another stream up to which this one has waited for it; 0 if it has not.
    pub(crate) fn waited_up_to(&self, stream: StreamId) -> Epoch {
        self.state.lock_here().map_or(Epoch::NONE, |state| state.clock.known(stream))
    }

    /// Adds the points of a wait, already made, to the clock.
    pub(crate) fn learn(&self, cover: &Cover) {
        let Some(mut state) = self.state.lock_here() else { return };
        let grown = Stamp { stream: self.id, epoch: state.grown };
        if cover.past().teach(&mut state.clock, grown) {
            state.grown = self.now().epoch;
        }
    }

    /// Removes some of the points for which `is_over` returns `true`, where the clock is large and waits are made.
    pub(crate) fn forget(&self, is_over: impl Fn(Stamp) -> bool) {
        let points = {
            let Some(mut guard) = self.state.lock_here() else { return };
            let state = &mut *guard;
            state.waits += 1;
            if state.waits < WAITS_A_LOOK {
                return;
            }
            state.waits = 0;
            state.clock.next_points(&mut state.looked_up_to)
        };
        let mut points = points.unwrap_or_default();
        points.retain(|stamp| is_over(*stamp));
        if !points.is_empty() {
            let mut state = self.state.lock();
            points.into_iter().for_each(|stamp| state.clock.forget(stamp));
        }
    }

    /// An event that covers `epoch`: the one that asks for the least waiting, recorded now if there is none.
    ///
    /// # Errors
    ///
    /// A capture error while the stream captures; a lost context if the stream is gone and could not be covered.
    pub(crate) fn cover(&self, epoch: Epoch) -> DriverResult<Covered> {
        self.state.require_here()?;
        let clock = {
            let mut state = self.state.lock();
            if let Some(cover) = state.covers.iter().find(|cover| cover.epoch() >= epoch) {
                return Ok(Covered { cover: cover.clone(), is_new: false });
            }
            if state.phase != Phase::Live {
                return Err(DriverError::new(Call::EventRecord, Code::CONTEXT_DESTROYED));
            }
            state.pins += 1;
            state.clock.clone()
        };
        let recorded = self.record(clock);
        self.unpin(recorded.as_ref().ok());
        recorded.map(|cover| Covered { cover, is_new: true })
    }

    /// Removes an event that was recorded in a capture: it cannot be waited for.
    pub(crate) fn disown(&self, epoch: Epoch) {
        let disowned = {
            let mut state = self.state.lock();
            let at = state.covers.iter().position(|cover| cover.epoch() == epoch);
            at.map(|at| state.covers.remove(at))
        };
        // Its event returns to the pool after the lock is released.
        drop(disowned);
    }

    /// The handle is good only while a lease is held.
    pub(crate) fn is_fleeting(&self) -> bool {
        self.fleeting
    }

    /// Takes a lease of a fleeting stream: the caller vouches for the handle until [`rest`](Self::rest). Returns `false` if the
    /// timeline has ended.
    pub(crate) fn wake(&self) -> bool {
        let Some(mut state) = self.state.lock_here() else { return false };
        match state.phase {
            Phase::Live | Phase::Resting => {
                state.phase = Phase::Live;
                state.last = None;
                state.leases += 1;
                true
            }
            Phase::Closing | Phase::Gone => false,
        }
    }

    /// Gives a lease up. The last one covers what was handed out, if no event does, and returns when no thread uses the handle.
    ///
    /// If the stream can neither be covered nor waited for, as while it captures, the points since its last cover are over when its
    /// device has been waited for, or are covered with the next lease.
    pub(crate) fn rest(&self) {
        if self.state.is_of_parent() {
            return;
        }
        let mut tried = Epoch::NONE;
        loop {
            let (newest, clock) = {
                let mut state = self.state.lock();
                if state.leases > 1 {
                    state.leases -= 1;
                    return;
                }
                // Relaxed: all who handed points out have given their leases up under this lock, but for the caller.
                let newest = Epoch(self.handed_out.load(Ordering::Relaxed));
                let covered = state.covers.last().map_or(Epoch::NONE, Cover::epoch);
                if newest <= covered.max(tried) || self.is_done(newest) {
                    state.leases = 0;
                    state.phase = Phase::Resting;
                    // Relaxed: as above.
                    state.last = Some(newest.max(Epoch(self.deferred.load(Ordering::Relaxed))));
                    break;
                }
                state.pins += 1;
                (newest, state.clock.clone())
            };
            tried = newest;
            let recorded = self.record(clock);
            // Without an event, a wait is as good: see `retire`.
            if recorded.as_ref().is_err_and(|error| !error.code.is_capture()) && self.synchronize().is_ok() {
                self.finish(newest);
            }
            self.unpin(recorded.as_ref().ok());
        }
        while self.is_used_at_rest() {
            // Another thread makes a few driver calls. No new pin is taken.
            yield_now();
        }
    }

    /// A thread that took its pin while there was a lease still makes calls, and there is no new lease.
    fn is_used_at_rest(&self) -> bool {
        let state = self.state.lock();
        state.phase == Phase::Resting && state.pins > 0
    }

    /// Returns `true` if no lease of the fleeting stream is held.
    pub(crate) fn is_resting(&self) -> bool {
        self.state.lock_here().is_some_and(|state| state.phase == Phase::Resting)
    }

    /// Ends a fleeting stream that rests, without a driver call. Returns `false`, and does nothing, if it is lent again.
    pub(crate) fn end_at_rest(&self) -> bool {
        let Some(mut state) = self.state.lock_here() else { return false };
        if state.phase != Phase::Resting || state.pins > 0 {
            return false;
        }
        state.phase = Phase::Closing;
        let ended = state.end_if_unpinned();
        drop(state);
        self.end(ended);
        if self.has_open_end() {
            self.events.note_open_end();
        }
        true
    }

    /// Returns `true` if no further event can be recorded: for ever after, if the last handle is gone; until the next lease, if the
    /// stream is fleeting.
    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock_here().is_some_and(|state| state.phase != Phase::Live)
    }

    /// Whether the stream captures. The caller holds a pin.
    fn is_capturing(&self) -> DriverResult<bool> {
        // SAFETY: the raw stream is live: the caller's pin keeps it from being destroyed, or its owner does.
        let status = unsafe { self.driver.stream_capture_status(self.ordinal, self.raw()) }?;
        Ok(status != CaptureStatus::None)
    }

    /// Advances, then records. The caller holds a pin.
    fn record(&self, clock: VectorClock) -> DriverResult<Cover> {
        let raw = self.raw();
        if self.is_capturing()? {
            // An event recorded here would belong to the graph, and a wait on it would pull the waiting stream into the capture.
            return Err(DriverError::new(Call::EventRecord, Code::CAPTURE_UNSUPPORTED));
        }
        let event = self.events.take()?;
        let stamp = Stamp { stream: self.id, epoch: self.advance() };
        // Relaxed: as where it is added to.
        self.open.store(0, Ordering::Relaxed);
        // SAFETY:
        // - the event is live and of this device: it comes from the device's pool and has no other holder.
        // - the stream is live: as above.
        unsafe { self.driver.event_record(self.ordinal, event.raw(), raw) }?;
        if self.lent && self.is_capturing()? {
            // A capture has begun since, and the event may belong to the graph. If the capture has ended as well, a wait for the
            // event would be an error.
            return Err(DriverError::new(Call::EventRecord, Code::CAPTURE_UNSUPPORTED));
        }
        Ok(Cover::new(event, Past::new(stamp, clock)))
    }

    /// Advances, then records an event within the capture that the stream takes part in. The event is not kept here: a stream
    /// outside of the capture must neither wait for it nor ask for it.
    ///
    /// The caller holds a handle to the stream, which captures.
    pub(crate) fn record_in_capture(&self) -> DriverResult<Cover> {
        self.state.require_here()?;
        let clock = self.state.lock().clock.clone();
        let event = self.events.take()?;
        let stamp = Stamp { stream: self.id, epoch: self.advance() };
        // SAFETY:
        // - the event is live and of this device: it comes from the device's pool and has no other holder.
        // - the stream is live: the caller holds a handle to it.
        unsafe { self.driver.event_record(self.ordinal, event.raw(), self.raw()) }?;
        Ok(Cover::new(event, Past::new(stamp, clock)))
    }

    /// Publishes a cover and gives up a pin; the last pin of a closing stream destroys it.
    fn unpin(&self, cover: Option<&Cover>) {
        let mut crowded_out = None;
        let ended = {
            let mut state = self.state.lock();
            if let Some(cover) = cover {
                crowded_out = state.publish(cover.clone(), |epoch| self.is_done(epoch));
            }
            state.pins -= 1;
            state.end_if_unpinned()
        };
        drop(crowded_out);
        self.end(ended);
    }

    /// Covers the stream for the last time and releases it. Called by the last handle.
    ///
    /// If the stream can neither be covered nor waited for, points since its last cover are never over.
    pub(crate) fn retire(&self) {
        if self.state.is_of_parent() {
            // The stream is the parent's, and goes on there.
            return;
        }
        let (last, clock) = {
            let mut state = self.state.lock();
            state.pins += 1;
            // All submitters held a handle and have dropped it: the last work lies in this epoch or an earlier one.
            let last = self.now().epoch;
            state.last = Some(last);
            if matches!(state.ending, Ending::Branch(_)) {
                state.phase = Phase::Closing;
                drop(state);
                // What was captured is nobody's work until a graph is launched, and then not this timeline's.
                self.finish(last);
                return self.unpin(None);
            }
            (last, state.clock.clone())
        };
        let recorded = self.record(clock);
        if recorded.as_ref().is_err_and(|error| !error.code.is_capture()) {
            // Without an event, a wait is as good. Not while the stream captures: that would break the capture of the user, and
            // blocks freed within it belong to the graph for as long as it is replayed.
            if self.synchronize().is_ok() {
                self.finish(last);
            }
        }
        let superseded = {
            let mut state = self.state.lock();
            state.phase = Phase::Closing;
            recorded.map(|cover| state.publish_last(cover))
        };
        drop(superseded);
        while self.eager && self.state.lock().pins > 1 {
            // Another thread makes a few driver calls. No new pin is taken.
            yield_now();
        }
        self.unpin(None);
    }

    fn end(&self, ended: Option<Ending>) {
        match ended {
            None => {}
            Some(Ending::Destroy) => {
                // SAFETY: `stream_create` made it for this device; the phase went to `Gone` once, under the lock, with no pin
                // left, so it is not used now or later. A failure leaves nothing to undo.
                let _ = unsafe { self.driver.stream_destroy(self.ordinal, self.raw) };
            }
            // The owner may be foreign code and panic, and this thread may be in the middle of a call of a resource.
            Some(Ending::Leave(keepalive) | Ending::Branch(keepalive)) => {
                contain(|| drop(keepalive));
            }
        }
    }

    /// The points that are over once the host has waited for the stream: the stream up to now, and the points that it had waited
    /// for. To be called before the wait, for the reason that an advance comes before a record.
    pub(crate) fn begin_wait(&self) -> Past {
        let clock = self.state.lock().clock.clone();
        Past::new(Stamp { stream: self.id, epoch: self.advance() }, clock)
    }

    /// Waits, on the host, for all work submitted so far. Returns the points that are now over, this stream's included.
    pub(crate) fn synchronize(&self) -> DriverResult<Past> {
        self.state.require_here()?;
        let past = self.begin_wait();
        let _relaxed = RelaxedCapture::attempt(&*self.driver);
        // SAFETY: the raw stream is live: the caller holds a handle to it, or a pin.
        unsafe { self.driver.stream_synchronize(self.ordinal, self.raw()) }?;
        Ok(past)
    }

    /// As [`synchronize`](Self::synchronize), for a caller without a handle, where no event can be recorded. Breaks no capture.
    ///
    /// # Errors
    ///
    /// A capture error while the stream captures. `NOT_SUPPORTED` if it is gone, and for the legacy stream: no document says that
    /// a wait for it waits for the streams that it is ordered with.
    pub(crate) fn wait_out(&self) -> DriverResult<Past> {
        self.state.require_here()?;
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Live || self.raw() == RawStream::LEGACY {
                return Err(DriverError::new(Call::StreamSynchronize, Code::NOT_SUPPORTED));
            }
            state.pins += 1;
        }
        let waited = match self.is_capturing() {
            Ok(true) => Err(DriverError::new(Call::StreamSynchronize, Code::CAPTURE_UNSUPPORTED)),
            Err(error) if error.code.is_capture() => Err(error),
            // A query that fails for another reason proves nothing about a capture; the wait reports the rest.
            Ok(false) | Err(_) => self.synchronize(),
        };
        self.unpin(None);
        waited
    }

    /// As [`synchronize`](Self::synchronize), without waiting: `None` if there is work left.
    pub(crate) fn query(&self) -> DriverResult<Option<Past>> {
        self.state.require_here()?;
        let past = self.begin_wait();
        let _relaxed = RelaxedCapture::attempt(&*self.driver);
        // SAFETY: the raw stream is live: the caller holds a handle to it.
        let idle = unsafe { self.driver.stream_query(self.ordinal, self.raw()) }?;
        Ok(idle.then_some(past))
    }

    /// Asks the driver how far the stream has come. Costs one query for each cover that is done, and one more if another is not.
    pub(crate) fn poll(&self) -> DriverResult<HowFar> {
        self.state.require_here()?;
        let mut how_far = HowFar { newest: None, queries: 0 };
        loop {
            let oldest = {
                let state = self.state.lock();
                state.covers.iter().find(|cover| !self.is_done(cover.epoch())).cloned()
            };
            let Some(cover) = oldest else { return Ok(how_far) };
            how_far.queries += 1;
            if !cover.query()? {
                return Ok(how_far);
            }
            self.finish(cover.epoch());
            how_far.newest = Some(cover);
        }
    }

    /// Returns `true`, for ever after, if the stream is gone and all its work is known to be over.
    pub(crate) fn is_over(&self) -> bool {
        let Some(state) = self.state.lock_here() else { return false };
        state.phase == Phase::Gone && state.last.is_some_and(|last| self.is_done(last))
    }

    /// The point that all work ever submitted lies before: as [`now`](Self::now), but also valid if the stream is gone.
    pub(crate) fn latest(&self) -> Stamp {
        // Under the lock, so that an epoch that the last handle ends is not mistaken for one with work.
        let state = self.state.lock_here();
        let last = state.as_ref().and_then(|state| state.last);
        Stamp { stream: self.id, epoch: last.unwrap_or_else(|| self.now().epoch) }
    }
}

impl TimelineState {
    /// Inserts a cover; returns the one that was removed for it.
    fn publish(&mut self, cover: Cover, is_done: impl Fn(Epoch) -> bool) -> Option<Cover> {
        let at = self.covers.partition_point(|other| other.epoch() < cover.epoch());
        if self.phase == Phase::Closing && at < self.covers.len() {
            return Some(cover);
        }
        self.covers.insert(at, cover);
        // The newest is never removed: it covers all points that were released.
        let goes = usize::from(!is_done(self.covers[0].epoch()));
        (self.covers.len() > COVERS).then(|| self.covers.remove(goes))
    }

    /// Inserts the cover that the last handle recorded; returns those that it replaces. A later cover, which another thread
    /// recorded meanwhile, stays.
    fn publish_last(&mut self, cover: Cover) -> SmallVec<[Cover; COVERS]> {
        let earlier = self.covers.partition_point(|other| other.epoch() < cover.epoch());
        let superseded = self.covers.drain(..earlier).collect();
        self.covers.insert(0, cover);
        superseded
    }

    fn end_if_unpinned(&mut self) -> Option<Ending> {
        (self.phase == Phase::Closing && self.pins == 0).then(|| {
            self.phase = Phase::Gone;
            core::mem::replace(&mut self.ending, Ending::Leave(None))
        })
    }
}

impl core::fmt::Debug for Timeline {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let now = self.now();
        write!(f, "Timeline({now:?}, done {})", self.done.load(Ordering::Acquire))
    }
}
