//! What has the stream waited for, and how is it waited for on the host?

#![expect(unsafe_code, reason = "waits for raw streams, and asks them")]

use super::state::Phase;
use super::{Ending, Timeline};
use crate::driver::{Call, CaptureId, Code, DriverError, DriverResult, RawStream, RelaxedCapture};
use crate::order::past::Past;
use crate::order::{Cover, Epoch, Stamp, StreamId};

/// After this many waits, up to sixteen points of the clock are checked, in turn, and removed if they are over. So a wait checks
/// two points for each one that it adds, and the clock shrinks while waits go on.
const WAITS_A_LOOK: u32 = 8;

impl Timeline {
    pub(crate) fn has_waited_for(&self, stamp: Stamp) -> bool {
        self.state.lock_unless_forked().is_some_and(|state| state.clock.includes(stamp))
    }

    /// The epoch of another stream up to which this one has waited for it; 0 if it has not.
    pub(crate) fn waited_up_to(&self, stream: StreamId) -> Epoch {
        self.state.lock_unless_forked().map_or(Epoch::NONE, |state| state.clock.known(stream))
    }

    /// Adds the points of a wait, already made, to the clock.
    pub(crate) fn learn(&self, cover: &Cover) {
        let Some(mut state) = self.state.lock_unless_forked() else { return };
        let grown = Stamp { stream: self.id, epoch: state.grown };
        if cover.past().teach(&mut state.clock, grown) {
            state.grown = self.now().epoch;
        }
    }

    /// Removes some of the points for which `is_over` returns `true`, where the clock is large and waits are made.
    pub(crate) fn forget(&self, is_over: impl Fn(Stamp) -> bool) {
        let points = {
            let Some(mut guard) = self.state.lock_unless_forked() else { return };
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

    /// The points that are over once the host has waited for the stream: the stream up to now, and the points that it had waited
    /// for. To be called before the wait, for the reason that an advance comes before a record.
    pub(crate) fn begin_wait(&self) -> Past {
        let clock = self.state.lock().clock.clone();
        Past::new(Stamp { stream: self.id, epoch: self.advance() }, clock)
    }

    /// Waits, on the host, for all work submitted so far. Returns the points that are now over, this stream's included.
    pub(crate) fn synchronize(&self) -> DriverResult<Past> {
        self.require_handle(Call::StreamSynchronize)?;
        let past = self.begin_wait();
        let _relaxed = RelaxedCapture::attempt(&*self.driver);
        // SAFETY: the raw stream is live: the caller holds a handle to it, or a pin.
        unsafe { self.driver.stream_synchronize(self.ordinal, self.raw()) }?;
        Ok(past)
    }

    /// As [`synchronize`](Self::synchronize), for a caller without a handle, where no event can be recorded. Breaks no capture.
    pub(crate) fn wait_out(&self) -> DriverResult<Past> {
        self.state.require_same_process()?;
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Live || self.raw() == RawStream::LEGACY {
                return Err(DriverError::new(Call::StreamSynchronize, Code::NOT_SUPPORTED));
            }
            state.pins += 1;
        }
        let waited = self.refuse_capture().and_then(|()| self.synchronize());
        self.unpin(None);
        waited
    }

    /// A capture error while the stream captures. The caller holds a pin.
    fn refuse_capture(&self) -> DriverResult<()> {
        match self.is_capturing() {
            Ok(true) => Err(DriverError::new(Call::StreamSynchronize, Code::CAPTURE_UNSUPPORTED)),
            Err(error) if error.code.is_capture() => Err(error),
            // A query that fails for another reason proves nothing about a capture; the wait reports the rest.
            Ok(false) | Err(_) => Ok(()),
        }
    }

    /// That the handle is this stream's. Of a fleeting stream it is while somebody holds a lease: in a [visit](super) it may be another's.
    fn require_handle(&self, call: Call) -> DriverResult<()> {
        self.state.require_same_process()?;
        if self.fleeting && self.state.lock().phase != Phase::Live {
            return Err(DriverError::new(call, Code::CONTEXT_DESTROYED));
        }
        Ok(())
    }

    /// For a wait for the device, which would break every capture of it. Only a stream that is at hand can be asked. The legacy stream
    /// answers for every blocking stream of the device, also for those that this crate does not know.
    pub(crate) fn require_no_capture(&self) -> DriverResult<()> {
        self.while_at_hand(|| self.refuse_capture()).map(drop)
    }

    /// The capture that the stream takes part in, for a caller without a handle; `None` also for a stream that is not at hand. One that is the
    /// part of a raw stream in a capture says which, also at rest, and after the end of that.
    pub(crate) fn capture_id(&self) -> DriverResult<Option<CaptureId>> {
        if self.capture.is_some() {
            return Ok(self.capture);
        }
        // SAFETY: the raw stream is live: a pin keeps it from being destroyed, or its owner does.
        let capture = || unsafe { self.driver.stream_capture_id(self.ordinal, self.raw()) };
        self.while_at_hand(capture).map(Option::flatten)
    }

    /// Asks the stream with a pin; `None` if it is not at hand.
    fn while_at_hand<T>(&self, ask: impl FnOnce() -> DriverResult<T>) -> DriverResult<Option<T>> {
        self.state.require_same_process()?;
        {
            let mut state = self.state.lock();
            // Beside the timeline of its part in a capture, a stream has one of its own.
            if state.phase != Phase::Live || matches!(state.ending, Ending::Branch(_)) {
                return Ok(None);
            }
            state.pins += 1;
        }
        let answer = ask();
        self.unpin(None);
        answer.map(Some)
    }

    /// As [`synchronize`](Self::synchronize), without waiting: `None` if there is work left.
    pub(crate) fn query(&self) -> DriverResult<Option<Past>> {
        self.require_handle(Call::StreamQuery)?;
        let past = self.begin_wait();
        let _relaxed = RelaxedCapture::attempt(&*self.driver);
        // SAFETY: the raw stream is live: the caller holds a handle to it.
        let idle = unsafe { self.driver.stream_query(self.ordinal, self.raw()) }?;
        Ok(idle.then_some(past))
    }
}
