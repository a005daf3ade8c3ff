//! What of a container must not get into a graph.
//!
//! A stream that captures records work in place of running it. A graph that safe code can launch whenever it likes would touch
//! memory that is gone by then, and memory that was allocated in a graph is there only while the graph runs. Such graphs are
//! cudarc's: to begin a capture there, to end it and to launch the graph are safe functions.
//!
//! The question whether a stream captures is good for as long as nothing but this crate and the driver runs on the thread, and
//! nobody else has the stream. So it is asked
//!
//! - behind everything that may run foreign code, and right before the work: a resource calls the handlers of its user, and a
//!   buffer of the host may be anybody's;
//! - and once more behind the work, on a stream that others may capture. If it captures by then, the work may have been
//!   recorded: that is an error, and the blocks that it names are never given back.
//!
//! A capture that another thread has begun and ended between the two questions is not seen. Copies with memory of the host do
//! not depend on it: see [`Courier`](super::courier::Courier).

use crate::driver::{Call, Code, DriverError};
use crate::error::Error;
use crate::stream::{StreamKind, StreamRef};

/// Refuses a stream that records a graph. The graph would keep the address of memory that is let go before it is
/// launched, or a wait would tie it to what is outside of it and break it.
pub(super) fn refuse_capture(stream: StreamRef<'_>) -> Result<(), Error> {
    if stream.is_capturing()? {
        return Err(DriverError::new(Call::StreamCaptureStatus, Code::CAPTURE_UNSUPPORTED).into());
    }
    Ok(())
}

/// Refuses a stream that records a graph which safe code can launch when the memory is gone.
///
/// cudarc captures its own streams and the default stream of a thread, and none that this crate made. On the streams of this
/// crate, who launches a graph has promised that what it touches is there.
pub(super) fn refuse_capture_by_others(stream: StreamRef<'_>) -> Result<(), Error> {
    match stream.kind() {
        StreamKind::Foreign | StreamKind::PerThread => refuse_capture(stream),
        StreamKind::Owned | StreamKind::Legacy | StreamKind::Service => Ok(()),
    }
}
