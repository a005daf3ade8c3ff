//! A stream's part in a capture, with an order of its own.

#![expect(unsafe_code, reason = "records and waits within a capture")]

use super::{Stream, StreamKind, StreamRef};
use crate::driver::CaptureId;
use crate::error::Error;
use crate::order::{Cover, Ending, Underlying};
use crate::sync::Arc;

impl StreamRef<'_> {
    /// The capture that the stream takes part in; `None` if it takes part in none, or that capture is broken.
    pub(crate) fn capture_id(self) -> Result<Option<CaptureId>, Error> {
        // SAFETY: the raw stream is live and of this device, because `self` borrows its owner.
        Ok(unsafe { self.driver().stream_capture_id(self.device().ordinal(), self.raw()) }?)
    }

    /// A stream that stands for the work of this one within one capture: the same raw stream, under a number of its own.
    ///
    /// What is captured runs when the graph is launched, and not behind what was submitted to the stream. So the points of the
    /// stream and of its branch are not compared: no point of a branch says anything about work that runs.
    pub(crate) fn branch(self) -> Result<Stream, Error> {
        let timeline = self.timeline();
        // A branch is kept longer than the call that a fleeting stream is lent for. It makes no call of its own: who joins two
        // branches passes both streams.
        let keepalive = (!timeline.is_fleeting()).then(|| Arc::new(self.to_stream()) as _);
        let ending = Ending::Branch(keepalive);
        let stream = Underlying { owner: timeline.owner(), ..Underlying::of(timeline.raw(), ending) };
        let timeline = self.device().enter_timeline(stream)?;
        Ok(Stream::with_timeline(self.device(), timeline, StreamKind::Foreign))
    }

    /// Makes later work on this branch follow the work that is on another one now, within the capture that `earlier` takes part
    /// in. The stream of this branch joins that capture, if it takes part in none. Returns the event: it is kept until the
    /// capture has ended.
    pub(crate) fn follow_branch(self, earlier: StreamRef<'_>) -> Result<Cover, Error> {
        let cover = earlier.timeline().record_in_capture()?;
        let timeline = self.timeline();
        // SAFETY: the raw stream is live and of this device, because `self` borrows its owner; the event was recorded just now on a
        // stream of the same machine, which the caller has compared.
        unsafe { cover.make_wait(self.device().ordinal(), timeline.raw()) }?;
        timeline.learn(&cover);
        Ok(cover)
    }
}
