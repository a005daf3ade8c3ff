//! The streams of a device.

#![expect(unsafe_code, reason = "destroys a stream that was not handed out")]

use super::{PerThreadStream, Stream, StreamKind};
use crate::device::Device;
use crate::driver::StreamFlags;
use crate::error::Error;
use crate::order::{Ending, Timeline, Underlying};
use crate::sync::Arc;

impl Device {
    /// Makes a stream that is not ordered with the legacy default stream.
    pub fn stream(&self) -> Result<Stream, Error> {
        self.stream_with(StreamFlags::default())
    }

    /// Makes a stream with flags of your choice.
    pub fn stream_with(&self, flags: StreamFlags) -> Result<Stream, Error> {
        Stream::create(self, flags)
    }

    /// The legacy default stream: every blocking stream of the device waits for it and it for them.
    #[must_use]
    pub fn default_stream(&self) -> Stream {
        Stream::with_timeline(self, Arc::clone(self.legacy_timeline()), StreamKind::Legacy)
    }

    /// The calling thread's default stream.
    ///
    /// # Errors
    ///
    /// If the machine has no more stream numbers, or the thread is ending and has released its streams.
    pub fn per_thread_stream(&self) -> Result<PerThreadStream, Error> {
        PerThreadStream::of(self)
    }

    /// A stream that the driver makes, and that ends with its timeline.
    pub(super) fn create_timeline(&self, flags: StreamFlags) -> Result<Arc<Timeline>, Error> {
        let raw = self.driver().stream_create(self.ordinal(), flags)?;
        self.enter_timeline(Underlying::of(raw, Ending::Destroy)).inspect_err(|_| {
            // SAFETY: the stream was made above, and was not handed out.
            let _ = unsafe { self.driver().stream_destroy(self.ordinal(), raw) };
        })
    }

    /// A stream of the crate's own, for calls without one. The device keeps it.
    pub(crate) fn service_stream(&self) -> Result<Stream, Error> {
        self.machine().require_same_process()?;
        let kept = self.service_timeline();
        if let Some(timeline) = kept.get() {
            return Ok(Stream::with_timeline(self, Arc::clone(timeline), StreamKind::Service));
        }
        let made = self.create_timeline(StreamFlags::default())?;
        // The cell is not filled under its own lock, because that would be a driver call under a lock. The thread that comes
        // second destroys the stream that it made.
        let timeline = match kept.set(Arc::clone(&made)) {
            Ok(()) => made,
            Err(_) => {
                made.retire();
                self.note_ended(made.id());
                kept.get().map_or(made, Arc::clone)
            }
        };
        Ok(Stream::with_timeline(self, timeline, StreamKind::Service))
    }

    /// The least and the greatest priority that a stream can have; the greatest is the lower number.
    pub fn stream_priority_range(&self) -> Result<(i32, i32), Error> {
        Ok(self.driver().stream_priority_range(self.ordinal())?)
    }
}
