//! `Table`: the streams of a machine, by number.

use std::collections::VecDeque;

use super::past::Past;
use super::places::Places;
use super::timeline::Timeline;
use super::{Epoch, Stamp, StreamId};
use crate::driver::DriverError;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// The number of ended streams that a new stream checks, to remove those that are over. Two keep ahead of any creation rate.
const SWEEP: usize = 2;

type TimelineSlot = Mutex<Option<Arc<Timeline>>>;

/// Why a stream was not entered.
#[derive(Debug)]
pub(crate) enum NotEntered {
    /// The table is of the parent of this process.
    Refused(DriverError),
    /// All [places](StreamId::PLACES) are taken by streams that are not over.
    Full,
}

impl From<DriverError> for NotEntered {
    fn from(error: DriverError) -> Self {
        Self::Refused(error)
    }
}

/// The timelines of one machine. A timeline is removed when its stream is gone and its work is done. So a stream that is not in
/// the table is over.
#[derive(Debug)]
pub(crate) struct Table {
    machine: u32,
    /// A look-up takes the lock of the slot alone.
    slots: Places<TimelineSlot>,
    /// The number of places that have ever been used.
    places: AtomicU64,
    /// Numbers for new streams, in places that have become free.
    vacant: Mutex<Vec<StreamId>>,
    /// Timelines whose streams have ended, oldest first.
    ended: Mutex<VecDeque<StreamId>>,
}

impl Table {
    pub(crate) fn new(machine: u32) -> Self {
        Self {
            machine,
            slots: Places::default(),
            places: AtomicU64::new(0),
            vacant: Mutex::new(Vec::new()),
            ended: Mutex::new(VecDeque::new()),
        }
    }

    /// Enters a timeline under a number of its own.
    pub(crate) fn enter(&self, make: impl FnOnce(StreamId) -> Timeline) -> Result<Arc<Timeline>, NotEntered> {
        self.vacant.require_same_process()?;
        self.sweep();
        let vacant = self.vacant.lock().pop();
        let id = match vacant {
            Some(id) => id,
            None => self.next_place()?,
        };
        let timeline = Arc::new(make(id));
        let slot = self.slots.get_or_make(id.index(), || Mutex::new(None));
        // The number is not published before this, so no look-up can come too early.
        *slot.lock() = Some(Arc::clone(&timeline));
        Ok(timeline)
    }

    /// Returns `true` in a child of the process that it was made in. There the table does not know which work is over.
    fn is_forked_child(&self) -> bool {
        self.vacant.is_forked_child()
    }

    fn next_place(&self) -> Result<StreamId, NotEntered> {
        // Relaxed: only the number is read from it; the lock of the slot publishes the timeline.
        let index = self.places.fetch_add(1, Ordering::Relaxed);
        match u32::try_from(index) {
            Ok(index) if index < StreamId::PLACES => Ok(StreamId::new(self.machine, index)),
            _ => Err(NotEntered::Full),
        }
    }

    fn slot(&self, id: StreamId) -> Option<&TimelineSlot> {
        self.slots.get(id.index())
    }

    /// The timeline of a stream; `None` if the stream is gone and all its work is over.
    pub(crate) fn timeline(&self, id: StreamId) -> Option<Arc<Timeline>> {
        self.look(id, Arc::clone)
    }

    fn look<T>(&self, id: StreamId, look: impl FnOnce(&Arc<Timeline>) -> T) -> Option<T> {
        let slot = self.slot(id)?.lock_unless_forked()?;
        // If another stream has the place, this one is over.
        slot.as_ref().filter(|timeline| timeline.id() == id).map(look)
    }

    pub(crate) fn is_done(&self, stamp: Stamp) -> bool {
        !self.is_forked_child()
            && self.look(stamp.stream, |timeline| timeline.is_done(stamp.epoch)).unwrap_or(true)
    }

    /// Every epoch of the stream up to this one is known to be over: all of them if the stream is gone and its work done, and
    /// none if it is of another machine.
    pub(crate) fn done_up_to(&self, id: StreamId) -> Epoch {
        if id.machine() != self.machine || self.is_forked_child() {
            return Epoch::NONE;
        }
        self.look(id, |timeline| timeline.done()).unwrap_or(Epoch::ALL)
    }

    fn finish(&self, stamp: Stamp) {
        self.look(stamp.stream, |timeline| timeline.finish(stamp.epoch));
    }

    /// Notes that a point is over, and all that comes before it.
    pub(crate) fn finish_all(&self, over: &Past) {
        over.finish(|stamp| self.finish(stamp));
    }

    /// The points that are over once the host has waited for all work of the device. To be called before that wait.
    pub(crate) fn begin_wait(&self, ordinal: u32) -> Vec<Past> {
        let of_device = self.timelines().filter(|timeline| timeline.ordinal() == ordinal);
        of_device.map(|timeline| timeline.begin_wait()).collect()
    }

    /// The timelines that are not known to be over.
    pub(crate) fn timelines(&self) -> impl Iterator<Item = Arc<Timeline>> {
        self.slots.iter().filter_map(|slot| slot.lock().clone())
    }

    /// Notes that the stream has ended: its place is free once its work is over.
    pub(crate) fn note_ended(&self, id: StreamId) {
        if let Some(mut ended) = self.ended.lock_unless_forked() {
            ended.push_back(id);
        }
    }

    /// Removes some ended streams whose work is over.
    fn sweep(&self) {
        for _ in 0..SWEEP {
            let oldest = self.ended.lock().pop_front();
            let Some(id) = oldest else { return };
            let Some(timeline) = self.timeline(id) else { continue };
            // A query that fails proves nothing; the stream is checked again later.
            let _ = timeline.poll();
            if !timeline.is_over() {
                self.ended.lock().push_back(id);
                continue;
            }
            let forgotten = self.slot(id).and_then(|slot| slot.lock().take());
            drop(forgotten);
            if let Some(id) = id.successor() {
                self.vacant.lock().push(id);
            }
        }
    }
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests_on_the_simulator {
    use super::*;
    use crate::Sim;

    #[test]
    fn gone_streams_take_no_room() {
        let sim = Sim::new();
        let (device, table) = (sim.device(0), sim.machine().table());
        let mut ids = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let stream = device.stream().expect("a stream");
            stream.synchronize().expect("nothing is wrong");
            assert!(ids.insert(stream.id()), "a number is never used twice");
        }
        // The legacy stream, and those that ended after the last look at one.
        assert!(table.places.load(Ordering::Relaxed) <= 4, "{table:?}");
        assert!(ids.iter().filter(|id| table.timeline(**id).is_some()).count() <= 2);
        assert!(sim.live().events <= 4, "{:?}", sim.live());
    }

    #[test]
    fn a_clock_forgets_the_streams_that_are_gone() {
        let sim = Sim::new();
        let (device, table) = (sim.device(0), sim.machine().table());
        let taker = device.stream().expect("a stream");
        for _ in 0..1000 {
            let stream = device.stream().expect("a stream");
            taker.wait_for_stream(&stream).expect("nothing is wrong");
            stream.synchronize().expect("nothing is wrong");
        }
        let mut known = 0;
        table.timeline(taker.id()).expect("it lives").begin_wait().finish(|_| known += 1);
        assert!(known < 40, "{known} streams");
    }

    #[test]
    fn a_stream_without_a_number_is_destroyed() {
        let sim = Sim::new();
        let device = sim.device(0);
        sim.machine().table().places.store(u64::from(StreamId::PLACES), Ordering::Relaxed);
        assert!(device.stream().is_err());
        assert!(device.service_stream().is_err());
        assert_eq!(sim.live().streams, 0);
    }

    #[test]
    fn a_stream_stays_while_its_work_is_not_over() {
        let sim = Sim::new();
        let (device, table) = (sim.device(0), sim.machine().table());
        let stream = device.stream().expect("a stream");
        let (id, freed) = (stream.id(), stream.as_ref().release());
        sim.inject(crate::sim::Fault::every(
            crate::driver::Call::EventQuery,
            crate::driver::Code::NOT_PERMITTED,
        ));
        drop(stream);
        let others: Vec<_> = (0..10).map(|_| device.stream().expect("a stream")).collect();
        assert!(table.timeline(id).is_some() && !table.is_done(freed));
        sim.clear_faults();
        drop(others);
        (0..100).for_each(|_| drop(device.stream().expect("a stream")));
        assert!(table.timeline(id).is_none() && table.is_done(freed));
    }
}
