//! Ranges beside a machine of plain data, which knows what is mapped where.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::trials;
use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::site::Site;
use crate::suballoc::core::{Core, Extent, FreedAsleep, Growing, Owner, Stale, UNIT};

/// Units of a page: few, so that blocks share pages and cross them.
const PAGE: u32 = 16;
const PAGE_BYTES: u64 = PAGE as u64 * UNIT;
const START: u64 = 0x7000_0000;
const RANGE_PAGES: u32 = 40;
const STREAMS: usize = 2;

#[derive(Clone, Debug)]
enum Step {
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

fn step(streams: usize) -> impl Strategy<Value = Step> {
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

fn run(steps: &[Step]) {
    let mut machine = Machine::new();
    for step in steps {
        machine.step(step);
        machine.check();
    }
    machine.end();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: trials(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn blocks_of_two_streams_always_have_memory(steps in vec(step(STREAMS), 0..120)) {
        run(&steps);
    }

    #[test]
    fn blocks_of_one_stream_always_have_memory(steps in vec(step(1), 0..120)) {
        run(&steps);
    }
}

fn grown(core: &mut Core, owner: Owner, units: u32, number: u64) -> u64 {
    let site = core.site(owner, units, 1, &[]).expect("the range is long enough");
    let growing = core.begin_growth(site, 0);
    core.take_stale(&growing.gaps, 0).into_iter().for_each(|stale| core.settle_stale(stale, true));
    let mapped: Vec<Extent> = growing
        .gaps
        .iter()
        .zip(number..)
        .map(|(&(address, units), number)| Extent { address, units, number })
        .collect();
    core.finish_growth(&growing, &mapped, owner, Epoch(1))
}

#[test]
fn growth_is_contiguous_and_takes_only_what_misses() {
    let mut core = Core::new();
    core.add_range(START, RANGE_PAGES * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let first = grown(&mut core, owner, 3 * PAGE, 0);
    let second = grown(&mut core, owner, PAGE / 2, 10);
    assert_eq!((first, second), (START, START + 3 * PAGE_BYTES));
    // Half a page is free behind: two pages and a half need two more.
    let third = grown(&mut core, owner, 2 * PAGE + PAGE / 2, 20);
    assert_eq!((third, core.reserved_units()), (second + PAGE_BYTES / 2, u64::from(6 * PAGE)));
    for address in [first, second, third] {
        core.release(address, owner, Epoch(2)).expect("it is out");
    }
    assert_eq!(core.largest(owner, &[]), 6 * PAGE, "what came in three growths is one piece");
    core.verify();
}

#[test]
fn a_hole_that_misses_a_page_is_mapped_again_before_the_range_grows() {
    let mut core = Core::new();
    core.add_range(START, RANGE_PAGES * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let first = grown(&mut core, owner, 4 * PAGE, 0);
    let behind = grown(&mut core, owner, PAGE, 10);
    core.release(first, owner, Epoch(2)).expect("it is out");
    core.disown(owner, Epoch(2));
    let taken = core.take_pages(1, u64::MAX);
    assert_eq!(taken, [Extent { address: START, units: 4 * PAGE, number: 0 }]);
    core.finish_unmapping(taken[0]);
    assert_eq!(core.reserved_units(), u64::from(PAGE));
    assert_eq!(grown(&mut core, owner, 3 * PAGE, 20), START);
    core.release(behind, owner, Epoch(3)).expect("it is out");
    core.verify();
}

#[test]
fn addresses_that_are_lost_are_never_chosen_again() {
    let mut core = Core::new();
    core.add_range(START, RANGE_PAGES * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let site = core.site(owner, 4 * PAGE, 1, &[]).expect("the range is empty");
    let growing = core.begin_growth(site, 0);
    let mapped = [Extent { address: START, units: PAGE, number: 0 }];
    let lost = Extent { address: START + PAGE_BYTES, units: PAGE, number: 1 };
    core.abandon_growth(&growing, &mapped, &[lost]);
    core.verify();
    let mut number = 10;
    while core.site(owner, PAGE, 1, &[]).is_some() {
        let address = grown(&mut core, owner, PAGE, number);
        assert!(address >= lost.end() || address + PAGE_BYTES <= lost.address, "{address:#x}");
        number += 1;
    }
    // One is lost, and the last one is never mapped.
    assert_eq!(core.reserved_units(), u64::from((RANGE_PAGES - 2) * PAGE));
    core.verify();
}

#[test]
fn the_last_page_is_never_mapped() {
    let mut core = Core::new();
    core.add_range(START, 4 * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    assert_eq!(core.site(owner, 3 * PAGE + 1, 1, &[]), None);
    let site = core.site(owner, 3 * PAGE, 1, &[]).expect("three pages of four");
    let growing = core.begin_growth(site, 100 * u64::from(PAGE));
    assert_eq!(growing.gap_units(), u64::from(3 * PAGE));
    core.abandon_growth(&growing, &[], &[]);
    core.verify();
}

#[test]
fn short_blocks_have_a_range_of_their_own() {
    let mut core = Core::new();
    core.add_range(START, 8192 * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let early = grown(&mut core, owner, 1, 0);
    assert!(!core.wants_short_range(), "one range does while there is little");
    grown(&mut core, owner, (16 << 20) / UNIT as u32, 10);
    assert!(core.wants_short_range());
    let short = START + 9000 * PAGE_BYTES;
    core.add_short_range(short, RANGE_PAGES * PAGE, PAGE);
    core.verify();
    assert_eq!(core.allocate(owner, 1, 1, &[]), None, "what is free lies among the long blocks");
    assert_eq!(grown(&mut core, owner, 1, 20), short);
    assert_eq!(core.allocate(owner, 256, 1, &[]), None, "the page of the short ones has no room");
    let long = grown(&mut core, owner, 257, 30);
    assert!(long > early && long < short);
    assert!(core.allocate_elsewhere(owner, 1, 1, &[]).is_some_and(|taken| taken.address < short));
    core.verify();
    core.close_short_range();
    assert!(core.allocate(owner, 1, 1, &[]).is_some_and(|taken| taken.address < short));
    core.verify();
}

/// A free block among the short ones may be the longest of all, and still no long request is served from it.
#[test]
fn the_largest_block_is_that_of_either_range_and_the_largest_request_that_of_its_own() {
    let mut core = Core::new();
    core.add_range(START, 8192 * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    grown(&mut core, owner, (16 << 20) / UNIT as u32, 10);
    core.add_short_range(START + 9000 * PAGE_BYTES, 128 * PAGE, PAGE);
    let (number, short) = (1000, 256);
    let blocks = [0, 1, 2, 3].map(|at| grown(&mut core, owner, short, number + u64::from(at * short)));
    for address in blocks {
        assert!(core.release(address, owner, Epoch(2)).is_ok());
    }
    assert_eq!(core.largest_free(), 4 * short, "the free blocks of the range of short ones are one");
    assert_eq!(core.largest(owner, &[]), short, "the longest request that this range serves");
    assert!(core.allocate(owner, short + 1, 1, &[]).is_none());
    assert!(core.allocate(owner, short, 1, &[]).is_some());
    core.verify();
}

/// With many holes without memory a search looks at a bounded number of nodes.
#[test]
fn a_search_for_a_site_is_bounded_for_any_number_of_holes() {
    let visits = |holes: u32| {
        let mut core = Core::new();
        core.add_range(START, (4 * holes + 100) * PAGE, PAGE);
        let owner = core.enter(StreamId::new(0, 1));
        let all: Vec<u64> = (0..2 * holes).map(|at| grown(&mut core, owner, PAGE, at.into())).collect();
        for &address in all.iter().step_by(2) {
            core.release(address, owner, Epoch(2)).expect("it is out");
        }
        core.disown(owner, Epoch(2));
        for extent in core.take_pages(u64::MAX, u64::MAX) {
            core.finish_unmapping(extent);
        }
        core.nodes.take_visits();
        core.site(owner, 2 * PAGE, 1, &[]).expect("there is room behind");
        core.nodes.take_visits()
    };
    let (few, many) = (visits(400), visits(20_000));
    assert!(many <= few + few / 4, "{few} visits with 400 holes, {many} with 20,000");
}

/// Pages with a block of one unit in every second one, and the rest free; the blocks are `owners` streams'.
fn holey(pages: u32, owners: u32) -> (Core, Vec<Owner>, Vec<u64>) {
    let mut core = Core::new();
    core.add_range(START, (4 * pages + 100) * PAGE, PAGE);
    let owners: Vec<Owner> = (1..=owners).map(|stream| core.enter(StreamId::new(0, stream))).collect();
    let of = |at: u32| owners[at as usize % owners.len()];
    let all: Vec<u64> = (0..pages).map(|at| grown(&mut core, of(at / 2), PAGE, at.into())).collect();
    for (at, &address) in (0..pages).zip(&all).filter(|(at, _)| at % 2 == 0) {
        core.release(address, of(at / 2), Epoch(2)).expect("it is out");
    }
    (core, owners, all)
}

fn disown_all(core: &mut Core, owners: &[Owner]) {
    owners.iter().for_each(|&owner| core.disown(owner, Epoch(9)));
}

/// Twice as many pages cost twice as many visits.
#[test]
fn a_trim_of_100_000_pages_visits_each_a_few_times() {
    let (mut core, owners, _) = holey(200_000, 3);
    disown_all(&mut core, &owners);
    core.nodes.take_visits();
    let taken = core.take_pages(u64::MAX, u64::MAX);
    assert_eq!(taken.len(), 100_000);
    taken.into_iter().for_each(|extent| core.finish_unmapping(extent));
    let visits = core.nodes.take_visits();
    assert!(visits <= 20 * 100_000, "{visits} visits");
    assert_eq!(core.extents(), 100_000);
    core.verify();
}

/// Free blocks that are longer than a page, and have no whole one, because a page of theirs is longer still.
#[test]
fn blocks_without_a_whole_page_are_looked_at_once() {
    const BLOCKS: u32 = 10_000;
    let mut core = Core::new();
    core.add_range(START, 12 * BLOCKS * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let mut holes = Vec::new();
    for at in 0..BLOCKS {
        // One page four times as long as the shortest, of which one unit stays out.
        let long = grown(&mut core, owner, 4 * PAGE, u64::from(2 * at));
        grown(&mut core, owner, PAGE, u64::from(2 * at + 1));
        core.release(long, owner, Epoch(2)).expect("it is out");
        holes.push(core.allocate(owner, 4 * PAGE - 1, 1, &[]).expect("there is room").address);
        core.allocate(owner, 1, 1, &[]).expect("there is room");
    }
    // As many blocks of one page, which are shorter.
    let short: Vec<u64> =
        (0..2 * BLOCKS).map(|at| grown(&mut core, owner, PAGE, u64::from(2 * BLOCKS + at))).collect();
    for &address in short.iter().step_by(2).chain(&holes) {
        core.release(address, owner, Epoch(2)).expect("it is out");
    }
    disown_all(&mut core, &[owner]);
    core.nodes.take_visits();
    let taken = core.take_pages(u64::MAX, u64::MAX);
    assert_eq!(taken.len(), BLOCKS as usize);
    taken.into_iter().for_each(|extent| core.finish_unmapping(extent));
    let visits = core.nodes.take_visits();
    assert!(visits <= 20 * 2 * BLOCKS as usize, "{visits} visits");
    core.verify();
}

/// Beside holes without memory, pages, and streams.
#[test]
fn a_growth_and_a_free_visit_a_bounded_number_of_nodes() {
    let visits = |pages: u32, streams: u32, absent: bool| {
        let (mut core, owners, _) = holey(pages, streams);
        if absent {
            disown_all(&mut core, &owners);
            for extent in core.take_pages(u64::MAX, u64::MAX) {
                core.finish_unmapping(extent);
            }
        }
        core.nodes.take_visits();
        let address = grown(&mut core, owners[0], 3 * PAGE, u64::from(pages));
        let growth = core.nodes.take_visits();
        core.release(address, owners[0], Epoch(3)).expect("it is out");
        (growth, core.nodes.take_visits())
    };
    for absent in [false, true] {
        let few = visits(1_000, 10, absent);
        for (pages, streams) in [(20_000, 10), (20_000, 1_000)] {
            let many = visits(pages, streams, absent);
            let words = format!(
                "{few:?} visits beside 500 holes, {many:?} beside {pages} pages of {streams} streams"
            );
            assert!(many.0 <= few.0 + few.0 / 4 && many.1 <= 16, "{words}");
        }
    }
}

/// A pool of six pages, of which every other one is free and nobody's, each a page of its own. Returns the blocks that are out.
fn checkered(core: &mut Core) -> Vec<u64> {
    core.add_range(START, RANGE_PAGES * PAGE, PAGE);
    let owner = core.enter(StreamId::new(0, 1));
    let blocks: Vec<u64> = (0..6).map(|page| grown(core, owner, PAGE, page)).collect();
    for address in blocks.iter().step_by(2) {
        core.release(*address, owner, Epoch(2)).expect("it is out");
    }
    core.disown(owner, Epoch(2));
    blocks.into_iter().skip(1).step_by(2).collect()
}

/// The three free pages move to where a block of three pages fits.
fn moved(core: &mut Core) -> (u64, Vec<Extent>) {
    let owner = core.enter(StreamId::new(0, 1));
    let site = core.site(owner, 3 * PAGE, 1, &[]).expect("the range is long enough");
    let growing = core.begin_growth(site, 0);
    let returns = core.take_returns(&growing.gaps, growing.gap_units());
    let old =
        core.take_pages(growing.gap_units() - 3 * u64::from(PAGE) * u64::from(!returns.is_empty()), u64::MAX);
    assert!(core.take_stale(&growing.gaps, 0).is_empty());
    let mut mapped: Vec<Extent> = returns.iter().map(|of| of.to).collect();
    for of in &returns {
        core.leave_alias(of.from, of.to.address);
    }
    let mut at = growing.gaps[0].0;
    for extent in old {
        mapped.push(Extent { address: at, ..extent });
        core.leave_alias(extent, at);
        at += PAGE_BYTES;
    }
    let address = core.finish_growth(&growing, &mapped, owner, Epoch(3));
    core.verify();
    (address, mapped)
}

#[test]
fn a_page_that_has_moved_returns_to_where_it_was_and_back() {
    let mut core = Core::new();
    let kept = checkered(&mut core);
    let owner = core.enter(StreamId::new(0, 1));
    let (long, pages) = moved(&mut core);
    assert_eq!((core.aliases(), core.reserved_units()), (3, u64::from(6 * PAGE)));
    // The long block is free; a short one grows where a page was.
    core.release(long, owner, Epoch(4)).expect("it is out");
    core.disown(owner, Epoch(4));
    let gaps = [(START, PAGE)];
    let first_page = |core: &Core| {
        let first = core.ranges.absent[&START];
        Site { address: START, units: PAGE, missing: PAGE.into(), first }
    };
    let growing = core.begin_growth(first_page(&core), 0);
    assert_eq!(growing.gaps.as_slice(), gaps);
    let returns = core.take_returns(&growing.gaps, growing.gap_units());
    let [only] = returns[..] else { panic!("{returns:?}") };
    assert!(pages.contains(&only.from) && only.to.address == START && only.from.number == only.to.number);
    // It is given up: the page is free where it is, and the alias is there.
    core.abandon_growth(&growing, &[], &[]);
    core.abandon_return(only);
    core.verify();
    assert_eq!(core.aliases(), 3);
    // Of a page that is in use none returns.
    let again = core.allocate(owner, 3 * PAGE, 1, &[]).expect("it is free").address;
    assert_eq!(again, long);
    assert_eq!(core.take_returns(&gaps, u64::MAX), []);
    core.release(again, owner, Epoch(5)).expect("it is out");
    core.disown(owner, Epoch(5));
    let growing = core.begin_growth(first_page(&core), 0);
    let returns = core.take_returns(&growing.gaps, growing.gap_units());
    core.leave_alias(returns[0].from, returns[0].to.address);
    let short = core.finish_growth(&growing, &[returns[0].to], owner, Epoch(5));
    core.verify();
    assert_eq!((short, core.aliases(), core.reserved_units()), (START, 3, u64::from(6 * PAGE)));
    for address in kept.into_iter().chain([short]) {
        core.release(address, owner, Epoch(6)).expect("it is out");
    }
    core.verify();
}

#[test]
fn an_alias_that_cannot_be_unmapped_holds_its_addresses_and_its_page() {
    let mut core = Core::new();
    let _kept = checkered(&mut core);
    let owner = core.enter(StreamId::new(0, 1));
    let (long, pages) = moved(&mut core);
    let stale = core.take_stale(&[], 1);
    let [stuck] = <[Stale; 1]>::try_from(stale).expect("the oldest one");
    let alias = stuck.extent;
    core.settle_stale(stuck, false);
    core.verify();
    assert_eq!(core.aliases(), 2);
    // Nobody gets its addresses.
    let taken: Vec<u64> = (100..103).map(|number| grown(&mut core, owner, PAGE, number)).collect();
    assert!(!taken.contains(&alias.address), "{taken:x?}");
    core.verify();
    // With its page it is tried again.
    core.release(long, owner, Epoch(4)).expect("it is out");
    core.disown(owner, Epoch(4));
    let page = *pages.iter().find(|page| page.number == alias.number).expect("it has moved");
    let (mut tried, _) = core.take_aliases_of(&[page]);
    assert_eq!(core.take_aliases_of(&[page]).1, [page.number], "it is being tried");
    assert_eq!(tried.iter().map(|stale| stale.extent).collect::<Vec<_>>(), [alias]);
    core.settle_stale(tried.remove(0), true);
    core.verify();
    assert_eq!(grown(&mut core, owner, PAGE, 110), alias.address);
    core.verify();
}
