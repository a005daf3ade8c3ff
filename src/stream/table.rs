//! A machine's streams, by number.

use std::sync::OnceLock;

use super::timeline::Timeline;
use super::{Stamp, StreamId};
use crate::error::Error;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering};

/// Slots of the first chunk; each further one is twice as large, so 27 chunks hold every `u32`. A program has a handful of
/// streams: 64 slots are 1.5 KiB. Under loom two, because each slot is an object of the model.
const FIRST: usize = if cfg!(loom) { 2 } else { 64 };
const CHUNKS: usize = 27;

/// How many ended streams a new one looks at to see whether they can be forgotten. Two keep ahead of any creation rate.
const SWEEP: usize = 2;

type Slot = Mutex<Option<Arc<Timeline>>>;

/// The timelines of one machine. A slot is filled once, and emptied when its stream is gone and its work is done; it is
/// never filled again. What is not in the table is over.
#[derive(Debug)]
pub(crate) struct Table {
    machine: u32,
    /// Chunks never move, so a look-up takes no lock but its slot's.
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    next: AtomicU64,
    /// Timelines whose streams have ended, oldest first.
    ended: Mutex<Vec<StreamId>>,
}

impl Table {
    pub(crate) fn new(machine: u32) -> Self {
        Self {
            machine,
            chunks: [const { OnceLock::new() }; CHUNKS],
            next: AtomicU64::new(0),
            ended: Mutex::new(Vec::new()),
        }
    }

    /// Enters a timeline under a number of its own.
    pub(crate) fn enter(&self, make: impl FnOnce(StreamId) -> Timeline) -> Result<Arc<Timeline>, Error> {
        self.sweep();
        // Relaxed: the number is all that is taken from it; the slot's lock publishes the timeline.
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let Ok(index) = u32::try_from(index) else {
            return Err(Error::unsupported(
                "another stream",
                "this machine has made 4294967296 of them",
                "reuse streams, through a `StreamPool`",
            ));
        };
        let timeline = Arc::new(make(StreamId::new(self.machine, index)));
        let (chunk, at) = place(index);
        let slots =
            self.chunks[chunk].get_or_init(|| (0..FIRST << chunk).map(|_| Mutex::new(None)).collect());
        *slots[at].lock() = Some(Arc::clone(&timeline));
        Ok(timeline)
    }

    /// The timeline of a stream; `None` if the stream is gone and all its work is over.
    pub(crate) fn timeline(&self, id: StreamId) -> Option<Arc<Timeline>> {
        let (chunk, at) = place(id.index());
        self.chunks[chunk].get()?.get(at)?.lock().clone()
    }

    pub(crate) fn is_done(&self, stamp: Stamp) -> bool {
        self.timeline(stamp.stream).is_none_or(|timeline| timeline.is_done(stamp.epoch))
    }

    pub(crate) fn finish(&self, stamp: Stamp) {
        if let Some(timeline) = self.timeline(stamp.stream) {
            timeline.finish(stamp.epoch);
        }
    }

    /// Notes that the stream has ended: its slot can be emptied once its work is over.
    pub(crate) fn note_ended(&self, id: StreamId) {
        self.ended.lock().push(id);
    }

    /// Forgets some ended streams whose work is over.
    fn sweep(&self) {
        for _ in 0..SWEEP {
            let Some(id) = ({
                let mut ended = self.ended.lock();
                (!ended.is_empty()).then(|| ended.remove(0))
            }) else {
                return;
            };
            let Some(timeline) = self.timeline(id) else { continue };
            // A query that fails says nothing; the stream is looked at again later.
            let _ = timeline.poll();
            if timeline.is_over() {
                let (chunk, at) = place(id.index());
                if let Some(slots) = self.chunks[chunk].get() {
                    slots[at].lock().take();
                }
            } else {
                self.ended.lock().push(id);
            }
        }
    }

    /// How many slots are filled.
    #[cfg(all(test, feature = "sim", not(loom)))]
    pub(crate) fn entries(&self) -> usize {
        self.chunks
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|slots| slots.iter())
            .filter(|slot| slot.lock().is_some())
            .count()
    }
}

/// Which chunk, and where in it.
fn place(index: u32) -> (usize, usize) {
    let position = index as usize / FIRST + 1;
    let chunk = position.ilog2() as usize;
    (chunk, index as usize - FIRST * ((1 << chunk) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_one_place() {
        let (mut chunk, mut at) = (0, 0);
        for index in 0..10_000 {
            assert_eq!(place(index), (chunk, at));
            at += 1;
            if at == FIRST << chunk {
                (chunk, at) = (chunk + 1, 0);
            }
        }
        assert!(place(u32::MAX).0 < CHUNKS);
    }
}
