//! When may memory of the host be let go?
//!
//! A copy that was submitted reads or writes memory of the host at any time until it has run. `settle` returns when
//! it cannot any more, and the proof is by cases of what it saw last:
//!
//! - a synchronisation succeeded: the copy has run;
//! - the context is lost: the driver has torn its queues down, and what is in them never runs;
//! - the driver has shut down: so have its contexts. To a child of a fork it looks the same, while the parent's
//!   device goes on; there, who owns memory that the two may share leaks it.
//!
//! Any other failure says nothing about the copy, so the driver is asked again, in another way. There is no fourth
//! way out: a driver that answers neither of the three for ever would make the thread wait for ever, and that is
//! sound.
//!
//! A stream that is recording a graph never runs what is submitted to it, so no copy that touches memory of the host
//! is submitted to one. Should another thread begin a capture between that check and the copy, the synchronisation is
//! illegal and invalidates the graph, so that the copy never runs; `settle` returns when that capture has been ended,
//! with the error. A capture that was begun and ended in between goes unseen: memory that a copy was to fill is
//! initialised before.

use core::time::Duration;

use crate::driver::{Call, Code, DriverError};
use crate::error::Error;
use crate::stream::{Event, StreamRef};

/// Between two tries, when the driver refuses to wait: short against what a transfer takes, long against a call's 1 µs.
const PAUSE: Duration = Duration::from_micros(200);

/// Waits until nothing that was submitted to `stream` can touch memory of the host.
///
/// # Errors
///
/// If the context is lost or the driver has shut down: the copies have not run, and will not. If the stream captured
/// meanwhile: they may have been recorded in place of being run.
pub(super) fn settle(stream: StreamRef<'_>) -> Result<(), Error> {
    let mut recorded = Ok(());
    loop {
        let Err(error) = stream.synchronize() else { return recorded };
        if is_the_end(&error) {
            return Err(error);
        }
        if error.is_capture() {
            recorded = Err(error);
        }
        let Err(error) = stream.device().synchronize() else { return recorded };
        if is_the_end(&error) {
            return Err(error);
        }
        std::thread::sleep(PAUSE);
    }
}

/// As [`settle`], for what was submitted before `event`. That has run, though the stream may capture by now: no event is
/// recorded within a capture.
pub(super) fn settle_event(event: &Event, stream: StreamRef<'_>) -> Result<(), Error> {
    let settled = event.synchronize().or_else(|_| settle(stream));
    settled.or_else(|error| if error.is_capture() { Ok(()) } else { Err(error) })
}

/// Nothing that was submitted runs any more.
fn is_the_end(error: &Error) -> bool {
    error.is_shut_down() || is_lost(error)
}

/// The context is lost, and what was submitted to it never runs.
///
/// A thread's capture mode belongs to no device: an error of that call may be another context's, while this one goes on.
pub(super) fn is_lost(error: &Error) -> bool {
    error.is_context_lost() && error.call() != Some(Call::CaptureMode)
}

/// Refuses a stream that records a graph. The graph would keep the address of memory that is let go before it is
/// launched, or a wait would tie it to what is outside of it and break it.
///
/// # Errors
///
/// `Capture` if it does; as the driver says.
pub(super) fn refuse_capture(stream: StreamRef<'_>) -> Result<(), Error> {
    if stream.is_capturing()? {
        return Err(DriverError::new(Call::StreamCaptureStatus, Code::CAPTURE_UNSUPPORTED).into());
    }
    Ok(())
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use super::*;
    use crate::Sim;
    use crate::driver::CaptureMode;

    #[test]
    fn a_capture_that_came_in_between_is_an_error() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().expect("a stream");
        let raw = stream.as_ref().raw();
        sim.begin_capture(0, raw, CaptureMode::Relaxed).expect("it does not capture");
        let settled = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(10 * PAUSE);
                // It was invalidated.
                let _ = sim.end_capture(0, raw);
            });
            settle(stream.as_ref())
        });
        assert!(settled.expect_err("what was submitted did not run").is_capture());
        settle(stream.as_ref()).expect("the capture is over");
    }
}
