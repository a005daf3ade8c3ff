//! The slow path: the strategies that find memory when the cache and the core have no block.
//!
//! Every strategy reads the state under the locks, works without them, and then tries to serve the request. Other
//! threads may have changed the state meanwhile.

use core::sync::atomic::Ordering;

use super::Engine;
use super::book::{Counters, Reach, Request, SuballocBook, of_owners};
use super::events::event;
use super::requester::Requester;
use super::spill::return_to_core;
use super::strategy::{Strategy, in_order};
use crate::error::Error;
use crate::error::OutOfMemory;
use crate::nvtx;
use crate::relief::Relief;
use crate::resource::{DevicePtr, Resource};
use crate::stream::{Epoch, Frontier, Stamp, StreamId, StreamRef};
use crate::suballoc::Growth;
use crate::suballoc::core::{Owned, Owner, Span, Spilled};

/// The most retries that handlers can cause for one request. Each time a handler must have freed or moved memory.
const ATTEMPTS: u32 = 64;

/// The most restarts of the slow path because blocks have come back meanwhile: while this thread waits, other threads
/// free blocks. The bound is needed because they may do so for ever. In the models no thread sleeps.
const ROUNDS: u32 = if cfg!(loom) { 1 } else { 8 };

/// What the slow path has learnt so far.
#[derive(Debug, Default)]
pub(super) struct Attempt {
    pub(super) attempt: u32,
    /// The refusal of the upstream.
    pub(super) refused: Option<Error>,
    /// `Inner::calls` at that refusal.
    pub(super) calls: u64,
    /// The units that growths have mapped which were refused before they had enough.
    pub(super) gained: u64,
    /// The last growth was refused because an alias in its way could not be unmapped.
    pub(super) met_alias: bool,
    /// All caches have been emptied for this request.
    has_spilled_all: bool,
    /// How often this thread has slept until the upstream call of another thread had ended.
    pub(super) naps: usize,
    /// The last error of the driver.
    failed: Option<Error>,
}

/// The other owners of free blocks, and how far the requester comes after each.
pub(super) struct Others {
    pub(super) owned: Vec<Owned>,
    pub(super) reach: Reach,
}

impl<U: Resource> Engine<U> {
    #[cold]
    pub(super) fn take_slowly(&self, request: &Request<'_>) -> Result<DevicePtr, Error> {
        let mut attempt = Attempt::default();
        let mut moved = None;
        loop {
            attempt.attempt += 1;
            // The obstacles of the last attempt may be gone.
            (attempt.refused, attempt.failed) = (None, None);
            for round in 1..=ROUNDS {
                let before = self.book.released();
                if let Some(block) = self.try_everything_once(request, &mut attempt)? {
                    return Ok(block);
                }
                if round == ROUNDS || !self.book.may_have_more_for(request, before) {
                    break;
                }
            }
            let report = self.report(request, &attempt);
            if report.is_hopeless() {
                return Err(self.hopeless(report, attempt));
            }
            if attempt.attempt >= ATTEMPTS || self.book.config.handlers.is_empty() {
                return Err(self.refusal(report, attempt));
            }
            // Handlers can free blocks of this suballocator, or memory elsewhere on the device.
            let before = (report.live_bytes, report.reserved_bytes, self.free_upstream_bytes());
            let relief = self.book.config.handlers.ask(&report);
            // A handler may have forked.
            self.book.require_same_process()?;
            let relief = relief?;
            if relief == Relief::None {
                return Err(self.refusal(report, attempt));
            }
            let survey = self.book.totals();
            let after = (survey.live_bytes, survey.reserved_bytes, self.free_upstream_bytes());
            if after == before && moved == Some(after) {
                return Err(self.refusal(report, attempt));
            }
            moved = Some(after);
        }
    }

    /// One strategy after the other.
    fn try_everything_once(
        &self,
        request: &Request<'_>,
        attempt: &mut Attempt,
    ) -> Result<Option<DevicePtr>, Error> {
        for strategy in in_order(self.book.config.reuse) {
            let step = self.step(*strategy, request, attempt);
            event!(
                strategy = ?strategy,
                attempt = attempt.attempt,
                requester = ?request.requester.id(),
                bytes = request.layout.bytes(),
                served = matches!(step, Ok(Some(_))),
                error = step.as_ref().err().map(tracing::field::display),
                "strategy"
            );
            match step {
                Ok(None) => {}
                Ok(served) => return Ok(served),
                Err(error) if error.is_final() => return Err(error),
                // For example, no event can be made: another strategy may need none.
                Err(error) => attempt.failed = Some(error),
            }
        }
        Ok(None)
    }

    /// Refuses a request for more than the upstream has in all, before any search, so that no cache is emptied for it.
    /// `None` for any other request.
    #[cold]
    #[inline(never)]
    pub(super) fn serve_beyond_upstream(&self, request: &Request<'_>) -> Result<Option<DevicePtr>, Error> {
        if self.book.is_frozen() {
            return Ok(None);
        }
        let Ok(memory) = self.upstream.memory_info() else { return Ok(None) };
        // The upstream may be the user's, and have forked.
        self.book.require_same_process()?;
        // Relaxed: a figure that only grows.
        self.upstream_total.fetch_max(memory.total_bytes, Ordering::Relaxed);
        if request.layout.rounded_bytes() <= memory.total_bytes {
            return Ok(None);
        }
        // The total may be that of another resource, so the upstream is asked for the memory itself.
        let mut attempt = Attempt { attempt: 1, ..Attempt::default() };
        if let Some(block) = self.request_segment_at_once(request, &mut attempt)? {
            return Ok(Some(block));
        }
        let report = self.report(request, &attempt);
        if report.is_hopeless() { Err(self.hopeless(report, attempt)) } else { Ok(None) }
    }

    /// Refuses a request that no handler can help with. No handler is asked.
    #[cold]
    fn hopeless(&self, report: OutOfMemory, attempt: Attempt) -> Error {
        self.book.config.handlers.tell(&report);
        self.refusal(report, attempt)
    }

    /// The free memory of the upstream, if it knows.
    fn free_upstream_bytes(&self) -> Option<usize> {
        self.upstream.memory_info().ok().map(|info| info.free_bytes)
    }

    fn step(
        &self,
        strategy: Strategy,
        request: &Request<'_>,
        attempt: &mut Attempt,
    ) -> Result<Option<DevicePtr>, Error> {
        match strategy {
            Strategy::WithinReach => Ok(self.book.serve_within_reach(request)),
            Strategy::Completed => self.book.serve_completed(request),
            Strategy::OwnCache if self.book.spill_own(request.requester.id()) == 0 => Ok(None),
            Strategy::OwnCache => Ok(self.book.serve_within_reach(request)),
            Strategy::IdleCaches => {
                let spilled = self.book.spill_for(request);
                attempt.has_spilled_all = spilled.is_all;
                self.book.serve_spilled(request, spilled.blocks)
            }
            Strategy::Caches if attempt.has_spilled_all => Ok(None),
            Strategy::Caches => self.book.serve_spilled(request, self.book.spill_where_none_grows()),
            Strategy::Grow => self.grow(request, self.book.config.growth, attempt),
            Strategy::DeviceWait => self.book.serve_after_device_wait(request),
            Strategy::HostWait => self.book.serve_after_host_wait(request),
            Strategy::Trim => self.trim_and_grow(request, attempt),
            // A model finds memory by the other strategies; with this one too it takes minutes instead of seconds. A
            // model of its own covers it.
            #[cfg(loom)]
            Strategy::TakeThenWait if self.book.config.reuse != crate::suballoc::Reuse::LastStrategy => {
                Ok(None)
            }
            Strategy::TakeThenWait => self.book.serve_then_wait(request),
        }
    }

    /// Returns empty segments to the upstream, as many as make room, and grows by what is needed.
    fn trim_and_grow(
        &self,
        request: &Request<'_>,
        attempt: &mut Attempt,
    ) -> Result<Option<DevicePtr>, Error> {
        if self.book.moves_pages() {
            // Blocks that were freed beside copies may be free now.
            let _ = self.book.settle_copies();
            let grown = self.grow_or_move(request, Growth::Exact, attempt)?;
            return Ok(grown.or_else(|| self.book.serve_elsewhere(request)));
        }
        let room = |book: &SuballocBook| book.room(&book.lock());
        self.book.require_outside_of_hooks()?;
        let mut gone = 0;
        if self.book.page_units > 0 && (attempt.refused.is_some() || room(&self.book) < request.need()) {
            gone += self.trim_pages(0);
        }
        // If the upstream refused, room under the maximum is not enough: every empty segment goes.
        gone += self.return_segments(0, || attempt.refused.is_some() || room(&self.book) < request.need());
        let others_called = {
            let inner = self.book.lock();
            inner.leaving + inner.pledged > 0 || (attempt.refused.is_some() && inner.calls != attempt.calls)
        };
        let left = room(&self.book);
        let has_room = attempt.refused.is_none() && left >= request.need_within(left);
        if gone == 0 && !others_called && !has_room {
            return Ok(self.book.serve(request, &[]));
        }
        self.grow(request, Growth::Exact, attempt)
    }

    /// The error at the end of the slow path. No lock is held: a snapshot file may be written.
    #[cold]
    pub(super) fn refusal(&self, report: OutOfMemory, attempt: Attempt) -> Error {
        // An error other than a lack of memory is returned unchanged.
        let other =
            [attempt.refused, attempt.failed].into_iter().flatten().find(|error| !error.is_out_of_memory());
        other.unwrap_or_else(|| {
            let snapshot_file = self.book.config.snapshots.as_ref().and_then(|files| {
                // The snapshot is taken only if a file is left to write.
                files.write(self.book.device.ordinal(), || self.book.snapshot(), &report)
            });
            let report = OutOfMemory { snapshot_file, ..report };
            event!(report = %report, "out of memory");
            nvtx::mark(c"out of memory", report.requested_bytes);
            Error::from(report)
        })
    }
}

/// Returns `true` if the error only says that one of the two streams captures, or that the other one has ended, or rests, without an event.
fn is_out_of_reach(error: &Error) -> bool {
    error.is_capture() || error.is_no_last_event()
}

impl SuballocBook {
    /// The number of blocks that have come back to the core so far.
    fn released(&self) -> u64 {
        self.lock().core.released()
    }

    /// Empties all caches. Returns `true` if more than `released` blocks have now come back to the core, and the free
    /// memory is as much as the request in all.
    fn may_have_more_for(&self, request: &Request<'_>, released: u64) -> bool {
        self.spill();
        let inner = self.lock();
        inner.core.released() != released && inner.core.free_units() >= u64::from(request.want.units())
    }

    /// The other owners of free blocks, and how far the requester comes after each. Streams whose work is all completed
    /// are in `reach` only: there is nothing to ask about them.
    pub(super) fn others(&self, requester: Requester<'_>) -> Others {
        let own = requester.id();
        let mut owned: Vec<Owned> = self.lock().core.owners().collect();
        owned.retain(|other| Some(other.stream) != own);
        let mut over = Vec::new();
        let mut reach = Reach::new();
        for other in &owned {
            match requester.reach(&self.device, other.stream) {
                Epoch::NONE => {}
                Epoch::ALL => {
                    over.push(other.stream);
                    reach.push((other.stream, Epoch::ALL));
                }
                epoch => reach.push((other.stream, epoch)),
            }
        }
        owned.retain(|other| !over.contains(&other.stream));
        Others { owned, reach }
    }

    /// Serves from memory that the requester already comes after; merges pieces of it if no single one fits.
    pub(super) fn serve_within_reach(&self, request: &Request<'_>) -> Option<DevicePtr> {
        let reach = &self.others(request.requester).reach;
        if !reach.is_empty()
            && let Some(block) = self.serve(request, reach)
        {
            return Some(block);
        }
        let now = request.requester.now();
        let id = request.requester.id();
        let enough = {
            let inner = self.lock();
            inner.core.free_units() >= u64::from(request.want.units())
        };
        if !enough {
            return None;
        }
        self.serve_with(request, reach, |inner| {
            let owner = id.map_or(Owner::UNOWNED, |id| inner.core.enter(id));
            let reach = of_owners(&inner.core, reach);
            inner.core.gather(owner, now, &reach);
        })
    }

    /// Serves from memory within reach or of completed work, if blocks have come back from caches.
    fn serve_spilled(&self, request: &Request<'_>, blocks: usize) -> Result<Option<DevicePtr>, Error> {
        if blocks == 0 {
            return Ok(None);
        }
        match self.serve_within_reach(request) {
            Some(block) => Ok(Some(block)),
            None => self.serve_completed(request),
        }
    }

    /// The streams of `owned` that have a fitting block, once their work is completed. The stream with the least free
    /// memory comes first: its work is likely to complete soonest.
    fn fitting(&self, owned: &[Owned], request: &Request<'_>) -> Vec<Owned> {
        let inner = self.lock();
        let has_one = |owner| u64::from(inner.core.largest(owner, &[])) >= request.need();
        let fits = |other: &&Owned| inner.core.owner_of(other.stream).is_some_and(has_one);
        let mut fitting: Vec<Owned> = owned.iter().filter(fits).copied().collect();
        drop(inner);
        fitting.sort_by_key(|other| other.free_units);
        fitting
    }

    /// The fewest streams whose free memory makes one fitting piece. Streams that the requester already comes after are
    /// left out. `None` if there is no such piece.
    fn span_for(&self, request: &Request<'_>, reach: &Reach) -> Option<Span> {
        let inner = self.lock();
        let owner = request.requester.id().and_then(|id| inner.core.owner_of(id)).unwrap_or(Owner::UNOWNED);
        let reach = of_owners(&inner.core, reach);
        let span = |units| inner.core.span_of(units, owner, &reach);
        // Without the padding for the alignment: a piece may happen to be aligned.
        span(request.need()).or_else(|| span(request.want.units().into()))
    }

    /// Makes the requester's stream wait for one stream whose memory fits; if there is none, for the fewest whose
    /// memory fits together.
    fn serve_after_device_wait(&self, request: &Request<'_>) -> Result<Option<DevicePtr>, Error> {
        let Some(stream) = request.requester.stream() else { return Ok(None) };
        let others = self.others(request.requester);
        let mut failed = Ok(());
        for other in self.fitting(&others.owned, request) {
            if self.follow(stream, other.latest(), &mut failed)? {
                return Ok(self.serve_within_reach(request));
            }
        }
        // If no wait gives a piece that is large enough, there is no wait.
        let Some(span) = self.span_for(request, &others.reach) else { return failed.map(|()| None) };
        let all: Vec<Stamp> = others.owned.iter().map(Owned::latest).collect();
        for round in [&span[..], &all] {
            let mut waited = false;
            for &point in round {
                waited |= self.follow(stream, point, &mut failed)?;
            }
            if waited && let Some(block) = self.serve_within_reach(request) {
                return Ok(Some(block));
            }
        }
        failed.map(|()| None)
    }

    /// Makes `stream` wait for a point of another. Returns `false` if it cannot wait for that stream.
    fn follow(
        &self,
        stream: StreamRef<'_>,
        point: Stamp,
        failed: &mut Result<(), Error>,
    ) -> Result<bool, Error> {
        match self.wait_for(stream, point) {
            Ok(()) => return Ok(true),
            Err(error) if is_out_of_reach(&error) => {}
            Err(error) => keep_first(failed, error)?,
        }
        Ok(false)
    }

    fn wait_for(&self, stream: StreamRef<'_>, point: Stamp) -> Result<(), Error> {
        let wait = stream.wait_up_to(point)?;
        event!(requester = ?stream.id(), of = ?point.stream, needed = wait.needed, "wait on the device");
        nvtx::mark(c"wait on the device", 0);
        Counters::add(&self.counters.waits, u64::from(wait.needed));
        Counters::add(&self.counters.events_recorded, u64::from(wait.recorded));
        Ok(())
    }

    /// Makes `stream` wait for all others, and merges all free memory for it.
    pub(super) fn merge_for(&self, stream: StreamRef<'_>) -> Result<(), Error> {
        let own = stream.id();
        let owned: Vec<Owned> = self.lock().core.owners().collect();
        for other in owned.iter().filter(|other| other.stream != own) {
            match self.wait_for(stream, other.latest()) {
                Ok(()) => {}
                // Its blocks stay its own.
                Err(error) if error.is_no_last_event() => {}
                Err(error) => return Err(error),
            }
        }
        let reach = self.others(Requester::Stream(stream)).reach;
        let now = stream.now().epoch;
        let mut inner = self.lock();
        // By its cache, so that the owner leaves the core when another stream gets the cache.
        let owner = self.cache(&mut inner.core, Some(own)).owner();
        let reach = of_owners(&inner.core, &reach);
        inner.core.gather(owner, now, &reach);
        Ok(())
    }

    /// Waits on the host: for one stream whose memory fits, or for the fewest whose memory fits together. If that is
    /// not enough, for all streams, the requester's own included: whole segments may become empty then.
    fn serve_after_host_wait(&self, request: &Request<'_>) -> Result<Option<DevicePtr>, Error> {
        let machine = self.device.machine();
        let mut owned: Vec<Owned> = self.lock().core.owners().collect();
        owned.sort_by_key(|other| other.free_units);
        let few: Vec<Owned> = match self.fitting(&owned, request).first() {
            Some(one) => vec![*one],
            None => {
                let span = self.span_for(request, &Reach::new()).unwrap_or_default();
                let is_in = |other: &&Owned| span.iter().any(|point| point.stream == other.stream);
                owned.iter().filter(is_in).copied().collect()
            }
        };
        let mut failed = Ok(());
        for round in [&few, &owned] {
            let mut waited = false;
            for other in round {
                let waited_for = {
                    let _range = nvtx::range(c"wait on the host", request.layout.bytes());
                    machine.wait_by_events(&Frontier::of(other.latest()))
                };
                match waited_for {
                    Ok(()) => {
                        event!(requester = ?request.requester.id(), of = ?other.stream, "wait on the host");
                        waited = true;
                    }
                    Err(error) if is_out_of_reach(&error) => {}
                    Err(error) => keep_first(&mut failed, error)?,
                }
            }
            if waited {
                let asked = self.poll_streams(round);
                if let Some(block) = self.serve_within_reach(request) {
                    return Ok(Some(block));
                }
                asked.or_else(|error| keep_first(&mut failed, error))?;
            }
        }
        failed.map(|()| None)
    }

    /// Takes a block first, of any stream, and then waits for that stream on the host. In the other order another
    /// thread could take the block after each wait.
    fn serve_then_wait(&self, request: &Request<'_>) -> Result<Option<DevicePtr>, Error> {
        let mut out_of_reach: Vec<StreamId> = Vec::new();
        loop {
            let (address, point) = {
                let mut inner = self.lock();
                let inner = &mut *inner;
                self.spill_locked(inner);
                let owner = self.cache(&mut inner.core, request.requester.id()).owner();
                let owned: Vec<Owned> =
                    inner.core.owners().filter(|other| !out_of_reach.contains(&other.stream)).collect();
                let reach: Reach = owned.iter().map(|other| (other.stream, Epoch::ALL)).collect();
                let reach = of_owners(&inner.core, &reach);
                let taken = inner.core.allocate(owner, request.want.units(), request.align_units, &reach);
                let Some(taken) = taken else { return Ok(None) };
                // The state of that stream before the block was taken: none of its free blocks had a later epoch.
                let from = inner.core.stream_of(taken.from).filter(|_| taken.from != owner);
                let from = from.and_then(|from| owned.iter().find(|other| other.stream == from));
                (taken.address, from.map(Owned::latest))
            };
            let waited = point.map_or(Ok(()), |point| {
                let _range = nvtx::range(c"wait on the host", request.layout.bytes());
                self.device.machine().wait_by_events(&Frontier::of(point))
            });
            if let (Some(_point), Ok(())) = (point, &waited) {
                event!(requester = ?request.requester.id(), of = ?_point.stream, "wait on the host");
                request.emit_steal();
            }
            let mut inner = self.lock();
            let (Some(point), Err(error)) = (point, waited) else {
                inner.misses += 1;
                inner.steals += u64::from(point.is_some());
                return Ok(DevicePtr::new(address));
            };
            // The block goes back to its former owner. If that stream has left meanwhile, its work is completed.
            let owner = inner.core.owner_of(point.stream).unwrap_or(Owner::UNOWNED);
            return_to_core(&mut inner.core, owner, Spilled { address, epoch: point.epoch });
            if !is_out_of_reach(&error) {
                return Err(error);
            }
            out_of_reach.push(point.stream);
        }
    }
}

/// Keeps the first error that concerns one stream only, so that the other streams are still tried.
pub(super) fn keep_first(failed: &mut Result<(), Error>, error: Error) -> Result<(), Error> {
    if error.is_final() {
        return Err(error);
    }
    if failed.is_ok() {
        *failed = Err(error);
    }
    Ok(())
}
