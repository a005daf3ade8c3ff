//! Which event covers a point?

#![expect(unsafe_code, reason = "asks whether raw streams capture, and records on them")]

use super::Timeline;
use super::state::Phase;
use crate::driver::{Call, CaptureStatus, Code, DriverError, DriverResult};
use crate::order::clock::VectorClock;
use crate::order::past::Past;
use crate::order::{Cover, Epoch, Stamp};
use crate::sync::Ordering;

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

/// Why no event covers the requested epoch. Decided under the lock: a fleeting stream may be lent again a moment later.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Uncovered {
    /// None was recorded before the stream was gone, or at rest. With `is_open` its work is over when its device has been waited for.
    Ended { is_open: bool },
    /// The driver has refused.
    Refused(DriverError),
}

impl Uncovered {
    /// A graph capture forbids the record.
    pub(crate) fn is_capture(&self) -> bool {
        matches!(self, Self::Refused(error) if error.code.is_capture())
    }
}

impl Timeline {
    /// An event that covers `epoch`: the one that asks for the least waiting, recorded now if there is none.
    pub(crate) fn cover(&self, epoch: Epoch) -> Result<Covered, Uncovered> {
        self.state.require_same_process().map_err(Uncovered::Refused)?;
        let clock = {
            let mut state = self.state.lock();
            if let Some(cover) = state.covers.iter().find(|cover| cover.epoch() >= epoch) {
                return Ok(Covered { cover: cover.clone(), is_new: false });
            }
            if state.phase != Phase::Live {
                return Err(Uncovered::Ended { is_open: self.is_open(&state) });
            }
            state.pins += 1;
            state.clock.clone()
        };
        let recorded = self.record(clock);
        self.unpin(recorded.as_ref().ok());
        recorded.map(|cover| Covered { cover, is_new: true }).map_err(Uncovered::Refused)
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

    /// Asks the driver how far the stream has come. Costs one query for each cover that is done, and one more if another is not.
    pub(crate) fn poll(&self) -> DriverResult<HowFar> {
        self.state.require_same_process()?;
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

    /// Whether the stream captures. The caller holds a pin.
    pub(super) fn is_capturing(&self) -> DriverResult<bool> {
        // SAFETY: the raw stream is live: the caller's pin keeps it from being destroyed, or its owner does.
        let status = unsafe { self.driver.stream_capture_status(self.ordinal, self.raw()) }?;
        Ok(status != CaptureStatus::None)
    }

    /// Advances, then records. The caller holds a pin.
    pub(super) fn record(&self, clock: VectorClock) -> DriverResult<Cover> {
        let raw = self.raw();
        if self.is_capturing()? {
            // An event recorded here would belong to the graph, and a wait on it would pull the waiting stream into the capture.
            return Err(DriverError::new(Call::EventRecord, Code::CAPTURE_UNSUPPORTED));
        }
        let event = self.events.take()?;
        let stamp = Stamp { stream: self.id, epoch: self.advance() };
        // Relaxed, here and below: as where it is added to.
        let open = self.open.swap(0, Ordering::Relaxed);
        // SAFETY:
        // - the event is live and of this device: it comes from the device's pool and has no other holder.
        // - the stream is live: as above.
        let recorded = unsafe { self.driver.event_record(self.ordinal, event.raw(), raw) };
        let recorded = recorded.and_then(|()| {
            // Where a capture has begun since, the event may belong to the graph. If the capture has ended as well, a wait for the
            // event would be an error.
            if self.lent && self.is_capturing()? {
                return Err(DriverError::new(Call::EventRecord, Code::CAPTURE_UNSUPPORTED));
            }
            Ok(Cover::new(event, Past::new(stamp, clock)))
        });
        if recorded.is_err() {
            // No event covers them.
            self.open.fetch_add(open, Ordering::Relaxed);
        }
        recorded
    }

    /// Advances, then records an event within the capture that the stream takes part in. The event is not kept here: a stream
    /// outside of the capture must neither wait for it nor ask for it.
    ///
    /// The caller holds a handle to the stream, which captures.
    pub(crate) fn record_in_capture(&self) -> DriverResult<Cover> {
        self.state.require_same_process()?;
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
    pub(super) fn unpin(&self, cover: Option<&Cover>) {
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
}
