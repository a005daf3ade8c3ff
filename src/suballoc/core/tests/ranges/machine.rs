//! A machine of plain data, which knows what is mapped where, and the steps of a program on it.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::{Core, Extent, FreedAsleep, Growing, Owner, Stale, UNIT};

/// Units of a page: few, so that blocks share pages and cross them.
pub(super) const PAGE: u32 = 16;
pub(super) const PAGE_BYTES: u64 = PAGE as u64 * UNIT;
pub(super) const START: u64 = 0x7000_0000;
pub(super) const RANGE_PAGES: u32 = 40;
pub(super) const STREAMS: usize = 2;

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A block for a stream, or for the host (0). If pages miss, so many of the pages to map fail to be mapped, of so
    /// many pages each; the addresses of one that fails are lost, if it `loses` them.
    Allocate {
        requester: usize,
        units: u32,
        align_log: u32,
        spare: u64,
        fails_after: Option<usize>,
        longest: u32,
        loses: bool,
        /// Free pages move to the gaps, and stay mapped where they were, too; with `sticks` every other alias that is in the way cannot be
        /// unmapped.
        moves: bool,
        sticks: bool,
    },
    Release {
        pick: usize,
        on: usize,
    },
    Disown {
        stream: usize,
    },
    Gather {
        requester: usize,
    },
    /// Takes so many units of pages; those at even places stay mapped, if `some_fail`.
    Unmap {
        units: u64,
        some_fail: bool,
    },
    Leave {
        stream: usize,
    },
    /// Puts one block in so many to sleep; the pages at even places stay mapped, if `some_fail`.
    Sleep {
        one_in: usize,
        some_fail: bool,
    },
    /// Wakes all that sleeps, or one block in two; so many of the pages to map are mapped before one fails.
    Wake {
        all: bool,
        fails_after: Option<usize>,
        loses: bool,
        /// One that sleeps is freed while the pages are being mapped.
        pick: Option<usize>,
    },
    FreeAsleep {
        pick: usize,
    },
}

struct Machine {
    core: Core,
    streams: [StreamId; STREAMS],
    epoch: u64,
    /// What the machine has mapped: address and units.
    mapped: BTreeMap<u64, Extent>,
    /// Where pages are mapped besides.
    aliases: BTreeMap<u64, Extent>,
    /// Where nothing can be mapped.
    lost: BTreeMap<u64, Extent>,
    numbers: BTreeSet<u64>,
    next_number: u64,
    out: Vec<(u64, u32)>,
    asleep: Vec<(u64, u32)>,
}

impl Machine {
    fn new() -> Self {
        let mut core = Core::new();
        core.add_range(START, RANGE_PAGES * PAGE, PAGE);
        Self {
            core,
            streams: [StreamId::new(0, 1), StreamId::new(0, 2)],
            epoch: 1,
            mapped: BTreeMap::new(),
            aliases: BTreeMap::new(),
            lost: BTreeMap::new(),
            numbers: BTreeSet::new(),
            next_number: 0,
            out: Vec::new(),
            asleep: Vec::new(),
        }
    }

    fn owner(&mut self, requester: usize) -> Owner {
        if requester == 0 { Owner::UNOWNED } else { self.core.enter(self.streams[requester - 1]) }
    }

    fn map(&mut self, extent: Extent) {
        let overlaps = |other: &Extent| other.address < extent.end() && extent.address < other.end();
        assert!(!self.mapped.values().any(overlaps), "{extent:?} is mapped over another page");
        assert!(!self.aliases.values().any(overlaps), "{extent:?} is mapped over an alias");
        assert!(!self.lost.values().any(overlaps), "{extent:?} is mapped where nothing can be");
        assert!(extent.address.is_multiple_of(PAGE_BYTES) && extent.units.is_multiple_of(PAGE));
        assert!(extent.address >= START && extent.end() <= START + u64::from(RANGE_PAGES - 1) * PAGE_BYTES);
        assert!(self.numbers.insert(extent.number), "page {} has two addresses", extent.number);
        self.mapped.insert(extent.address, extent);
    }

    fn unmap(&mut self, extent: Extent) {
        let touched = |&(address, units): &(u64, u32)| {
            address < extent.end() && extent.address < address + u64::from(units) * UNIT
        };
        assert!(!self.out.iter().any(touched), "{extent:?} is unmapped under a block");
        assert_eq!(self.mapped.remove(&extent.address), Some(extent));
        self.numbers.remove(&extent.number);
    }

    /// The page is mapped at `to` from now on, and is left where it was.
    fn move_page(&mut self, from: Extent, to: Extent) {
        assert_eq!((from.units, from.number), (to.units, to.number));
        assert_eq!(self.mapped.remove(&from.address), Some(from));
        self.numbers.remove(&from.number);
        self.map(to);
        self.aliases.insert(from.address, from);
        self.core.leave_alias(from, to.address);
    }

    /// Unmaps aliases, all but every other one if they stick. Returns those that do.
    fn unmap_stale(&mut self, stale: Vec<Stale>, sticks: bool) -> Vec<Extent> {
        let mut stuck = Vec::new();
        for (at, stale) in stale.into_iter().enumerate() {
            let is_unmapped = !(sticks && at % 2 == 0);
            if is_unmapped {
                assert_eq!(self.aliases.remove(&stale.extent.address), Some(stale.extent));
            } else {
                assert_eq!(self.aliases.get(&stale.extent.address), Some(&stale.extent));
                stuck.push(stale.extent);
            }
            self.core.settle_stale(stale, is_unmapped);
        }
        stuck
    }

    /// Unmaps pages, with their aliases. Returns those that stay, because one of these stays.
    fn give_back(&mut self, extents: &[Extent], sticks: bool) -> Vec<Extent> {
        let (stale, busy) = self.core.take_aliases_of(extents);
        assert_eq!(busy, []);
        self.core.verify();
        let stuck = self.unmap_stale(stale, sticks);
        let stays = |extent: &&Extent| stuck.iter().any(|alias| alias.number == extent.number);
        let (kept, gone): (Vec<Extent>, Vec<Extent>) = extents.iter().partition(stays);
        gone.into_iter().for_each(|extent| self.unmap(extent));
        kept
    }

    /// Grows with pages that are free elsewhere. Returns the address, unless something failed.
    fn grow_by_moves(&mut self, growing: &Growing, owner: Owner, fails: bool, sticks: bool) -> Option<u64> {
        let returns = self.core.take_returns(&growing.gaps, growing.gap_units());
        let returned: u64 = returns.iter().map(|of| u64::from(of.to.units)).sum();
        let hand = self.core.take_pages(growing.gap_units() - returned, u64::MAX);
        let stale = self.core.take_stale(&growing.gaps, usize::from(sticks));
        self.core.verify();
        let stuck = self.unmap_stale(stale, sticks);
        self.core.verify();
        let mut free: BTreeSet<u64> = BTreeSet::new();
        for &(address, units) in &growing.gaps {
            free.extend((0..units / PAGE).map(|page| address + u64::from(page) * PAGE_BYTES));
        }
        let gaps = free.clone();
        let pages = |extent: &Extent| {
            let address = extent.address;
            (0..extent.units / PAGE).map(move |page| address + u64::from(page) * PAGE_BYTES)
        };
        for of in &returns {
            assert!(pages(&of.to).all(|page| free.remove(&page)), "{of:?} is wholly within a gap");
        }
        if !stuck.is_empty() {
            hand.into_iter().for_each(|extent| self.core.abandon_unmapping(extent));
            let parts = stuck.iter().flat_map(pages).filter(|page| gaps.contains(page));
            let lost: Vec<Extent> = parts.map(|address| Extent { address, units: PAGE, number: 0 }).collect();
            self.core.abandon_growth(growing, &[], &lost);
            returns.into_iter().for_each(|of| self.core.abandon_return(of));
            return None;
        }
        let mut mapped = Vec::new();
        let mut left = Vec::new();
        for (at, extent) in hand.into_iter().enumerate() {
            let fits = |address: &u64| {
                pages(&Extent { address: *address, ..extent }).all(|page| free.contains(&page))
            };
            let Some(address) = free.iter().copied().find(fits).filter(|_| !(fails && at % 3 == 2)) else {
                left.push(extent);
                continue;
            };
            let to = Extent { address, ..extent };
            for page in pages(&to) {
                free.remove(&page);
            }
            self.move_page(extent, to);
            mapped.push(to);
        }
        if fails {
            left.into_iter().for_each(|extent| self.core.abandon_unmapping(extent));
            self.core.abandon_growth(growing, &mapped, &[]);
            returns.into_iter().for_each(|of| self.core.abandon_return(of));
            return None;
        }
        let kept = self.give_back(&left, false);
        assert_eq!(kept, []);
        left.into_iter().for_each(|extent| self.core.finish_unmapping(extent));
        for address in free {
            let extent = Extent { address, units: PAGE, number: self.next_number };
            self.next_number += 1;
            self.map(extent);
            mapped.push(extent);
        }
        for of in returns {
            assert_eq!(self.aliases.remove(&of.to.address), Some(of.to));
            self.move_page(of.from, of.to);
            mapped.push(of.to);
        }
        Some(self.core.finish_growth(growing, &mapped, owner, Epoch(self.epoch)))
    }

    /// The pages of the gaps, of at most `longest` pages each, up to the one that fails.
    fn fill(
        &mut self,
        growing: &Growing,
        fails_after: Option<usize>,
        longest: u32,
    ) -> (Vec<Extent>, Option<Extent>) {
        let mut mapped = Vec::new();
        for &(address, units) in &growing.gaps {
            let (mut at, mut left) = (address, units);
            while left > 0 {
                let units = left.min(longest * PAGE);
                let extent = Extent { address: at, units, number: self.next_number };
                if fails_after == Some(mapped.len()) {
                    return (mapped, Some(extent));
                }
                self.next_number += 1;
                self.map(extent);
                mapped.push(extent);
                (at, left) = (extent.end(), left - units);
            }
        }
        (mapped, None)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Allocate {
                requester,
                units,
                align_log,
                spare,
                fails_after,
                longest,
                loses,
                moves,
                sticks,
            } => {
                let owner = self.owner(requester);
                let align = 1 << align_log;
                let address = match self.core.allocate(owner, units, align, &[]) {
                    Some(taken) => taken.address,
                    None => {
                        let Some(site) = self.core.site(owner, units, align, &[]) else { return };
                        assert!(site.missing.is_multiple_of(PAGE.into()) && site.units == units);
                        let before: Vec<_> = self.core.blocks().collect();
                        let growing = self.core.begin_growth(site, spare * u64::from(PAGE));
                        assert!(growing.gap_units() >= site.missing);
                        if self.core.aliases() == 0 {
                            // Else there are some in the gaps until they are taken.
                            self.core.verify();
                        }
                        if moves || self.core.aliases() > 0 {
                            let fails = fails_after.is_some();
                            let Some(address) = self.grow_by_moves(&growing, owner, fails, sticks) else {
                                return;
                            };
                            assert!(address.is_multiple_of(u64::from(align) * UNIT));
                            self.out.push((address, units));
                            return;
                        }
                        let (mapped, failed) = self.fill(&growing, fails_after, longest);
                        if failed.is_some() {
                            let lost = failed.filter(|_| loses);
                            self.core.abandon_growth(&growing, &mapped, lost.as_slice());
                            self.lost.extend(lost.map(|extent| (extent.address, extent)));
                            if mapped.is_empty() && self.streams_entered() > 1 {
                                assert_eq!(
                                    self.core.blocks().collect::<Vec<_>>(),
                                    before,
                                    "nothing has changed"
                                );
                            }
                            return;
                        }
                        self.core.finish_growth(&growing, &mapped, owner, Epoch(self.epoch))
                    }
                };
                assert!(address.is_multiple_of(u64::from(align) * UNIT));
                self.out.push((address, units));
            }
            Step::Release { pick, on } => {
                if self.out.is_empty() {
                    return;
                }
                let (address, units) = self.out.swap_remove(pick % self.out.len());
                let owner = self.owner(on);
                self.epoch += 1;
                assert_eq!(self.core.release(address, owner, Epoch(self.epoch)), Ok(units));
            }
            Step::Disown { stream } => {
                let owner = self.owner(stream + 1);
                self.core.disown(owner, Epoch(self.epoch));
            }
            Step::Gather { requester } => {
                let owner = self.owner(requester);
                let others: Vec<_> =
                    (0..STREAMS).map(|stream| (self.owner(stream + 1), Epoch(self.epoch))).collect();
                self.core.gather(owner, Epoch(self.epoch), &others);
            }
            Step::Unmap { units, some_fail } => {
                let most = units + u64::from(PAGE);
                let taken = self.core.take_pages(units, most);
                let all: u64 = taken.iter().map(|extent| u64::from(extent.units)).sum();
                assert!(all <= most);
                self.core.verify();
                let kept = self.give_back(&taken, some_fail);
                for extent in taken {
                    if kept.contains(&extent) {
                        self.core.abandon_unmapping(extent);
                    } else {
                        self.core.finish_unmapping(extent);
                    }
                }
            }
            Step::Leave { stream } => {
                let owner = self.owner(stream + 1);
                self.core.leave(owner);
            }
            Step::Sleep { one_in, some_fail } => self.sleep(one_in, some_fail),
            Step::Wake { all, fails_after, loses, pick } => self.wake(all, fails_after, loses, pick),
            Step::FreeAsleep { pick } => self.free_asleep(pick),
        }
    }

    fn sleep(&mut self, one_in: usize, some_fail: bool) {
        let (some, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.out).into_iter().enumerate().partition(|(at, _)| at % one_in == 0);
        self.out = rest.into_iter().map(|(_, block)| block).collect();
        let mut some: Vec<(u64, u32)> = some.into_iter().map(|(_, block)| block).collect();
        some.sort_unstable();
        for &(address, units) in &some {
            assert_eq!(self.core.fall_asleep(address), Some(units));
            assert_eq!(self.core.fall_asleep(address), None, "it sleeps");
        }
        self.core.verify();
        let given_up = self.core.give_up_pages(some.iter().map(|(address, _)| *address));
        self.asleep.extend(some);
        self.core.verify();
        let (some, rest): (Vec<_>, Vec<_>) =
            given_up.into_iter().enumerate().partition(|(at, _)| some_fail && at % 2 == 0);
        some.into_iter().for_each(|(_, extent)| self.core.regain(extent));
        let rest: Vec<Extent> = rest.into_iter().map(|(_, extent)| extent).collect();
        let kept = self.give_back(&rest, some_fail);
        for extent in rest {
            if kept.contains(&extent) {
                self.core.regain(extent);
            } else {
                self.core.finish_giving_up(extent.address);
            }
        }
    }

    fn wake(&mut self, all: bool, fails_after: Option<usize>, loses: bool, pick: Option<usize>) {
        self.asleep.sort_unstable();
        let waking: Vec<u64> =
            self.asleep.iter().step_by(if all { 1 } else { 2 }).map(|(address, _)| *address).collect();
        let missing = self.core.pages_to_regain(waking.iter().copied());
        self.core.verify();
        if let Some(pick) = pick {
            self.free_asleep(pick);
            self.core.verify();
        }
        let count = fails_after.unwrap_or(usize::MAX).min(missing.len());
        let mut mapped = Vec::new();
        for &(address, units) in &missing[..count] {
            let extent = Extent { address, units, number: self.next_number };
            self.next_number += 1;
            // An address that a block sleeps at is tried again, and this attempt succeeds.
            self.lost.remove(&address);
            self.map(extent);
            mapped.push(extent);
        }
        if count < missing.len() {
            if loses {
                let (address, units) = missing[count];
                self.lost.insert(address, Extent { address, units, number: 0 });
                self.core.lose_given_up(address);
            }
            mapped.into_iter().for_each(|extent| self.unmap(extent));
            missing.into_iter().for_each(|(address, _)| self.core.finish_giving_up(address));
            return;
        }
        mapped.into_iter().for_each(|extent| self.core.regain(extent));
        let (woken, rest) = std::mem::take(&mut self.asleep)
            .into_iter()
            .partition::<Vec<_>, _>(|(address, _)| waking.contains(address));
        woken.iter().for_each(|(address, _)| self.core.awaken(*address));
        self.out.extend(woken);
        self.asleep = rest;
    }

    fn free_asleep(&mut self, pick: usize) {
        if self.asleep.is_empty() {
            return;
        }
        let (address, units) = self.asleep.swap_remove(pick % self.asleep.len());
        match self.core.free_asleep(address) {
            Some(FreedAsleep::Gone) => {}
            Some(FreedAsleep::Mapped) => {
                assert_eq!(self.core.release(address, Owner::UNOWNED, Epoch(0)), Ok(units));
            }
            None => panic!("the block at {address:#x} sleeps"),
        }
        assert_eq!(self.core.free_asleep(address), None, "it is gone");
    }

    fn streams_entered(&self) -> usize {
        if self.core.is_of_one_stream() { 1 } else { STREAMS }
    }

    fn check(&self) {
        self.core.verify();
        let units: u64 = self.mapped.values().map(|extent| u64::from(extent.units)).sum();
        assert_eq!(self.core.reserved_units(), units);
        let stretches: u64 = self.core.stretches().iter().map(|(_, units)| units).sum();
        // A block that sleeps may lie on a page that stays for others.
        assert!(stretches == units || stretches < units && !self.asleep.is_empty());
        for &(address, units) in &self.out {
            let end = address + u64::from(units) * UNIT;
            let mut at = address;
            while at < end {
                let (_, extent) = self.mapped.range(..=at).next_back().expect("a page lies there");
                assert!(at < extent.end(), "a block at {address:#x} has no memory at {at:#x}");
                at = extent.end();
            }
        }
    }

    /// Everything is freed and unmapped: nothing is left.
    fn end(mut self) {
        while !self.asleep.is_empty() {
            self.free_asleep(0);
            self.core.verify();
        }
        for (address, _) in std::mem::take(&mut self.out) {
            self.core.release(address, Owner::UNOWNED, Epoch(0)).expect("it is out");
        }
        (0..STREAMS).for_each(|stream| self.step(&Step::Disown { stream }));
        let all = self.core.take_pages(u64::MAX, u64::MAX);
        assert_eq!(self.give_back(&all, false), []);
        all.into_iter().for_each(|extent| self.core.finish_unmapping(extent));
        self.check();
        // Of pages that are gone nothing is left.
        assert_eq!((self.core.drain_aliases(), self.aliases.len()), (Vec::new(), 0));
        assert_eq!((self.core.reserved_units(), self.core.blocks().count(), self.mapped.len()), (0, 0, 0));
    }
}

pub(super) fn step(streams: usize) -> impl Strategy<Value = Step> {
    let units = prop_oneof![4 => 1..PAGE, 3 => PAGE..4 * PAGE, 1 => 4 * PAGE..20 * PAGE];
    let fails = proptest::option::weighted(0.2, 0..3_usize);
    let moves = prop_oneof![2 => Just((false, false)), 3 => Just((true, false)), 1 => Just((true, true))];
    let allocate = (0..=streams, units, 0..6_u32, 0..4_u64, fails, 1..5_u32, any::<bool>(), moves);
    prop_oneof![
        10 => allocate.prop_map(|(requester, units, align_log, spare, fails_after, longest, loses, (moves, sticks))| Step::Allocate {
            requester, units, align_log: align_log.saturating_sub(1), spare, fails_after, longest, loses, moves, sticks
        }),
        9 => (any::<usize>(), 0..=streams).prop_map(|(pick, on)| Step::Release { pick, on }),
        2 => (0..streams).prop_map(|stream| Step::Disown { stream }),
        2 => (0..=streams).prop_map(|requester| Step::Gather { requester }),
        3 => (1..200_u64, any::<bool>()).prop_map(|(units, some_fail)| Step::Unmap { units, some_fail }),
        1 => (0..streams).prop_map(|stream| Step::Leave { stream }),
        3 => (1..4_usize, any::<bool>()).prop_map(|(one_in, some_fail)| Step::Sleep { one_in, some_fail }),
        2 => (any::<bool>(), proptest::option::weighted(0.4, 0..3_usize), any::<bool>(), proptest::option::of(any::<usize>()))
            .prop_map(|(all, fails_after, loses, pick)| Step::Wake { all, fails_after, loses, pick }),
        2 => any::<usize>().prop_map(|pick| Step::FreeAsleep { pick }),
    ]
}

pub(super) fn run(steps: &[Step]) {
    let mut machine = Machine::new();
    for step in steps {
        machine.step(step);
        machine.check();
    }
    machine.end();
}
