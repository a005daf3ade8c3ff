//! Asking the driver for the progress of a stream.

use super::{Epoch, StreamId};
use crate::device::Machine;
use crate::error::Error;
use crate::order::Uncovered;

/// The cost and the result of polling a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Polled {
    /// The stream was not covered up to the epoch, and an event was recorded.
    pub(crate) recorded: bool,
    /// Driver calls: the query whether the stream captures, the record, and a query for each event. Not counted: changes of the
    /// thread's capture mode around a query, and making an event when no spare one is left.
    pub(crate) calls: u32,
    /// Every epoch up to this one is known to be over now.
    pub(crate) done: Epoch,
}

impl Machine {
    /// Every epoch of the stream up to this one is known to be over, so memory with a stamp of it up to there may be used on any
    /// stream and by the host. No driver call.
    ///
    /// [`Epoch::ALL`] for a stream that is gone, if its work is over; [`Epoch::NONE`] for one of another machine.
    pub(crate) fn done_up_to(&self, of: StreamId) -> Epoch {
        self.table().done_up_to(of)
    }

    /// Asks the driver for the progress of the stream, unless it is known to be over up to `want`. Does not wait.
    ///
    /// Covers the stream up to `want` first, so that a later poll can succeed. A stream that cannot be covered is left alone, as
    /// while it captures, or when it is gone without a last event: that is no error.
    pub(crate) fn poll(&self, of: StreamId, want: Epoch) -> Result<Polled, Error> {
        self.require_same_process()?;
        if of.machine() != self.number() {
            return Err(Error::machine_mismatch());
        }
        let mut polled = Polled { recorded: false, calls: 0, done: self.done_up_to(of) };
        if polled.done >= want {
            return Ok(polled);
        }
        let Some(timeline) = self.table().timeline(of) else {
            return Ok(Polled { done: Epoch::ALL, ..polled });
        };
        match timeline.cover(want) {
            Ok(covered) if covered.is_new => (polled.recorded, polled.calls) = (true, 2),
            Ok(_) => {}
            Err(uncovered) if uncovered.is_capture() => polled.calls = 1,
            Err(Uncovered::Ended { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        let how_far = timeline.poll()?;
        polled.calls += how_far.queries;
        if let Some(over) = how_far.newest {
            self.table().finish_all(over.past());
        }
        Ok(Polled { done: timeline.done(), ..polled })
    }
}

#[cfg(all(test, feature = "testing", not(loom)))]
mod tests {

    use super::*;
    use crate::driver::{Call, CaptureMode, Code};
    use crate::sim::Fault;
    use crate::testing::Stall;
    use crate::{Sim, Stamp};

    /// Polls, and compares the reported driver calls with those that the driver has counted.
    fn poll(sim: &Sim, of: Stamp) -> Polled {
        let before = sim.calls();
        let polled = sim.machine().poll(of.stream(), of.epoch()).unwrap();
        let made = sim.calls() - before;
        assert_eq!(made[Call::EventRecord], u64::from(polled.recorded));
        let not_counted = made[Call::CaptureMode] + made[Call::EventCreate];
        assert_eq!(made.total() - not_counted, u64::from(polled.calls), "{made:?}");
        polled
    }

    #[test]
    fn it_covers_once_then_asks_until_it_is_over_and_then_no_more() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let mut stall = Stall::on(stream.as_ref());
        let freed = stream.as_ref().release();
        let first = poll(&sim, freed);
        assert_eq!(first, Polled { recorded: true, calls: 3, done: Epoch::NONE });
        assert_eq!(poll(&sim, freed), Polled { recorded: false, calls: 1, done: Epoch::NONE });
        stall.let_go();
        stream.record().unwrap().synchronize().unwrap();
        assert_eq!(poll(&sim, freed).calls, 0, "it is known already");
        assert!(poll(&sim, freed).done >= freed.epoch());
    }

    #[test]
    fn it_brings_what_the_stream_had_waited_for() {
        let sim = Sim::new();
        let (first, second) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
        let earlier = first.as_ref().release();
        second.wait_for_stream(&first).unwrap();
        let freed = second.as_ref().release();
        // The simulator may take its time.
        while poll(&sim, freed).done < freed.epoch() {}
        assert!(sim.machine().done_up_to(first.id()) >= earlier.epoch());
    }

    #[test]
    fn a_stream_that_captures_is_left_alone() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let before = stream.as_ref().release();
        let raw = stream.as_ref().raw();
        sim.begin_capture(0, raw, CaptureMode::Global).unwrap();
        assert_eq!(poll(&sim, before), Polled { recorded: false, calls: 1, done: Epoch::NONE });
        sim.end_capture(0, raw).unwrap();
        assert!(poll(&sim, before).recorded);
        assert!(sim.hazards().is_empty());
    }

    #[test]
    fn a_stream_that_is_gone_without_an_event_is_never_over() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let freed = stream.as_ref().release();
        // It captures when it is destroyed, which ends the capture.
        sim.begin_capture(0, stream.as_ref().raw(), CaptureMode::Global).unwrap();
        drop(stream);
        assert_eq!(poll(&sim, freed), Polled { recorded: false, calls: 0, done: Epoch::NONE });
    }

    #[test]
    fn a_stream_that_is_gone_and_forgotten_is_over() {
        let sim = Sim::new();
        let stream = sim.device(0).stream().unwrap();
        let freed = stream.as_ref().release();
        drop(stream);
        sim.device(0).synchronize().unwrap();
        (0..4).for_each(|_| drop(sim.device(0).stream().unwrap()));
        assert_eq!(poll(&sim, freed), Polled { recorded: false, calls: 0, done: Epoch::ALL });
    }

    #[test]
    fn a_failure_is_an_error() {
        let (sim, elsewhere) = (Sim::new(), Sim::new());
        let stream = sim.device(0).stream().unwrap();
        let freed = stream.as_ref().release();
        let of_other_machine = elsewhere.machine().poll(freed.stream(), freed.epoch());
        assert!(of_other_machine.unwrap_err().is_device_mismatch());
        sim.inject(Fault::every(Call::EventRecord, Code::OUT_OF_MEMORY));
        assert!(sim.machine().poll(freed.stream(), freed.epoch()).unwrap_err().is_out_of_memory());
        sim.clear_faults();
        sim.poison(0, Code::ILLEGAL_ADDRESS);
        assert!(sim.machine().poll(freed.stream(), freed.epoch()).unwrap_err().is_context_lost());
    }
}
