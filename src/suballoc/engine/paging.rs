//! Grows in place, over an upstream with pages.
//!
//! Three steps each time: under the mutex the nodes leave the bins, so that no other thread finds them; without a lock
//! pages are unmapped, created and mapped; under the mutex the block goes out, or everything is as it was.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::Engine;
use super::book::{Inner, Reach, Request, SuballocBook, of_owners};
use super::events::event;
use super::grow::TURNS;
use super::reserving::TIMES_MEMORY;
use super::slow_path::Attempt;
use crate::error::Error;
use crate::nvtx;
use crate::resource::{DevicePtr, Layout, Pages, Resource};
use crate::stream::Epoch;
use crate::suballoc::Growth;
use crate::suballoc::core::{Extent, Growing, Return, Stale, UNIT};

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

/// So many aliases are kept for each page, and the oldest ones are unmapped beyond that. With one for each, a round of `etl` under a budget
/// of 1.05 made half the calls again, and with 32 it made none less.
const ALIASES_A_PAGE: usize = 8;

/// So many at once, or as many as are made, so that no request pays for all, and there are no more and more of them.
const STALE_AT_ONCE: usize = 4;

/// Pages to unmap and to map.
#[derive(Debug)]
pub(super) struct Paging {
    growing: Growing,
    /// Pages that are free: to be mapped elsewhere, or released.
    old: Vec<Extent>,
    /// Pages that are free, and mapped in the gaps already.
    returns: Vec<Return>,
    /// Aliases that are in the way, or too many.
    stale: Vec<Stale>,
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
    /// By the old address of each page that has moved, its new one. Not by its number, which may be that of a page created since.
    moved: BTreeMap<u64, u64>,
    /// Units that were pledged for pages that stay where they are.
    more: u64,
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

pub(super) fn units_of(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.units)).sum()
}

/// What is left of gaps, which are in the order of their addresses, when pages have returned to them.
fn without(gaps: &[(u64, u32)], returns: &[Return]) -> SmallVec<[(u64, u32); 4]> {
    let mut taken: SmallVec<[Extent; 4]> = returns.iter().map(|of| of.to).collect();
    taken.sort_unstable_by_key(|extent| extent.address);
    let mut rest = SmallVec::new();
    for &(start, units) in gaps {
        let end = start + u64::from(units) * UNIT;
        let mut at = start;
        for extent in taken.iter().filter(|extent| start <= extent.address && extent.address < end) {
            rest.push((at, ((extent.address - at) / UNIT) as u32));
            at = extent.end();
        }
        rest.push((at, ((end - at) / UNIT) as u32));
    }
    rest.retain(|(_, units)| *units > 0);
    rest
}

/// The parts of some extents that lie in gaps.
pub(super) fn parts_of(extents: &[Extent], gaps: &[(u64, u32)]) -> Vec<Extent> {
    let parts = extents.iter().flat_map(|extent| {
        gaps.iter().filter_map(|&(start, units)| {
            let (from, to) = (start.max(extent.address), (start + u64::from(units) * UNIT).min(extent.end()));
            (from < to).then(|| Extent { address: from, units: ((to - from) / UNIT) as u32, ..*extent })
        })
    });
    parts.collect()
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
        if inner.told.is_frozen {
            return PagePlan::NoRoom;
        }
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
        let returns = inner.core.take_returns(&growing.gaps, should);
        let returned: u64 = returns.iter().map(|of| u64::from(of.from.units)).sum();
        let old = inner.core.take_pages(should.saturating_sub(returned), u64::MAX);
        let moved = returned + units_of(&old);
        if moved < must {
            old.into_iter().for_each(|extent| inner.core.abandon_unmapping(extent));
            inner.core.abandon_growth(&growing, &[], &[]);
            returns.into_iter().for_each(|of| inner.core.abandon_return(of));
            return PagePlan::NoRoom;
        }
        let too_many = inner.core.aliases().saturating_sub(ALIASES_A_PAGE * inner.core.extents());
        let made = STALE_AT_ONCE.max(returns.len() + old.len());
        let stale = inner.core.take_stale(&growing.gaps, too_many.min(made));
        let pledged = gaps.saturating_sub(moved);
        inner.leaving += moved;
        inner.pledged += pledged;
        inner.begin_call();
        let is_alone = inner.pledged + inner.leaving == pledged + moved;
        let slack = self.config.slack_units(inner.peak_live);
        let epoch = request.requester.now();
        let paging = Paging { growing, old, returns, stale, pledged, slack, stream: id, epoch };
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
                PagePlan::Map { paging, calls } => match self.carry_out(*paging, attempt)? {
                    Some(block) => return Ok(Some(block)),
                    // The addresses of the alias are lost now: each turn has fewer of them.
                    None if std::mem::take(&mut attempt.met_alias) => continue,
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
    fn carry_out(&self, paging: Paging, attempt: &mut Attempt) -> Result<Option<DevicePtr>, Error> {
        let Some(pages) = self.pages() else { return Ok(None) };
        let Paging { growing, old, returns, stale, pledged, slack, stream, epoch } = paging;
        let returned = returns.iter().map(|of| u64::from(of.from.units)).sum::<u64>();
        let (unmapped, stuck_aliases) = self.unmap_stale(pages, stale);
        if !unmapped.is_empty()
            && let Some(mut inner) = self.book.lock_unless_forked()
        {
            unmapped.into_iter().for_each(|stale| inner.core.settle_stale(stale, true));
        }
        let in_the_way: Vec<Extent> = stuck_aliases.iter().map(|(stale, _)| stale.extent).collect();
        let in_the_way = parts_of(&in_the_way, &growing.gaps);
        let cleared = match stuck_aliases.first() {
            Some((_, error)) if !in_the_way.is_empty() => {
                attempt.met_alias = true;
                Err(error.clone())
            }
            _ => Ok(()),
        };
        let (mut hand, mut kept, mut stuck) = (Vec::<Extent>::new(), Vec::new(), Ok(()));
        for &extent in &old {
            // With aliases it stays mapped where it is.
            let unmapped = if self.book.has_aliases { Ok(()) } else { self.unmap(pages, extent) };
            if unmapped.is_ok() { &mut hand } else { &mut kept }.push(extent);
            stuck = stuck.and(unmapped);
        }
        if !hand.is_empty() || returned > 0 {
            nvtx::mark(c"move", (units_of(&hand) + returned) as usize * Layout::MIN_ALIGN);
        }
        let mut filled = Filled::default();
        // New pages stand in for those that stay where they are, within the maximum.
        let more = if kept.is_empty() { Some(0) } else { self.pledge_more(units_of(&kept)) };
        let answer = match more {
            Some(_) => cleared.and_then(|()| {
                let most = |gap| self.most_page_units(slack, gap);
                self.fill_gaps(pages, &without(&growing.gaps, &returns), most, &mut hand, &mut filled)
            }),
            None => stuck,
        };
        let Filled { mut mapped, moved, more: more_for_kept, lost } = filled;
        if self.book.has_aliases {
            kept.append(&mut hand);
        }
        hand.into_iter().for_each(|extent| self.release(pages, extent));
        // The upstream may be a user's, and may have forked.
        self.book.require_same_process()?;
        let served = {
            let mut inner = self.book.lock();
            let inner = &mut *inner;
            inner.leaving -= units_of(&old) + returned;
            inner.pledged -= pledged + more.unwrap_or(0) + more_for_kept;
            inner.end_call();
            let kept_at: BTreeSet<u64> = kept.iter().map(|extent| extent.address).collect();
            for &extent in &old {
                if kept_at.contains(&extent.address) {
                    inner.core.abandon_unmapping(extent);
                    continue;
                }
                match moved.get(&extent.address) {
                    Some(&newest) if self.book.has_aliases => inner.core.leave_alias(extent, newest),
                    _ => inner.core.finish_unmapping(extent),
                }
                inner.moves += 1;
                inner.moved += u64::from(extent.units);
            }
            let served = match answer {
                Ok(()) => {
                    for of in returns {
                        inner.core.leave_alias(of.from, of.to.address);
                        inner.moves += 1;
                        inner.moved += u64::from(of.from.units);
                        mapped.push(of.to);
                    }
                    // By its cache: the owner leaves the core when another stream gets the cache.
                    let owner = self.book.cache(&mut inner.core, stream).owner();
                    let address = inner.core.finish_growth(&growing, &mapped, owner, epoch);
                    inner.misses += 1;
                    Ok(DevicePtr::new(address))
                }
                Err(refused) => {
                    let lost: Vec<Extent> = lost.into_iter().chain(in_the_way).collect();
                    inner.core.abandon_growth(&growing, &mapped, &lost);
                    returns.into_iter().for_each(|of| inner.core.abandon_return(of));
                    let gone = units_of(&old).saturating_sub(units_of(&kept));
                    attempt.gained += units_of(&mapped).saturating_sub(gone);
                    attempt.calls = inner.calls;
                    Err(refused)
                }
            };
            // Not before the growth is abandoned: until then some of their addresses are the growth's.
            stuck_aliases.into_iter().for_each(|(stale, _)| inner.core.settle_stale(stale, false));
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
                filled.moved.insert(page.address, extent.address);
                (at, left) = (extent.end(), left - u64::from(extent.units));
            }
            if left > 0 {
                rest.push((at, left, most(u64::from(units))));
            }
        }
        // Before memory is created: pages that are too long for the gaps make room.
        if self.book.has_aliases {
            let (kept, given) = self.give_back(pages, hand);
            *hand = kept;
            if !hand.is_empty() {
                // New pages stand in for those that stay where they are, within the maximum.
                let units = units_of(hand);
                let none = || given.and(Err(Error::out_of_memory(units as usize * Layout::MIN_ALIGN)));
                filled.more = self.pledge_more(units).map_or_else(none, Ok)?;
            }
        } else {
            hand.drain(..).for_each(|extent| self.release(pages, extent));
        }
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
        inner.core.abandon_growth(&growing, &filled.mapped, filled.lost.as_slice());
        self.book.note_reserved(&mut inner);
        answer
    }
}
