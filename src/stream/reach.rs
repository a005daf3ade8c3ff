//! How much of another stream comes before the next work of a stream, and waiting for more.

use super::{Epoch, Stamp, StreamId, StreamRef};
use crate::error::Error;

/// The cost of a wait for a point of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Waited {
    /// The stream did not come after the point yet, and waits for it now, on the device.
    pub(crate) needed: bool,
    /// The point was not covered, and an event was recorded for it.
    pub(crate) recorded: bool,
}

impl StreamRef<'_> {
    /// The latest epoch of stream `of` that the next work on this one comes after, because this stream has waited for it or it is
    /// known to be over. Memory with a stamp of `of` up to it may be reused here. No driver call.
    ///
    /// [`Epoch::ALL`] for this stream itself, and for one that is gone, if its work is over; [`Epoch::NONE`] for a stream of
    /// another machine.
    pub(crate) fn reach(self, of: StreamId) -> Epoch {
        let timeline = self.timeline();
        if of == timeline.id() {
            return Epoch::ALL;
        }
        self.device().table().done_up_to(of).max(timeline.waited_up_to(of))
    }

    /// Makes later work on this stream wait, on the device, for `of`, unless it comes after it already. As
    /// [`wait_for`](Self::wait_for), and returns the cost.
    pub(crate) fn wait_up_to(self, of: Stamp) -> Result<Waited, Error> {
        if self.comes_after(self.timeline(), of) {
            return Ok(Waited::default());
        }
        let device = self.device();
        device.machine().require_same_process()?;
        if device.machine_number() != of.stream.machine() {
            return Err(Error::machine_mismatch());
        }
        let Some(other) = device.table().timeline(of.stream) else { return Ok(Waited::default()) };
        let covered = other.cover(of.epoch)?;
        self.follow(&covered.cover)?;
        Ok(Waited { needed: true, recorded: covered.is_new })
    }
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use super::*;
    use crate::driver::Call;
    use crate::sim::CallCounts;
    use crate::{Frontier, Sim};

    fn calls_of<T>(sim: &Sim, action: impl FnOnce() -> T) -> (T, CallCounts) {
        let before = sim.calls();
        let it = action();
        (it, sim.calls() - before)
    }

    #[test]
    fn a_stream_reaches_all_of_itself_and_nothing_of_others() {
        let (sim, elsewhere) = (Sim::new(), Sim::new());
        let (own, other) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
        let foreign = elsewhere.device(0).stream().unwrap();
        let (own, other, foreign) = (own.as_ref(), other.as_ref(), foreign.as_ref());
        let ((), made) = calls_of(&sim, || {
            assert_eq!(own.reach(own.id()), Epoch::ALL);
            assert_eq!(own.reach(other.id()), Epoch::NONE);
            assert_eq!(own.reach(foreign.id()), Epoch::NONE);
            assert_eq!(sim.machine().done_up_to(foreign.id()), Epoch::NONE);
        });
        assert_eq!(made.total(), 0);
        // The foreign stream is never over here, even when it is over on its own machine.
        foreign.synchronize().unwrap();
        assert!(foreign.device().machine().done_up_to(foreign.id()) > Epoch::NONE);
        assert_eq!(own.reach(foreign.id()), Epoch::NONE);
    }

    #[test]
    fn a_wait_reaches_as_far_as_its_event_and_says_what_it_took() {
        let sim = Sim::new();
        let (taker, giver) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
        let (taker, giver) = (taker.as_ref(), giver.as_ref());
        let freed = giver.release();
        let (waited, made) = calls_of(&sim, || taker.wait_up_to(freed).unwrap());
        assert_eq!(waited, Waited { needed: true, recorded: true });
        assert_eq!((made[Call::EventRecord], made[Call::StreamWaitEvent]), (1, 1));
        assert_eq!(taker.reach(giver.id()), freed.epoch());
        // A free after the event is not reached.
        let later = giver.release();
        assert!(later.epoch() > taker.reach(giver.id()) && !taker.may_reuse(&Frontier::of(later)));
        let (waited, made) = calls_of(&sim, || taker.wait_up_to(freed).unwrap());
        assert_eq!((waited, made.total()), (Waited::default(), 0), "it has waited for that");
        // A third stream finds the event.
        let third = sim.device(0).stream().unwrap();
        let waited = third.as_ref().wait_up_to(freed).unwrap();
        assert_eq!(waited, Waited { needed: true, recorded: false });
    }

    #[test]
    fn waiting_for_a_stream_reaches_what_it_had_reached() {
        let sim = Sim::new();
        let streams: Vec<_> = (0..3).map(|_| sim.device(0).stream().unwrap()).collect();
        let [first, second, third] = [0, 1, 2].map(|at| streams[at].as_ref());
        let freed = first.release();
        assert!(second.wait_up_to(freed).unwrap().needed);
        assert!(third.wait_up_to(second.release()).unwrap().needed);
        assert_eq!(third.reach(first.id()), freed.epoch());
        assert_eq!(first.reach(third.id()), Epoch::NONE);
    }

    #[test]
    fn what_is_over_is_reached_by_everybody() {
        let sim = Sim::new();
        let (taker, giver) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
        let freed = giver.as_ref().release();
        giver.synchronize().unwrap();
        assert_eq!(taker.as_ref().reach(giver.id()), freed.epoch());
        assert_eq!(sim.machine().done_up_to(giver.id()), freed.epoch());
        assert_eq!(taker.as_ref().wait_up_to(freed).unwrap(), Waited::default());
    }

    #[test]
    fn a_stream_that_is_gone_is_reached_when_its_work_is_over() {
        let sim = Sim::new();
        let (taker, giver) = (sim.device(0).stream().unwrap(), sim.device(0).stream().unwrap());
        let freed = giver.as_ref().release();
        drop(giver);
        assert_eq!(taker.as_ref().reach(freed.stream()), Epoch::NONE);
        taker.synchronize().unwrap();
        sim.device(0).synchronize().unwrap();
        // Each new stream looks at some that have ended.
        (0..4).for_each(|_| drop(sim.device(0).stream().unwrap()));
        assert_eq!(taker.as_ref().reach(freed.stream()), Epoch::ALL);
        assert_eq!(sim.machine().done_up_to(freed.stream()), Epoch::ALL);
        assert_eq!(taker.as_ref().wait_up_to(freed).unwrap(), Waited::default());
    }

    #[test]
    fn reach_says_what_may_be_reused() {
        let sim = Sim::new();
        let streams: Vec<_> = (0..4).map(|_| sim.device(0).stream().unwrap()).collect();
        let mut stamps = Vec::new();
        for step in 0..60_usize {
            let (at, other) = (step * 7 % 4, step * 3 % 4);
            stamps.push(streams[at].as_ref().release());
            match step % 5 {
                0 => streams[other].wait_for_stream(&streams[at]).unwrap(),
                3 if step % 4 == 0 => streams[other].synchronize().unwrap(),
                _ => drop(streams[at].record().unwrap()),
            }
            for stream in streams.iter().map(|stream| stream.as_ref()) {
                for &stamp in &stamps {
                    let within = stamp.epoch() <= stream.reach(stamp.stream());
                    assert_eq!(within, stream.may_reuse(&Frontier::of(stamp)), "{stamp:?} on {stream:?}");
                }
            }
        }
    }
}
