//! `Event`: a point of a stream that other streams can wait for.

use core::fmt;

use super::{Frontier, Stamp, Stream, StreamRef};
use crate::device::Device;
use crate::error::Error;
use crate::order::Cover;

/// A point of a stream, recorded: other streams and the host can wait for it.
///
/// A wait for an event includes all waits that its stream had made when it was recorded.
///
/// ```
/// use alluvion::Sim;
///
/// let sim = Sim::new();
/// let (first, second) = (sim.device(0).stream()?, sim.device(0).stream()?);
/// let freed = alluvion::Frontier::of(first.release());
/// let event = first.record()?;
/// second.wait_event(&event)?;
/// assert!(second.may_reuse(&freed));
/// event.synchronize()?;
/// assert!(event.is_complete()?);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Event {
    device: Device,
    cover: Cover,
}

static_assertions::assert_impl_all!(Event: Send, Sync, Clone);

impl Event {
    pub(super) fn new(device: Device, cover: Cover) -> Self {
        Self { device, cover }
    }

    /// The device of the stream that the event was recorded on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The point that the event covers.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.cover.stamp()
    }

    /// The point as a frontier, for [`StreamRef::may_reuse`] and the like.
    #[must_use]
    pub fn frontier(&self) -> Frontier {
        Frontier::of(self.stamp())
    }

    /// Returns `true` if everything before the event is done. Does not wait.
    ///
    /// # Errors
    ///
    /// Those of the work itself, too.
    pub fn is_complete(&self) -> Result<bool, Error> {
        let complete = self.cover.query()?;
        if complete {
            self.finish();
        }
        Ok(complete)
    }

    /// Waits, on the host, until everything before the event is done.
    ///
    /// # Errors
    ///
    /// Those of the work itself, too.
    pub fn synchronize(&self) -> Result<(), Error> {
        self.cover.synchronize()?;
        self.finish();
        Ok(())
    }

    fn finish(&self) {
        self.device.table().finish_all(self.cover.past());
    }
}

impl Stream {
    /// Makes later work on this stream wait, on the device, for the event.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` if the event is of another machine; a capture error while this stream captures.
    pub fn wait_event(&self, event: &Event) -> Result<(), Error> {
        self.as_ref().wait_event(event)
    }
}

impl StreamRef<'_> {
    /// As [`Stream::wait_event`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn wait_event(self, event: &Event) -> Result<(), Error> {
        self.device().require_machine(&event.device)?;
        self.follow(&event.cover)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:?})", self.stamp())
    }
}
