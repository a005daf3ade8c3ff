//! Grows and shrinks in place, over an upstream with pages.
//!
//! Three steps each time: under the mutex the nodes leave the bins, so that no other thread finds them; without a lock
//! pages are unmapped, created and mapped; under the mutex the block goes out, or everything is as it was.

#![expect(unsafe_code, reason = "maps and unmaps pages of the upstream")]

use smallvec::SmallVec;

use super::Engine;
use super::book::{Inner, Reach, Request, SuballocBook, of_owners};
use super::events::event;
use super::grow::{PAGE_UNITS, TURNS};
use super::slow_path::Attempt;
use crate::error::Error;
use crate::nvtx;
use crate::resource::{DevicePtr, Layout, Page, Pages, Resource};
use crate::stream::Epoch;
use crate::suballoc::Growth;
use crate::suballoc::core::{Extent, Growing, Owner, Segment};

/// A range has this many times the memory of the upstream in addresses, so that a hole that is too short for one request
/// is left to others.
const TIMES_MEMORY: u64 = 4;

/// The longest range, in units: 1 TiB less a page, because a count of units has 32 bits.
const LONGEST: u64 = u32::MAX as u64 + 1 - PAGE_UNITS;

/// A page is at most this part of the memory, so that one live block keeps little of it from moving. On an H200 that is
/// 128 MiB, and a request of 512 MiB is four pages.
const PART_OF_MEMORY: u64 = 1024;

/// With a budget, a page is at most this part of the bytes that the budget leaves beside the peak, so that what is free can move within
/// them. Against the pool itself, at 1/512, each budget made 10 to 30 times the pages, also one that was never reached.
const PART_OF_SLACK: u64 = 16;

/// In a gap of so many pages at least, a page may be twice as long: the block that lies there keeps the gap, and frees it, as a whole. As
/// long as the gap alone says, pages made half the calls again, and 1.05 became 1.06 to 1.08 on `etl`, `rnn` and `streams`.
const PART_OF_GAP: u64 = 8;

/// With [`Growth::Spare`] growth at the end of the memory goes on beyond what the request needs, to 1/1024 of what there
/// is: so a pool maps less than a thousand pages for each doubling, and holds a thousandth more.
const SPARE_PART: u64 = 1024;

/// Pages to unmap and to map.
#[derive(Debug)]
pub(super) struct Paging {
    growing: Growing,
    /// Pages that are free: to be mapped elsewhere, or released.
    old: Vec<Extent>,
    /// Units to create: what the gaps need beyond the old pages.
    pledged: u64,
    /// What the budget leaves beside the peak, in units.
    slack: u64,
    /// The requester, for what is mapped beside its block.
    stream: Option<crate::stream::StreamId>,
    epoch: Epoch,
}

/// What became of gaps.
#[derive(Debug, Default)]
struct Filled {
    mapped: Vec<Extent>,
    /// Where mapping failed, and nothing can be mapped any more.
    lost: Option<Extent>,
}

/// The next step of a thread that needs pages.
pub(super) enum PagePlan {
    /// Map pages, which no search finds meanwhile. `calls` is `Inner::calls`, unless other calls are under way.
    Map { paging: Box<Paging>, calls: Option<u64> },
    /// Another thread maps enough, or returns pages: wait until `Inner::answers` changes.
    Wait { answers: u64, may_ask: bool },
    /// No range of addresses is long enough, or there is none of short blocks yet: reserve one.
    Reserve { is_short: bool },
    /// There is no room under the maximum.
    NoRoom,
}

fn units_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.units)).sum()
}

impl SuballocBook {
    /// Makes the pages of a request's best site ready to be mapped. With `is_full` no page may be created: the upstream
    /// has no more.
    ///
    /// Called under the mutex.
    pub(super) fn plan_pages(
        &self,
        inner: &mut Inner,
        request: &Request<'_>,
        reach: &Reach,
        growth: Growth,
        turn: usize,
        is_full: bool,
    ) -> PagePlan {
        let id = request.requester.id();
        let owner = self.cache(&mut inner.core, id).owner();
        let reach = of_owners(&inner.core, reach);
        let units = request.want.units();
        if inner.core.wants_short_range() {
            return PagePlan::Reserve { is_short: true };
        }
        let Some(site) = inner.core.site(owner, units, request.align_units, &reach) else {
            return PagePlan::Reserve { is_short: false };
        };
        let room = self.room(inner);
        let others_may_do = if site.missing <= room && !is_full {
            turn == 0 && inner.pledged >= site.missing
        } else {
            inner.pledged + inner.leaving > 0
        };
        if others_may_do && turn + 1 < TURNS && !inner.is_calling() {
            return PagePlan::Wait { answers: inner.answers, may_ask: site.missing <= room };
        }
        let reserved = inner.core.reserved_units();
        let budget = self.budget_units(inner, u64::from(units));
        let allowed = budget.saturating_sub(reserved + inner.pledged);
        let spare = spare(growth, site.missing, reserved).min(room.min(allowed).saturating_sub(site.missing));
        let page = u64::from(self.page_units);
        let growing = inner.core.begin_growth(site, if is_full { 0 } else { spare / page * page });
        let gaps = growing.gap_units();
        // What must move, and what should.
        let must = if is_full { gaps } else { gaps.saturating_sub(room) };
        let should = must.max(gaps.saturating_sub(allowed));
        let old = inner.core.take_pages(should, u64::MAX);
        let moved = units_of(&old);
        if moved < must {
            old.into_iter().for_each(|extent| inner.core.abandon_unmapping(extent));
            inner.core.abandon_growth(&growing, &[], None);
            return PagePlan::NoRoom;
        }
        let pledged = gaps.saturating_sub(moved);
        inner.leaving += moved;
        inner.pledged += pledged;
        inner.begin_call();
        let is_alone = inner.pledged + inner.leaving == pledged + moved;
        let slack = self.config.slack_units(inner.peak_live);
        let paging = Paging { growing, old, pledged, slack, stream: id, epoch: request.requester.now() };
        PagePlan::Map { paging: Box::new(paging), calls: is_alone.then_some(inner.calls) }
    }

    /// A block among those of other lengths, where memory has ended.
    pub(super) fn serve_elsewhere(&self, request: &Request<'_>) -> Option<DevicePtr> {
        let reach = self.others(request.requester).reach;
        let mut inner = self.lock();
        let owner = self.cache(&mut inner.core, request.requester.id()).owner();
        let reach = of_owners(&inner.core, &reach);
        let (units, align_units) = (request.want.units(), request.align_units);
        let taken = inner.core.allocate_elsewhere(owner, units, align_units, &reach)?;
        inner.misses += 1;
        DevicePtr::new(taken.address)
    }

    /// The budget in units, after a request for so many units more was noted.
    fn budget_units(&self, inner: &mut Inner, more: u64) -> u64 {
        let Some(limit) = self.config.page_budget else { return u64::MAX };
        let cached: u64 = self.shards().map(|shard| shard.lock().units()).sum();
        let live = inner.core.out_units().saturating_sub(cached) + more;
        inner.peak_live = inner.peak_live.max(live);
        // Whole pages, of which the last may be used in part.
        limit.units(inner.peak_live).checked_next_multiple_of(u64::from(self.page_units)).unwrap_or(u64::MAX)
    }
}

/// The units that growth takes beyond the pages that miss.
fn spare(growth: Growth, missing: u64, reserved: u64) -> u64 {
    match growth {
        Growth::Exact => 0,
        Growth::Spare => (reserved / SPARE_PART).saturating_sub(missing),
        Growth::Doubling => reserved.saturating_sub(missing),
        Growth::Step(bytes) => ((bytes / Layout::MIN_ALIGN) as u64).saturating_sub(missing),
    }
}

impl<U: Resource> Engine<U> {
    /// The pages of the upstream, where the suballocator grows in place.
    pub(super) fn pages(&self) -> Option<&dyn Pages> {
        if self.book.page_units == 0 { None } else { self.upstream.pages() }
    }

    /// Grows in place; if the upstream has no more, by free pages alone. What a growth had mapped before it was refused
    /// goes back where that does not help either.
    pub(super) fn grow_or_move(
        &self,
        request: &Request<'_>,
        growth: Growth,
        attempt: &mut Attempt,
    ) -> Result<Option<DevicePtr>, Error> {
        let mut served = self.grow_in_place(request, growth, false, attempt)?;
        if served.is_none() && attempt.refused.as_ref().is_some_and(Error::is_out_of_memory) {
            served = self.grow_in_place(request, Growth::Exact, true, attempt)?;
        }
        let gained = std::mem::take(&mut attempt.gained);
        if served.is_none() && gained > 0 {
            let reserved = self.book.lock().core.reserved_units();
            self.trim_pages(reserved.saturating_sub(gained));
        }
        Ok(served)
    }

    /// Maps memory where the request is served best. With `is_full` only free pages move: the upstream has no more.
    /// `None` if there is no room; the refusal of the upstream is kept in `attempt`.
    fn grow_in_place(
        &self,
        request: &Request<'_>,
        growth: Growth,
        is_full: bool,
        attempt: &mut Attempt,
    ) -> Result<Option<DevicePtr>, Error> {
        self.book.disown_completed_of(request);
        let reach = self.book.others(request.requester).reach;
        for turn in 0..TURNS {
            let plan =
                |inner: &mut Inner| self.book.plan_pages(inner, request, &reach, growth, turn, is_full);
            let plan = match self.book.serve_or(request, plan) {
                Ok(block) => return Ok(Some(block)),
                Err(plan) => plan,
            };
            let (answers, may_ask) = match plan {
                PagePlan::Wait { answers, may_ask } => (answers, may_ask),
                PagePlan::Reserve { is_short: true } => {
                    self.reserve_short_range()?;
                    continue;
                }
                PagePlan::Reserve { is_short: false } => {
                    self.reserve_longer_range(request)?;
                    continue;
                }
                PagePlan::Map { paging, calls } => match self.carry_out(&paging, attempt)? {
                    Some(block) => return Ok(Some(block)),
                    None if calls == Some(attempt.calls) => return Ok(None),
                    None => {
                        let inner = self.book.lock();
                        (inner.answers, inner.is_calling())
                    }
                },
                PagePlan::NoRoom => return Ok(None),
            };
            self.book.wait_for_answer(answers, may_ask, attempt);
        }
        Ok(self.book.serve(request, &[]))
    }

    /// Unmaps and maps what is planned. `None` if the upstream refused; the refusal is kept in `attempt`.
    fn carry_out(&self, paging: &Paging, attempt: &mut Attempt) -> Result<Option<DevicePtr>, Error> {
        let Some(pages) = self.pages() else { return Ok(None) };
        let (mut hand, mut kept, mut stuck) = (Vec::<Extent>::new(), Vec::new(), Ok(()));
        for &extent in &paging.old {
            let unmapped = self.unmap(pages, extent);
            if unmapped.is_ok() { &mut hand } else { &mut kept }.push(extent);
            stuck = stuck.and(unmapped);
        }
        if !hand.is_empty() {
            nvtx::mark(c"move", units_of(&hand) as usize * Layout::MIN_ALIGN);
        }
        let mut filled = Filled::default();
        // New pages stand in for those that stay where they are, within the maximum.
        let more = if kept.is_empty() { Some(0) } else { self.pledge_more(units_of(&kept)) };
        let answer = match more {
            Some(_) => {
                let most = |gap| self.most_page_units(paging.slack, gap);
                self.fill_gaps(pages, &paging.growing.gaps, most, &mut hand, &mut filled)
            }
            None => stuck,
        };
        let Filled { mapped, lost } = filled;
        hand.into_iter().for_each(|extent| self.release(pages, extent));
        // The upstream may be a user's, and may have forked.
        self.book.require_same_process()?;
        let served = {
            let mut inner = self.book.lock();
            let inner = &mut *inner;
            inner.leaving -= units_of(&paging.old);
            inner.pledged -= paging.pledged + more.unwrap_or(0);
            inner.end_call();
            for &extent in &paging.old {
                if kept.contains(&extent) {
                    inner.core.abandon_unmapping(extent);
                } else {
                    inner.core.finish_unmapping(extent);
                    inner.moves += 1;
                    inner.moved += u64::from(extent.units);
                }
            }
            let served = match answer {
                Ok(()) => {
                    // By its cache: the owner leaves the core when another stream gets the cache.
                    let owner = self.book.cache(&mut inner.core, paging.stream).owner();
                    let address = inner.core.finish_growth(&paging.growing, &mapped, owner, paging.epoch);
                    inner.misses += 1;
                    Ok(DevicePtr::new(address))
                }
                Err(refused) => {
                    inner.core.abandon_growth(&paging.growing, &mapped, lost);
                    attempt.gained += units_of(&mapped).saturating_sub(units_of(&paging.old));
                    attempt.calls = inner.calls;
                    Err(refused)
                }
            };
            self.book.note_reserved(inner);
            served
        };
        match served {
            Err(refused) if !refused.is_final() => {
                attempt.refused = Some(refused);
                Ok(None)
            }
            served => served,
        }
    }

    /// Pledges so many units more, if there is room for all of them under the maximum.
    fn pledge_more(&self, units: u64) -> Option<u64> {
        let mut inner = self.book.lock_unless_forked()?;
        let units = Some(units).filter(|units| *units <= self.book.room(&inner))?;
        inner.pledged += units;
        Some(units)
    }

    /// Maps a page in every part of every gap: one of the pages at hand where one fits, else a new one, which is at most as long as `most`
    /// says for a gap.
    fn fill_gaps(
        &self,
        pages: &dyn Pages,
        gaps: &[(u64, u32)],
        most: impl Fn(u64) -> u64,
        hand: &mut Vec<Extent>,
        filled: &mut Filled,
    ) -> Result<(), Error> {
        let mut rest: SmallVec<[(u64, u64, u64); 4]> = SmallVec::new();
        // The longest first, so that the short ones fill what is left.
        hand.sort_by_key(|extent| extent.units);
        for &(address, units) in gaps {
            let (mut at, mut left) = (address, u64::from(units));
            while let Some(fits) = hand.iter().rposition(|extent| u64::from(extent.units) <= left) {
                let page = hand.remove(fits);
                let extent = Extent { address: at, ..page };
                if let Err(error) = self.map(pages, extent) {
                    hand.push(page);
                    filled.lost = self.is_lost(pages, extent).then_some(extent);
                    return Err(error);
                }
                filled.mapped.push(extent);
                (at, left) = (extent.end(), left - u64::from(extent.units));
            }
            if left > 0 {
                rest.push((at, left, most(u64::from(units))));
            }
        }
        // Before memory is created: pages that are too long for the gaps make room.
        hand.drain(..).for_each(|extent| self.release(pages, extent));
        let least = u64::from(self.book.page_units);
        let mut had = u64::MAX;
        for (mut at, mut left, most) in rest {
            while left > 0 {
                let units = left.min(most).min(had);
                self.note_upstream_call();
                let _range = nvtx::range(c"grow", units as usize * Layout::MIN_ALIGN);
                let page = match pages.create(units as usize * Layout::MIN_ALIGN) {
                    Ok(page) => page,
                    // What is left of the upstream may do for the rest, with pages that move.
                    Err(error) if error.is_out_of_memory() && units > least => {
                        had = (units / 2).next_multiple_of(least);
                        continue;
                    }
                    Err(error) => {
                        event!(bytes = units as usize * Layout::MIN_ALIGN, error = %error, "growth refused");
                        return Err(error);
                    }
                };
                let extent = Extent { address: at, units: units as u32, number: page.number() };
                if let Err(error) = self.map(pages, extent) {
                    self.release(pages, extent);
                    filled.lost = self.is_lost(pages, extent).then_some(extent);
                    return Err(error);
                }
                event!(bytes = page.bytes(), address = at, "grow");
                filled.mapped.push(extent);
                (at, left) = (extent.end(), left - units);
            }
        }
        Ok(())
    }

    /// The longest page to create in a gap, in units, where the budget leaves so many beside the peak.
    fn most_page_units(&self, slack: u64, gap: u64) -> u64 {
        let page = u64::from(self.book.page_units);
        // Relaxed: a figure that only grows.
        let memory = self.upstream_total.load(core::sync::atomic::Ordering::Relaxed) / Layout::MIN_ALIGN;
        let part = |units: u64, parts: u64| (units / parts).max(page).ilog2();
        let short = part(slack, PART_OF_SLACK);
        let movable = part(gap, PART_OF_GAP).clamp(short, part(slack, PART_OF_SLACK / 2));
        1 << part(memory as u64, PART_OF_MEMORY).min(movable)
    }

    /// Reserves another range, in which a request fits that no range has a site for. If it is of a short block, it goes to
    /// the other ranges from now on.
    fn reserve_longer_range(&self, request: &Request<'_>) -> Result<(), Error> {
        {
            let mut inner = self.book.lock();
            if inner.core.is_short(request.want.units()) {
                inner.core.close_short_range();
                return Ok(());
            }
        }
        let (range, units) = self.reserve_range(TIMES_MEMORY, request.need())?;
        self.book.lock().core.add_range(range, units, self.book.page_units);
        Ok(())
    }

    /// Reserves the range of short blocks, unless another thread has, or goes on without one.
    fn reserve_short_range(&self) -> Result<(), Error> {
        let reserved = self.reserve_range(1, 0);
        let unused = {
            let mut inner = self.book.lock();
            match reserved {
                Ok((range, units)) if inner.core.wants_short_range() => {
                    inner.core.add_short_range(range, units, self.book.page_units);
                    None
                }
                Ok(unused) => Some(unused),
                Err(error) if error.is_final() => return Err(error),
                Err(_) => {
                    inner.core.close_short_range();
                    None
                }
            }
        };
        if let (Some((address, units)), Some(pages)) = (unused, self.pages()) {
            self.unreserve(pages, Segment { address, units });
        }
        Ok(())
    }

    /// Reserves a range of addresses, of so many times the memory, in which a block of `need` units fits. Returns its
    /// address and its units.
    fn reserve_range(&self, times: u64, need: u64) -> Result<(u64, u32), Error> {
        let page = u64::from(self.book.page_units);
        if let Ok(memory) = self.upstream.memory_info() {
            // Relaxed: as above.
            self.upstream_total.fetch_max(memory.total_bytes, core::sync::atomic::Ordering::Relaxed);
        }
        let total = self.upstream_total.load(core::sync::atomic::Ordering::Relaxed) / Layout::MIN_ALIGN;
        let least = need.next_multiple_of(page) + 2 * page;
        let longest = LONGEST / page * page;
        let Some(pages) = self.pages().filter(|_| least <= longest) else {
            return Err(Error::unsupported(
                "a block of almost 1 TiB over pages",
                "a range of addresses holds less",
                "ask for less at once",
            ));
        };
        let mut units = (total as u64 * times).next_multiple_of(page).clamp(least, longest);
        loop {
            self.note_upstream_call();
            match pages.reserve(units as usize * Layout::MIN_ALIGN) {
                Ok(range) => {
                    self.book.require_same_process()?;
                    event!(bytes = units as usize * Layout::MIN_ALIGN, address = range.address(), "reserve");
                    self.announce_to_driver(range.address(), units as usize * Layout::MIN_ALIGN);
                    // Pages are announced to no tool, but ranges and marks are.
                    nvtx::start();
                    return Ok((range.address(), units as u32));
                }
                Err(_) if units > least => units = (units / 2).next_multiple_of(page).max(least),
                Err(error) => return Err(error),
            }
        }
    }

    /// Maps the first memory, when the suballocator is made.
    pub(super) fn map_initial(&self, units: u32) -> Result<(), Error> {
        let (range, range_units) = self.reserve_range(TIMES_MEMORY, units.into())?;
        let growing = {
            let mut inner = self.book.lock();
            inner.core.add_range(range, range_units, self.book.page_units);
            inner.core.begin_initial(units)
        };
        let (Some(growing), Some(pages)) = (growing, self.pages()) else { return Ok(()) };
        let mut filled = Filled::default();
        // No block keeps it as a whole.
        let slack = self.book.config.slack_units(units.into());
        let most = |_| self.most_page_units(slack, 0);
        let answer = self.fill_gaps(pages, &growing.gaps, most, &mut Vec::new(), &mut filled);
        let mut inner = self.book.lock();
        // What is mapped is free.
        inner.core.abandon_growth(&growing, &filled.mapped, filled.lost);
        self.book.note_reserved(&mut inner);
        answer
    }

    /// Unmaps and releases pages on which no live block lies, until at most `keep_units` are left. Returns the bytes.
    pub(super) fn trim_pages(&self, keep_units: u64) -> usize {
        let Some(pages) = self.pages() else { return 0 };
        let old = {
            let mut inner = self.book.lock();
            // In one step: of two threads that trim, each counts what the other has taken.
            let surplus = inner.core.reserved_units().saturating_sub(keep_units);
            let old = inner.core.take_pages(surplus, surplus);
            inner.leaving += units_of(&old);
            inner.begin_call();
            self.book.note_reserved(&mut inner);
            old
        };
        let _range =
            (!old.is_empty()).then(|| nvtx::range(c"trim", units_of(&old) as usize * Layout::MIN_ALIGN));
        let (unmapped, kept): (Vec<Extent>, Vec<Extent>) =
            old.into_iter().partition(|extent| self.unmap(pages, *extent).is_ok());
        let gone = units_of(&unmapped) as usize * Layout::MIN_ALIGN;
        unmapped.iter().for_each(|extent| self.release(pages, *extent));
        // In a forked child the parent's memory is leaked.
        let Some(mut inner) = self.book.lock_unless_forked() else { return gone };
        inner.leaving -= units_of(&unmapped) + units_of(&kept);
        unmapped.into_iter().for_each(|extent| inner.core.finish_unmapping(extent));
        kept.into_iter().for_each(|extent| inner.core.abandon_unmapping(extent));
        inner.end_call();
        self.book.note_reserved(&mut inner);
        gone
    }

    /// Returns all ranges to the upstream, when the suballocator ends. What work may still use is leaked.
    pub(super) fn return_ranges(
        &self,
        is_lost: impl Fn(Owner) -> bool,
        is_of_graph: impl Fn(u64, u64) -> bool,
    ) {
        let Some(pages) = self.pages() else { return };
        let ranges = self.book.lock().core.ranges_to_drain(is_lost);
        for drained in ranges {
            let mut is_empty = true;
            for (extent, is_lost) in drained.extents {
                let is_lost = is_lost || is_of_graph(extent.address, extent.end());
                if !is_lost && self.unmap(pages, extent).is_ok() {
                    self.release(pages, extent);
                } else {
                    is_empty = false;
                }
            }
            if is_empty {
                self.unreserve(pages, drained.range);
            }
        }
    }

    /// Returns a range in which nothing is mapped to the upstream.
    fn unreserve(&self, pages: &dyn Pages, range: Segment) {
        let Some(address) = DevicePtr::new(range.address) else { return };
        self.withdraw_memory(range.address, range.units as usize * Layout::MIN_ALIGN);
        self.note_upstream_call();
        // SAFETY: `reserve_range` got the range of so many bytes from this upstream; nothing is mapped in it, and the core
        // hands nothing of it out: it never knew the range, or has ended.
        unsafe { pages.unreserve(address, range.units as usize * Layout::MIN_ALIGN) };
    }

    pub(super) fn map(&self, pages: &dyn Pages, extent: Extent) -> Result<(), Error> {
        let Some(at) = DevicePtr::new(extent.address) else { return Ok(()) };
        self.note_upstream_call();
        // SAFETY:
        // - the page was created here or unmapped here, and is mapped nowhere.
        // - the addresses are in a gap of a range of this upstream, which no other thread maps: its node is moving, or the
        //   page is given up, and busy.
        unsafe { pages.map(page_of(extent), at) }
    }

    /// Returns `true` if nothing can be mapped there, after a page could not be.
    #[cold]
    pub(super) fn is_lost(&self, pages: &dyn Pages, extent: Extent) -> bool {
        let Some(at) = DevicePtr::new(extent.address) else { return false };
        self.note_upstream_call();
        let is_lost = pages.is_lost(at, page_of(extent).bytes());
        event!(bytes = page_of(extent).bytes(), address = extent.address, is_lost, "mapping refused");
        is_lost
    }

    /// After an error the page stays mapped.
    pub(super) fn unmap(&self, pages: &dyn Pages, extent: Extent) -> Result<(), Error> {
        let Some(at) = DevicePtr::new(extent.address) else { return Ok(()) };
        self.note_upstream_call();
        // SAFETY:
        // - the core says that the page is mapped there, and no other thread unmaps it: its node is moving, or the
        //   suballocator ends, or the page is given up, and busy.
        // - no work uses it: no block of it is out, it is in no cache, and all that ever used it is over on the device,
        //   because it is unowned, or the block sleeps; at the end the caller has waited for it.
        let answer = unsafe { pages.unmap(page_of(extent), at) };
        event!(bytes = page_of(extent).bytes(), address = extent.address, unmapped = answer.is_ok(), "unmap");
        answer
    }

    pub(super) fn release(&self, pages: &dyn Pages, extent: Extent) {
        self.note_upstream_call();
        // SAFETY: the page was created here, is mapped nowhere, and nobody knows it any more.
        unsafe { pages.release(page_of(extent)) };
    }
}

fn page_of(extent: Extent) -> Page {
    Page::new(extent.number, extent.units as usize * Layout::MIN_ALIGN)
}
