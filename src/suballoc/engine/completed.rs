//! Asking the driver what is over, and making nobody's what is.

use smallvec::SmallVec;

use super::Engine;
use super::book::{Counters, Inner, Request, SuballocBook};
use super::slow_path::keep_first;
use crate::error::Error;
use crate::resource::{DevicePtr, Resource};
use crate::stream::StreamId;
use crate::suballoc::core::{Owned, Owner, Settling};

/// How many blocks are looked at before others are let at the core: a fraction of a millisecond.
const BLOCKS_A_TURN: usize = 1024;

/// How many streams are asked in vain in one strategy. Those that follow have freed later, so their work is less likely to be over, and
/// each costs up to five driver calls. The next request begins with them; who finds nothing waits, in a later strategy.
const MOST_BUSY: usize = 64;

/// What part of the streams at least is asked for a short block, where it is over. To look who has freed costs as much as there
/// are streams: this much is found at once, so that the next requests need not look.
const PART: usize = 16;

impl<U: Resource> Engine<U> {
    /// Empties all caches and makes nobody's, and so whole, all that is over. Does not wait.
    ///
    /// # Errors
    ///
    /// That of the first stream that could not be asked. What is over of the others is nobody's all the same.
    pub(in crate::suballoc) fn collect(&self) -> Result<(), Error> {
        self.book.require_here()?;
        self.book.spill_in_turn();
        let owned: Vec<_> = self.book.inner.lock().core.owners().collect();
        self.book.poll_streams(&owned)
    }
}

impl SuballocBook {
    /// Asks the driver what is over on the streams that others have freed on, and serves from that.
    pub(super) fn serve_completed(&self, request: &Request<'_>) -> Result<Option<DevicePtr>, Error> {
        let mut others = self.others(request.requester).owned;
        if others.is_empty() {
            return Ok(None);
        }
        // The longer ago the last free, the likelier that the work before it is over; and nobody is asked twice before everybody
        // has been asked.
        others.sort_by_key(|other| other.last_busy);
        let least = if request.is_long() { 1 } else { others.len().div_ceil(PART) };
        let (mut failed, mut over) = (Ok(()), 0);
        let mut busy: SmallVec<[StreamId; MOST_BUSY]> = SmallVec::new();
        for other in &others {
            match self.poll_stream(other) {
                Ok(true) => {
                    over += 1;
                    let is_enough =
                        self.settle(core::slice::from_ref(other), |inner| has_at_hand(inner, request));
                    if is_enough && over >= least {
                        return Ok(self.serve_within_reach(request));
                    }
                }
                Ok(false) => busy.push(other.stream),
                Err(error) => keep_first(&mut failed, error)?,
            }
            if busy.len() == MOST_BUSY {
                break;
            }
        }
        // What one stream had waited for is over with it.
        self.settle(&others, |inner| {
            for stream in busy {
                if let Some(owner) = inner.core.owner_of(stream) {
                    inner.core.note_busy(owner);
                }
            }
        });
        match self.serve_within_reach(request) {
            Some(block) => Ok(Some(block)),
            None => failed.map(|()| None),
        }
    }

    /// Asks the driver how far each of these streams has come, and makes nobody's what is over.
    ///
    /// # Errors
    ///
    /// That of the first stream that could not be asked; the others are, all the same.
    pub(super) fn poll_streams(&self, owned: &[Owned]) -> Result<(), Error> {
        let mut failed = Ok(());
        for other in owned {
            self.poll_stream(other).map(drop).or_else(|error| keep_first(&mut failed, error))?;
        }
        self.settle(owned, |_| ());
        failed
    }

    /// Asks the driver how far a stream has come. Returns `true` if it has come further than was known.
    fn poll_stream(&self, other: &Owned) -> Result<bool, Error> {
        let machine = self.device.machine();
        let before = machine.done_up_to(other.stream);
        let polled = machine.poll(other.stream, other.newest)?;
        Counters::add(&self.counters.events_recorded, u64::from(polled.recorded));
        Ok(polled.done > before)
    }

    /// Makes nobody's what is known to be over of these streams, in pieces that let others in; with the last of them still in
    /// hand, does something else.
    fn settle<T>(&self, owned: &[Owned], then: impl FnOnce(&mut Inner) -> T) -> T {
        let machine = self.device.machine();
        let mut streams = owned.iter().map(|other| other.stream);
        let mut settling = None;
        loop {
            let mut inner = self.inner.lock();
            let mut looks = BLOCKS_A_TURN;
            while looks > 0 {
                let Some((stream, mut part)) = settling.take().or_else(|| {
                    let stream = streams.next()?;
                    Some((stream, Settling::up_to(machine.done_up_to(stream))))
                }) else {
                    return then(&mut inner);
                };
                // A stream that has come is a look, too.
                looks -= 1;
                // By its number each time: a stream may have left meanwhile.
                if let Some(owner) = inner.core.owner_of(stream)
                    && !inner.core.settle_some(owner, &mut part, &mut looks)
                {
                    settling = Some((stream, part));
                }
            }
        }
    }
}

/// Returns `true` if there is a block for which nobody has to be asked or waited for.
fn has_at_hand(inner: &Inner, request: &Request<'_>) -> bool {
    let owner = request.requester.id().and_then(|id| inner.core.owner_of(id)).unwrap_or(Owner::UNOWNED);
    u64::from(inner.core.largest(owner, &[])) >= request.need()
}
