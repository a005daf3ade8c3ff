//! An event that covers all epochs of a stream up to one.

#![expect(unsafe_code, reason = "hands live events to the driver")]

use super::clock::VectorClock;
use super::event_pool::PooledEvent;
use super::{Epoch, Stamp, StreamId};
use crate::driver::{DriverResult, RawStream, RelaxedCapture};
use crate::sync::Arc;

/// A recorded event, what it covers, and what its stream had waited for by then.
#[derive(Clone, Debug)]
pub(crate) struct Cover {
    event: Arc<PooledEvent>,
    stamp: Stamp,
    clock: Arc<VectorClock>,
}

impl Cover {
    pub(crate) fn new(event: PooledEvent, stamp: Stamp, clock: VectorClock) -> Self {
        Self { event: Arc::new(event), stamp, clock: Arc::new(clock) }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.stamp.epoch
    }

    pub(crate) fn stream(&self) -> StreamId {
        self.stamp.stream
    }

    /// What is ordered before the event: the stream itself, and all that it had waited for.
    pub(crate) fn teach(&self, clock: &mut VectorClock) {
        clock.join(&self.clock);
        clock.raise(self.stamp);
    }

    /// Every point that is over once the event is.
    pub(crate) fn points(&self) -> impl Iterator<Item = Stamp> + '_ {
        self.clock.iter().chain([self.stamp])
    }

    pub(crate) fn query(&self) -> DriverResult<bool> {
        let driver = self.event.driver();
        let _relaxed = RelaxedCapture::attempt(driver);
        // SAFETY: the event is live, because `self.event` keeps it; it belongs to the ordinal that its pool names.
        unsafe { driver.event_query(self.event.ordinal(), self.event.raw()) }
    }

    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        let driver = self.event.driver();
        let _relaxed = RelaxedCapture::attempt(driver);
        // SAFETY: as in `query`.
        unsafe { driver.event_synchronize(self.event.ordinal(), self.event.raw()) }
    }

    /// Makes `stream` wait, on the device.
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to device `ordinal` of the machine that recorded the event.
    pub(crate) unsafe fn make_wait(&self, ordinal: u32, stream: RawStream) -> DriverResult<()> {
        // SAFETY:
        // - `stream` is live and of this device: the caller's promise.
        // - the event is live, because `self.event` keeps it, and of the same machine: the caller's promise.
        unsafe { self.event.driver().stream_wait_event(ordinal, stream, self.event.raw()) }
    }
}
