//! When may memory of the host be let go?
//!
//! A copy that was submitted reads or writes memory of the host at any time until it has run. This is the whole list of what
//! proves that it does so no more:
//!
//! - a wait that comes after the copy has succeeded: for its stream, for an event behind it, or for its device. The copy has run;
//! - a wait has failed, and the driver says that this error [proves](crate::driver::Driver::proves_stopped) that the device has
//!   stopped. libcuda never says so: on an H200 the copies of other streams went on for as long as they took, up to 0.4 s, after
//!   each error of a kernel that loses the context had been returned. The simulator knows whether it has thrown its queues away;
//! - the machine was inherited by a fork. What is under way is the parent's, and reaches memory of the parent. Memory that the two
//!   share it may reach, so what a transfer owns is leaked here; of a borrow, who forked has promised that parent and child do
//!   not both have the use of it.
//!
//! Nothing else does, however final it sounds. A driver that has shut down is no proof: the exit handler of this crate is what
//! says so, before libcuda has heard of it. Nor is an error without a known cause, the error of a call that does not wait, which
//! may be another context's, or a code that a test has made the simulator return. After each of them the driver is asked again, in
//! two ways. Where both answers sound final, memory that is owned is [leaked](Settled::Open), with the error; memory that is
//! borrowed cannot be, and its thread asks for as long as it takes. At exit, and where a kernel has lost the context while
//! the copy was under way, that is until the process has ended.
//!
//! So that the error of a kernel is seldom met there, a copy that the host waits for is submitted when all before it
//! is over: the wait before it has the error, and then nothing is lent. The copies of a [scope](super::transfer_scope) are not
//! held back so.
//!
//! The thread that runs the exit handlers does not get into that loop: the driver refuses every copy that it asks for from then
//! on, and it has left those from before without a way back.
//!
//! A stream that is recording a graph never runs what is submitted to it, so no copy that touches memory of the host
//! is submitted to one, nor to one that others can capture: see [`Courier`](super::courier::Courier). Should somebody with the
//! raw handle of a stream of this crate begin a capture between that check and the copy, the synchronisation is illegal and
//! invalidates the graph, so that the copy never runs; the wait ends when that capture has been ended, with the error. The device
//! is not waited for meanwhile: that would break the captures of all others.

use core::time::Duration;
use std::thread;

use crate::device::Device;
use crate::driver::{Call, Code, DriverError};
use crate::error::Error;
use crate::stream::{Event, StreamRef};

/// Between two tries, when the driver refuses to wait: short against what a transfer takes, long against a call's 1 µs.
const PAUSE: Duration = Duration::from_micros(200);

/// The longest time between two tries, when nobody answers: one in a thousandth of a core's time.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// What is known of the copies when a wait has ended.
#[derive(Debug)]
pub(super) enum Settled {
    /// Nothing touches the memory any more. With an error, the copies have not run and will not; or, if the stream captured
    /// meanwhile, they may have been recorded in place of being run.
    Over(Result<(), Error>),
    /// Nobody can say. The memory must be there for ever.
    Open(Error),
}

/// Waits until no work that was submitted to `stream` can touch memory of the host, or the driver cannot tell.
pub(super) fn try_settle(stream: StreamRef<'_>) -> Settled {
    settle_or_ask(stream, &mut Ok(()))
}

/// As [`try_settle`], and does not return before it is certain: for memory that is borrowed.
pub(super) fn settle(stream: StreamRef<'_>) -> Result<(), Error> {
    let (mut recorded, mut pause) = (Ok(()), PAUSE);
    loop {
        match settle_or_ask(stream, &mut recorded) {
            Settled::Over(outcome) => return outcome,
            Settled::Open(error) if stream.device().machine().is_inherited() => return Err(error),
            Settled::Open(_) => {}
        }
        thread::sleep(pause);
        pause = LONGEST_PAUSE.min(2 * pause);
    }
}

/// Asks until there is an answer. `recorded` becomes the error of a capture that was met.
fn settle_or_ask(stream: StreamRef<'_>, recorded: &mut Result<(), Error>) -> Settled {
    let device = stream.device();
    if device.machine().is_inherited() {
        // Before any lock, which a thread of the parent may have held when it forked.
        return Settled::Open(DriverError::new(Call::StreamSynchronize, Code::NOT_INITIALIZED).into());
    }
    loop {
        let Err(of_stream) = stream.synchronize() else { return Settled::Over(recorded.clone()) };
        if proves_stopped(device, &of_stream) {
            return Settled::Over(Err(of_stream));
        }
        if of_stream.is_capture() {
            *recorded = Err(of_stream);
            thread::sleep(PAUSE);
            continue;
        }
        let waited = device.machine().wait_for_device(device.ordinal());
        let Err(of_device) = waited else { return Settled::Over(recorded.clone()) };
        if proves_stopped(device, &of_device) {
            return Settled::Over(Err(of_device));
        }
        if sounds_final(&of_stream) && sounds_final(&of_device) {
            return Settled::Open(of_stream);
        }
        thread::sleep(PAUSE);
    }
}

/// As [`try_settle`], for what was submitted before `event`. That has run, though the stream may capture by now: no event is
/// recorded within a capture.
pub(super) fn try_settle_event(event: &Event, stream: StreamRef<'_>) -> Settled {
    match is_over(event) {
        Some(outcome) => Settled::Over(outcome),
        None => match try_settle(stream) {
            Settled::Over(outcome) => Settled::Over(despite_a_capture(outcome)),
            open @ Settled::Open(_) => open,
        },
    }
}

/// As [`settle`], for what was submitted before `event`: see [`try_settle_event`].
pub(super) fn settle_event(event: &Event, stream: StreamRef<'_>) -> Result<(), Error> {
    is_over(event).unwrap_or_else(|| despite_a_capture(settle(stream)))
}

/// Waits for the event, if that is to be had.
fn is_over(event: &Event) -> Option<Result<(), Error>> {
    if event.device().machine().is_inherited() {
        return None;
    }
    match event.synchronize() {
        Err(error) if !proves_stopped(event.device(), &error) => None,
        outcome => Some(outcome),
    }
}

fn despite_a_capture(outcome: Result<(), Error>) -> Result<(), Error> {
    outcome.or_else(|error| if error.is_capture() { Ok(()) } else { Err(error) })
}

/// Waits for a copy of memory that is owned, if it was submitted.
pub(super) fn try_settle_copy(submitted: Result<(), Error>, stream: StreamRef<'_>) -> Settled {
    match submitted {
        Ok(()) => try_settle(stream),
        Err(error) if is_refusal(&error) => Settled::Over(Err(error)),
        Err(error) => match try_settle(stream) {
            Settled::Over(_) => Settled::Over(Err(error)),
            Settled::Open(_) => Settled::Open(error),
        },
    }
}

/// Waits for a copy of memory that is borrowed, if it was submitted.
pub(super) fn settle_copy(submitted: Result<(), Error>, stream: StreamRef<'_>) -> Result<(), Error> {
    refused_or_settled(submitted, stream)?;
    settle(stream)
}

/// Lets a submission that succeeded be. If it failed, nothing of it is under way when this returns.
pub(super) fn refused_or_settled(submitted: Result<(), Error>, stream: StreamRef<'_>) -> Result<(), Error> {
    submitted.inspect_err(|error| {
        if !is_refusal(error) {
            // Its own error matters less than that of the submission.
            let _ = settle(stream);
        }
    })
}

/// A submission that failed with this has begun nothing: another call failed, before the copy; or the copy was refused.
fn is_refusal(error: &Error) -> bool {
    error.call() != Some(Call::CopyAsync) || error.code().is_some_and(Code::is_refusal)
}

/// The driver says that nothing which was submitted to the device runs any more.
pub(super) fn proves_stopped(device: &Device, error: &Error) -> bool {
    let (Some(call), Some(code)) = (error.call(), error.code()) else { return false };
    device.driver().proves_stopped(device.ordinal(), DriverError::new(call, code))
}

/// To ask again would hardly bring another answer. No proof of anything.
fn sounds_final(error: &Error) -> bool {
    error.is_final() || error.code() == Some(Code::UNKNOWN) || error.call() == Some(Call::ContextEnter)
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use super::*;
    use crate::Sim;
    use crate::driver::CaptureMode;
    use crate::sim::HazardKind;

    #[test]
    fn a_capture_that_came_in_between_is_an_error() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().expect("a stream");
        let raw = stream.as_ref().raw();
        sim.begin_capture(0, raw, CaptureMode::Relaxed).expect("it does not capture");
        let settled = thread::scope(|scope| {
            scope.spawn(|| {
                // Until the wait has met the capture: the simulator notes each wait of a stream that captures.
                while sim.hazards().is_empty() {
                    thread::sleep(PAUSE);
                }
                // It was invalidated.
                let _ = sim.end_capture(0, raw);
            });
            settle(stream.as_ref())
        });
        assert!(settled.expect_err("what was submitted did not run").is_capture());
        settle(stream.as_ref()).expect("the capture is over");
        // The wait may have met it again before it was ended.
        assert!(sim.hazards().iter().all(|hazard| hazard.kind() == HazardKind::IllegalDuringCapture));
    }
}
