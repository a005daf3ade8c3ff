//! An event that covers all epochs of a stream up to one.

#![expect(unsafe_code, reason = "hands live events to the driver")]

use super::event_pool::PooledEvent;
use super::past::Past;
use super::{Epoch, Stamp};
use crate::driver::{Code, DriverError, DriverResult, RawStream, RelaxedCapture};
use crate::sync::Arc;

/// A recorded event, the epoch that it covers, and the points that its stream had waited for by then.
#[derive(Clone, Debug)]
pub(crate) struct Cover {
    recorded: Arc<Recorded>,
}

#[derive(Debug)]
struct Recorded {
    event: PooledEvent,
    past: Past,
}

impl Cover {
    pub(crate) fn new(event: PooledEvent, past: Past) -> Self {
        Self { recorded: Arc::new(Recorded { event, past }) }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.past().epoch()
    }

    pub(crate) fn stamp(&self) -> Stamp {
        self.past().stamp()
    }

    /// The points that are ordered before the event, and over once it is complete: its own, and those that its stream had waited
    /// for.
    pub(crate) fn past(&self) -> &Past {
        &self.recorded.past
    }

    fn event(&self) -> &PooledEvent {
        &self.recorded.event
    }

    pub(crate) fn query(&self) -> DriverResult<bool> {
        let driver = self.event().driver();
        let _relaxed = RelaxedCapture::attempt(driver);
        // SAFETY: the event is live, because `self.recorded` keeps it; it belongs to the ordinal that its pool names.
        unsafe { driver.event_query(self.event().ordinal(), self.event().raw()) }
    }

    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        let driver = self.event().driver();
        let _relaxed = RelaxedCapture::attempt(driver);
        // SAFETY: as in `query`.
        unsafe { driver.event_synchronize(self.event().ordinal(), self.event().raw()) }
    }

    /// Makes `stream` wait, on the device.
    ///
    /// # Safety
    ///
    /// `stream` is live and belongs to device `ordinal` of the machine that recorded the event.
    pub(crate) unsafe fn make_wait(&self, ordinal: u32, stream: RawStream) -> DriverResult<()> {
        // SAFETY:
        // - `stream` is live and of this device: the caller's promise.
        // - the event is live, because `self.recorded` keeps it, and of the same machine: the caller's promise.
        let waited = unsafe { self.event().driver().stream_wait_event(ordinal, stream, self.event().raw()) };
        // Both are valid. A driver calls so an event whose capture is over: another thread has captured its stream meanwhile.
        waited.map_err(|error| match error.code {
            Code::INVALID_VALUE => DriverError::new(error.call, Code::CAPTURED_EVENT),
            _ => error,
        })
    }
}
