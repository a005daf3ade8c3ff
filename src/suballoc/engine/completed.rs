//! Asks the driver which work is completed, and makes its memory unowned.

use smallvec::SmallVec;

use super::book::{Counters, Inner, Request, SuballocBook};
use super::slow_path::keep_first;
use crate::error::Error;
use crate::resource::DevicePtr;
use crate::stream::StreamId;
use crate::suballoc::core::{Disowning, Owned, Owner};

/// How many blocks are looked at before the mutex is released for others: a fraction of a millisecond.
const BLOCKS_A_TURN: usize = 1024;

/// How many busy streams end the search in one strategy. The streams after them have freed later, so their work is less
/// likely to be completed, and each query costs up to five driver calls. The next request begins with those streams. A
/// later strategy waits.
const MOST_BUSY: usize = 64;

/// For a short block the search goes on until 1/16 of the streams have made progress. Listing the streams costs time in
/// proportion to their number; with this much found at once, the next requests need not list them.
const PART: usize = 16;

impl SuballocBook {
    /// Empties all caches, asks the driver which work is completed, and merges its memory. Does not wait. It is
    /// [`Pool::defragment`](crate::Pool::defragment), for a suballocator of which only the book is known.
    ///
    /// ```
    /// use alluvion::suballoc::SuballocBook;
    /// use alluvion::{AnyResource, DeviceVec, PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(4 << 20))?;
    /// let stack = AnyResource::new(pool.stats());
    /// drop(DeviceVec::<u8, _>::zeroed_in(1 << 20, &stream, &stack)?);
    /// stream.synchronize()?;
    /// let book = stack.find::<SuballocBook>().expect("there is a pool");
    /// assert_eq!(book.status().largest_free_bytes, 3 << 20, "the rest lies in the cache of the stream");
    /// book.defragment()?;
    /// assert_eq!(book.status().largest_free_bytes, 4 << 20);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the work itself.
    pub fn defragment(&self) -> Result<(), Error> {
        self.require_same_process()?;
        self.spill_in_turn();
        let owned: Vec<_> = self.lock().core.owners().collect();
        self.poll_streams(&owned)
    }

    /// Asks the driver how far the other streams have come, and serves from the memory of completed work.
    pub(super) fn serve_completed(&self, request: &Request<'_>) -> Result<Option<DevicePtr>, Error> {
        let mut others = self.others(request.requester).owned;
        if others.is_empty() {
            return Ok(None);
        }
        // The longer ago the last free, the likelier that the work before it is completed. And no stream is asked twice
        // before every stream has been asked once.
        others.sort_by_key(|other| other.last_busy);
        let least = if request.is_long() { 1 } else { others.len().div_ceil(PART) };
        let (mut failed, mut over) = (Ok(()), 0);
        let mut busy: SmallVec<[StreamId; MOST_BUSY]> = SmallVec::new();
        for other in &others {
            match self.poll_stream(other) {
                Ok(true) => {
                    over += 1;
                    let is_enough =
                        self.disown(core::slice::from_ref(other), |inner| has_at_hand(inner, request));
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
        // If one stream is completed, so are the streams that it had waited for.
        self.disown(&others, |inner| {
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

    /// Asks the driver how far each of these streams has come, and makes the memory of completed work unowned.
    pub(super) fn poll_streams(&self, owned: &[Owned]) -> Result<(), Error> {
        let mut failed = Ok(());
        for other in owned {
            self.poll_stream(other).map(drop).or_else(|error| keep_first(&mut failed, error))?;
        }
        self.disown(owned, |_| ());
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

    /// Makes the memory of these streams' completed work unowned. Releases the mutex every [`BLOCKS_A_TURN`] blocks, so
    /// that other threads get in. Calls `then` under the last lock.
    fn disown<T>(&self, owned: &[Owned], then: impl FnOnce(&mut Inner) -> T) -> T {
        let machine = self.device.machine();
        let mut streams = owned.iter().map(|other| other.stream);
        let mut disowning = None;
        loop {
            let mut inner = self.lock();
            let mut looks = BLOCKS_A_TURN;
            while looks > 0 {
                let Some((stream, mut part)) = disowning.take().or_else(|| {
                    let stream = streams.next()?;
                    Some((stream, Disowning::up_to(machine.done_up_to(stream))))
                }) else {
                    return then(&mut inner);
                };
                // A new stream counts as one look.
                looks -= 1;
                // Looked up again each time: the stream may have left meanwhile.
                if let Some(owner) = inner.core.owner_of(stream)
                    && !inner.core.disown_some(owner, &mut part, &mut looks)
                {
                    disowning = Some((stream, part));
                }
            }
        }
    }
}

/// Returns `true` if there is a block that needs no query and no wait.
fn has_at_hand(inner: &Inner, request: &Request<'_>) -> bool {
    let owner = request.requester.id().and_then(|id| inner.core.owner_of(id)).unwrap_or(Owner::UNOWNED);
    u64::from(inner.core.largest(owner, &[])) >= request.need()
}
