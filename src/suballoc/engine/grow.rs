//! Growing: requests a segment of the upstream.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::Engine;
use super::book::{Inner, Request, SuballocBook};
use super::slow_path::Attempt;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, Resource};
use crate::suballoc::Growth;
use crate::suballoc::core::{Owned, Segment};
use crate::sync::{nap, yield_now};

/// The rounding of growth: 2 MiB, the page of device memory.
pub(super) const PAGE_UNITS: u64 = (2 << 20) / Layout::MIN_ALIGN as u64;

/// A pool with [`Growth::Spare`] grows by at most 1/16 of its size, unless a request needs more. With 1/12 or 1/24 the
/// footprint is at or below that of RMM's pool on as many of four hundred made-up workloads, to two in a hundred; with
/// 1/8 on fewer.
const PART: u64 = 16;

/// It takes at most this many times the request that makes it grow. With two a pool calls its upstream a quarter more
/// often; without this bound its footprint is above that of RMM's on three more of a hundred workloads.
const MOST_ALIKE: u64 = 4;

/// But at least 1/128 of its size, so that a pool of small blocks calls its upstream about a hundred times for each
/// doubling, and not once for every page.
const LEAST_PART: u64 = 128;

/// A pool with [`Growth::Spare`] and a maximum of at most this takes all of it at once: 32 MiB.
const SMALL_MAXIMUM: u64 = (32 << 20) / Layout::MIN_ALIGN as u64;

/// How often a thread yields while another thread grows, before it calls the upstream itself or sleeps. The driver
/// takes 50 µs for a segment; a yield takes about one.
///
/// Under loom more often than the models preempt a thread, so that the other thread always answers.
const PATIENCE: usize = if cfg!(loom) { 6 } else { 4096 };

/// But no longer than that. Where others compute on the same processor a yield takes as long as their turns, and the thread that grows
/// may wait for one that waits here.
const LONGEST: Duration = Duration::from_secs(1);

/// How often, in one request, a thread that must not call the upstream sleeps after that, for a millisecond: ten
/// seconds in all, because pinning 4 GiB takes more than one. The bound is needed because the other thread may wait for
/// something that this thread holds.
const NAPS: usize = if cfg!(loom) { 0 } else { 10_000 };

/// How often a thread waits for others. Where there is room it waits once, and then calls the upstream itself.
pub(super) const TURNS: usize = if cfg!(loom) { 3 } else { 8 };

/// A thread in a call to an upstream.
pub(super) type Caller = crate::stream::ThreadToken;

impl Inner {
    /// Notes that this thread is about to call the upstream.
    pub(super) fn begin_call(&mut self) {
        self.calls += 1;
        self.callers.push(Caller::current());
    }

    /// Notes that the call has ended, after its other figures are updated.
    pub(super) fn end_call(&mut self) {
        self.answers += 1;
        let me = Caller::current();
        if let Some(at) = self.callers.iter().rposition(|caller| *caller == me) {
            self.callers.swap_remove(at);
        }
    }

    /// Returns `true` if this thread is in a call to the upstream, so that it must not wait for its end.
    pub(super) fn is_calling(&self) -> bool {
        self.callers.contains(&Caller::current())
    }
}

/// The next step of a thread that needs a segment.
enum Pledge {
    /// Request `units`, which are set aside. `calls` is `Inner::calls`, unless other calls are under way.
    Ask { units: u64, calls: Option<u64>, old: Old },
    /// Another thread has requested enough, or returns a segment: wait until `Inner::answers` changes.
    Wait { answers: u64, may_ask: bool },
    /// There is no room under the maximum.
    NoRoom,
}

/// Segments to return before the upstream is called: taken from the core, and counted as leaving.
type Old = SmallVec<[Segment; 8]>;

impl<U: Resource> Engine<U> {
    /// Takes a segment that the request fits from the upstream, and serves the request from it. `None` if there is no
    /// room under the maximum, or if the upstream refused; the refusal is kept in `attempt`.
    pub(super) fn grow(
        &self,
        request: &Request<'_>,
        growth: Growth,
        attempt: &mut Attempt,
    ) -> Result<Option<DevicePtr>, Error> {
        if self.book.moves_pages() {
            return self.grow_or_move(request, growth, attempt);
        }
        self.book.require_outside_of_hooks()?;
        if growth == Growth::Spare {
            self.book.disown_completed_of(request);
        }
        // In each turn the growth of another thread may serve other requests and not this one.
        for turn in 0..TURNS {
            // In one step, so that no answer comes between the search and the decision.
            let pledge = match self.book.serve_or(request, |inner| self.pledge(inner, request, growth, turn))
            {
                Ok(block) => return Ok(Some(block)),
                Err(pledge) => pledge,
            };
            let (answers, may_ask) = match pledge {
                Pledge::NoRoom => return Ok(None),
                Pledge::Wait { answers, may_ask } => (answers, may_ask),
                Pledge::Ask { units, calls, old } => {
                    match self.request_segment(request, units, old, attempt)? {
                        Some(block) => return Ok(Some(block)),
                        None if calls == Some(attempt.calls) => return Ok(None),
                        // The upstream lacks memory that another thread has just got, or is returning: it is there in
                        // the next turn, or after the next answer.
                        None => {
                            let inner = self.book.lock();
                            (inner.answers, inner.is_calling())
                        }
                    }
                }
            };
            self.book.wait_for_answer(answers, may_ask, attempt);
        }
        Ok(self.book.serve(request, &[]))
    }

    /// The units of a new segment in which a request fits. Over pages a segment begins at one, so that an alignment within a page needs
    /// no padding.
    fn segment_need(&self, request: &Request<'_>) -> u64 {
        let page_units = self.book.page_units;
        let begins_aligned = page_units > 0 && page_units.is_multiple_of(request.align_units);
        self.whole_units(if begins_aligned { request.want.units().into() } else { request.need() })
    }

    fn pledge(&self, inner: &mut Inner, request: &Request<'_>, growth: Growth, turn: usize) -> Pledge {
        let reserved = inner.core.reserved_units();
        let room = self.book.room(inner);
        let need =
            self.segment_need(request).min(self.whole_units(room.max(u64::from(request.want.units()))));
        if inner.told.is_frozen {
            return Pledge::NoRoom;
        }
        let others_may_do =
            if need <= room { turn == 0 && inner.pledged >= need } else { inner.pledged + inner.leaving > 0 };
        if others_may_do && turn + 1 < TURNS && !inner.is_calling() {
            return Pledge::Wait { answers: inner.answers, may_ask: need <= room };
        }
        if need > room {
            return Pledge::NoRoom;
        }
        let whole =
            self.book.config.segment_bytes.map(|bytes| self.whole_units((bytes / Layout::MIN_ALIGN) as u64));
        let units = match growth {
            Growth::Exact => need,
            Growth::Step(bytes) => need.max((bytes / Layout::MIN_ALIGN) as u64),
            Growth::Doubling => need.max(reserved).next_multiple_of(PAGE_UNITS),
            // A small pool takes its whole maximum: there is little to save, and a long request finds it in one piece.
            Growth::Spare if self.book.maximum_units <= SMALL_MAXIMUM => room,
            Growth::Spare => spare(need, reserved),
        };
        let units = match whole {
            Some(whole) if growth != Growth::Exact => need.next_multiple_of(whole),
            _ => units,
        };
        let most = room.min(self.most_units());
        let mut units = units.min(most);
        let is_alone = inner.pledged + inner.leaving == 0;
        let mut old = Old::new();
        // Where segments stay, somebody may have registered them, and would have to begin anew.
        if growth == Growth::Spare && whole.is_none() {
            // Each is shorter than the request.
            let given = self.book.take_free_segments(inner, need - 1, units, &mut old);
            units = units.max(given).min(most);
        }
        inner.pledged += units;
        inner.begin_call();
        Pledge::Ask { units, calls: is_alone.then_some(inner.calls), old }
    }

    /// Requests of the upstream what the request needs, without a search. `None` if there is no room under the maximum,
    /// or if the upstream refused.
    pub(super) fn request_segment_at_once(
        &self,
        request: &Request<'_>,
        attempt: &mut Attempt,
    ) -> Result<Option<DevicePtr>, Error> {
        if self.book.moves_pages() {
            return self.grow_or_move(request, Growth::Exact, attempt);
        }
        self.book.require_outside_of_hooks()?;
        let need = self.segment_need(request);
        {
            let mut inner = self.book.lock();
            if inner.told.is_frozen || need > self.book.room(&inner).min(self.most_units()) {
                return Ok(None);
            }
            inner.pledged += need;
            inner.begin_call();
        }
        self.request_segment(request, need, Old::new(), attempt)
    }

    /// Returns `old` to the upstream, and requests `pledged` units of it. After each refusal requests half as much,
    /// down to the need.
    fn request_segment(
        &self,
        request: &Request<'_>,
        pledged: u64,
        old: Old,
        attempt: &mut Attempt,
    ) -> Result<Option<DevicePtr>, Error> {
        for segment in old {
            self.return_unless_refused(segment);
        }
        let need = self.segment_need(request).min(pledged);
        let mut units = pledged;
        let refused = loop {
            let taken = self.take_segment(units as u32);
            // The upstream may be a user's, and may have forked.
            self.book.require_same_process()?;
            match taken {
                Ok(taken) => {
                    if let Err(refused) = self.admit(taken) {
                        break refused;
                    }
                    let served = self.book.serve_with(request, &[], |inner| {
                        taken.enter(&mut inner.core, self.book.page_units);
                        inner.pledged -= pledged;
                        inner.end_call();
                        self.book.note_reserved(inner);
                    });
                    return Ok(served);
                }
                Err(error) if error.is_out_of_memory() && units > need => {
                    units = self.whole_units(units / 2).max(need);
                }
                Err(error) => break error,
            }
        };
        {
            let mut inner = self.book.lock();
            inner.pledged -= pledged;
            inner.end_call();
            attempt.calls = inner.calls;
        }
        if refused.is_final() {
            return Err(refused);
        }
        attempt.refused = Some(refused);
        Ok(None)
    }
}

/// The units that [`Growth::Spare`] takes: a multiple of the need, because programs request the same sizes again, and
/// then no rest is left at the end of the segment.
fn spare(need: u64, reserved: u64) -> u64 {
    let part = (reserved / PART).min((MOST_ALIKE * need).max(reserved / LEAST_PART));
    ((part / need).max(1) * need).next_multiple_of(PAGE_UNITS)
}

impl SuballocBook {
    /// Waits until a call to the upstream has ended: for a while where this thread `may_ask` the upstream itself.
    pub(super) fn wait_for_answer(&self, answers: u64, may_ask: bool, attempt: &mut Attempt) {
        let comes = |inner: &Inner| inner.answers == answers && inner.pledged + inner.leaving > 0;
        let (mut patience, begun) = (PATIENCE, Instant::now());
        while patience > 0 && comes(&self.lock()) {
            patience -= 1;
            if begun.elapsed() > LONGEST {
                break;
            }
            yield_now();
        }
        while !may_ask && attempt.naps < NAPS && comes(&self.lock()) {
            attempt.naps += 1;
            nap();
        }
    }

    /// Makes the requester's own memory of completed work unowned, so that empty segments are found.
    pub(super) fn disown_completed_of(&self, request: &Request<'_>) {
        let Some(id) = request.requester.id() else { return };
        let own: Option<Owned> = self.lock().core.owners().find(|owned| owned.stream == id);
        // An error of the driver is reported by the strategies that need its answer.
        let _ = own.map(|own| self.poll_streams(&[own]));
    }

    /// Takes empty, unowned segments out of the core, each of at most `at_most` units, until they have `enough` units.
    /// Returns their units.
    fn take_free_segments(&self, inner: &mut Inner, at_most: u64, enough: u64, old: &mut Old) -> u64 {
        let mut given = 0;
        while given < enough
            && let Some(segment) = inner.core.take_segment(at_most)
        {
            given += u64::from(segment.units);
            inner.leaving += u64::from(segment.units);
            inner.begin_call();
            old.push(segment);
        }
        self.note_reserved(inner);
        given
    }
}
