//! Aliases: where pages that have moved on are mapped still.
//!
//! A page that moves keeps its old addresses as an *alias*, and gets new ones beside them. A request that needs memory there later, while
//! the page is free, moves it back with no driver call. So a program that repeats itself moves the same pages between the same places for
//! the price of the book.
//!
//! An alias lies on absent addresses alone. Before anything else is mapped at one of them it is unmapped as a whole, and until that is
//! done all of its addresses are *held*: no search finds them.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::bins::{End, Zone};
use super::node::Id;
use super::range::Extent;
use super::{Core, Owner, UNIT};

/// How many free blocks are looked at for pages that can return: some 10 us, less than one call that maps a page. The pools of the traces have
/// a few hundred.
const LOOKS: usize = 1024;

/// A page that moves to one of its aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Return {
    pub(crate) from: Extent,
    pub(crate) to: Extent,
}

/// An alias that is to be unmapped.
#[derive(Debug)]
#[must_use = "its addresses are held until it is settled"]
pub(crate) struct Stale {
    pub(crate) extent: Extent,
    /// The addresses of the nodes that are held: those of the alias that lie in no gap of the caller.
    held: SmallVec<[u64; 2]>,
}

#[derive(Clone, Copy, Debug)]
struct Alias {
    units: u32,
    number: u64,
    /// How many aliases were made before it; `None` if it could not be unmapped. Its addresses are held then, and it is unmapped before its
    /// page is released, or with the suballocator.
    age: Option<u64>,
}

/// The addresses of a page that has aliases.
#[derive(Clone, Debug, Default)]
struct PagePlaces {
    /// Where it was mapped last.
    newest: u64,
    aliases: SmallVec<[u64; 4]>,
}

/// All aliases.
#[derive(Debug, Default)]
pub(super) struct Aliases {
    by_address: BTreeMap<u64, Alias>,
    by_age: BTreeMap<u64, u64>,
    /// By the number of the page.
    of_page: BTreeMap<u64, PagePlaces>,
    /// How many aliases of each page are being unmapped: they are in no table, and the page keeps its number until they are settled.
    in_flight: BTreeMap<u64, usize>,
    made: u64,
}

impl Aliases {
    /// A page was mapped there.
    pub(super) fn note_mapped(&mut self, extent: Extent) {
        if let Some(places) = self.of_page.get_mut(&extent.number) {
            places.newest = extent.address;
        }
    }

    /// The page was mapped at `newest` since.
    fn insert(&mut self, extent: Extent, newest: u64) {
        let age = self.made;
        self.made += 1;
        self.by_age.insert(age, extent.address);
        self.enter(extent, Some(age)).newest = newest;
    }

    fn enter(&mut self, extent: Extent, age: Option<u64>) -> &mut PagePlaces {
        let Extent { address, units, number } = extent;
        self.by_address.insert(address, Alias { units, number, age });
        let places = self.of_page.entry(number).or_default();
        places.aliases.push(address);
        places
    }

    fn remove(&mut self, address: u64) -> Option<Extent> {
        let Alias { units, number, age } = self.by_address.remove(&address)?;
        age.map(|age| self.by_age.remove(&age));
        if let Some(places) = self.of_page.get_mut(&number) {
            places.aliases.retain(|alias| *alias != address);
            if places.aliases.is_empty() {
                self.of_page.remove(&number);
            }
        }
        Some(Extent { address, units, number })
    }

    /// The aliases with a part between these addresses, in their order.
    fn touching(&self, from: u64, to: u64) -> impl Iterator<Item = Extent> + '_ {
        let around = self.by_address.range(..from).next_back();
        let all = around.into_iter().chain(self.by_address.range(from..to));
        all.map(|(&address, &Alias { units, number, .. })| Extent { address, units, number })
            .filter(move |extent| extent.end() > from)
    }

    /// An estimate, as for [ranges](super::range::Ranges::bytes).
    pub(super) fn bytes(&self) -> usize {
        let entry = size_of::<(u64, Alias)>() + size_of::<(u64, u64)>();
        2 * (self.by_address.len() * entry + self.of_page.len() * size_of::<(u64, PagePlaces)>())
    }

    /// All, with whether their addresses are held because they could not be unmapped.
    #[cfg(all(test, not(loom)))]
    pub(super) fn all(&self) -> impl Iterator<Item = (Extent, bool)> + '_ {
        self.touching(0, u64::MAX).map(|extent| (extent, self.by_address[&extent.address].age.is_none()))
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn verify(&self) {
        let by_age = self.by_address.iter().filter_map(|(address, alias)| Some((alias.age?, *address)));
        assert_eq!(by_age.collect::<BTreeMap<_, _>>(), self.by_age, "aliases by age");
        let mut of_page: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (address, alias) in &self.by_address {
            of_page.entry(alias.number).or_default().push(*address);
        }
        let mut known: BTreeMap<u64, Vec<u64>> =
            self.of_page.iter().map(|(number, places)| (*number, places.aliases.to_vec())).collect();
        known.values_mut().for_each(|aliases| aliases.sort_unstable());
        assert_eq!(known, of_page, "aliases of each page");
    }
}

impl Core {
    /// The number of aliases, without those that could not be unmapped.
    pub(crate) fn aliases(&self) -> usize {
        self.ranges.aliases.by_age.len()
    }

    /// Takes pages that are free, as [`take_pages`](Self::take_pages) does, and have an alias wholly within one of these gaps: of `least`
    /// units at least, if there are so many. O(aliases within the gaps): only [`LOOKS`] free blocks are looked at.
    pub(crate) fn take_returns(&mut self, gaps: &[(u64, u32)], least: u64) -> Vec<Return> {
        let mut wanted: Vec<Return> = Vec::new();
        if least == 0 {
            return wanted;
        }
        for &(start, units) in gaps {
            let end = start + u64::from(units) * UNIT;
            for to in self.ranges.aliases.touching(start, end) {
                let is_within = start <= to.address && to.end() <= end;
                let newest = self.ranges.aliases.of_page.get(&to.number).map(|places| places.newest);
                let from = newest.and_then(|address| self.ranges.extent_at(address)).filter(|_| is_within);
                let is_it = |from: &Extent| (from.number, from.units) == (to.number, to.units);
                wanted.extend(from.filter(is_it).map(|from| Return { from, to }));
            }
        }
        if wanted.is_empty() {
            return wanted;
        }
        wanted.sort_unstable_by_key(|of| of.from.address);
        // A page with two aliases in the gaps returns to one of them.
        wanted.dedup_by_key(|of| of.from.address);
        let found = self.free_among(&wanted, least);
        let mut taken = Vec::new();
        let mut units = 0;
        for (id, returns) in found {
            // The last one first: what lies before it keeps the node.
            for of in returns.into_iter().rev() {
                if units >= least {
                    return taken;
                }
                units += u64::from(of.from.units);
                self.take_extents(id, &[of.from]);
                self.ranges.aliases.remove(of.to.address);
                taken.push(of);
            }
        }
        taken
    }

    /// Those of which the page lies in an unowned free block, with the block; of `least` units, if there are so many. `wanted` is in the order
    /// of the pages.
    fn free_among(&self, wanted: &[Return], least: u64) -> Vec<(Id, Vec<Return>)> {
        let (mut left, mut units) = (wanted.len(), 0);
        let mut found = Vec::new();
        for id in self.longer_than_a_page().take(LOOKS) {
            let node = &self.nodes[id];
            let first = wanted.partition_point(|of| of.from.address < node.address);
            let within = wanted[first..].iter().take_while(|of| of.from.end() <= node.end());
            let returns: Vec<Return> = within.copied().collect();
            if !returns.is_empty() {
                left -= returns.len();
                units += returns.iter().map(|of| u64::from(of.from.units)).sum::<u64>();
                found.push((id, returns));
            }
            if left == 0 || units >= least {
                break;
            }
        }
        found
    }

    /// The page stays where it was: see [`take_returns`](Self::take_returns). The addresses of its alias are absent.
    pub(crate) fn abandon_return(&mut self, of: Return) {
        self.abandon_unmapping(of.from);
        self.ranges.aliases.insert(of.to, of.from.address);
    }

    /// The page was mapped at `newest` meanwhile, and is mapped here still: see [`take_pages`](Self::take_pages).
    pub(crate) fn leave_alias(&mut self, extent: Extent, newest: u64) {
        self.finish_unmapping(extent);
        self.ranges.aliases.insert(extent, newest);
    }

    /// Takes the aliases with a part in one of these gaps, whose nodes no search finds already, and the `oldest` ones of all others.
    pub(crate) fn take_stale(&mut self, gaps: &[(u64, u32)], oldest: usize) -> Vec<Stale> {
        let mut stale: Vec<Extent> = Vec::new();
        for &(start, units) in gaps {
            stale.extend(self.ranges.aliases.touching(start, start + u64::from(units) * UNIT));
        }
        // One may touch two gaps.
        stale.sort_unstable_by_key(|extent| extent.address);
        stale.dedup();
        for extent in &stale {
            self.ranges.aliases.remove(extent.address);
        }
        for _ in 0..oldest {
            let Some((_, &address)) = self.ranges.aliases.by_age.first_key_value() else { break };
            stale.extend(self.ranges.aliases.remove(address));
        }
        stale.into_iter().map(|extent| self.hold(extent, gaps)).collect()
    }

    /// Takes the aliases of these pages, which nobody else moves, also those that could not be unmapped before. Leaves out pages of which
    /// another alias is being unmapped, and returns their numbers.
    pub(crate) fn take_aliases_of(&mut self, pages: &[Extent]) -> (Vec<Stale>, Vec<u64>) {
        let (mut stale, mut busy) = (Vec::new(), Vec::new());
        for page in pages {
            if self.ranges.aliases.in_flight.contains_key(&page.number) {
                busy.push(page.number);
                continue;
            }
            let places = self.ranges.aliases.of_page.get(&page.number);
            for address in places.map(|places| places.aliases.clone()).unwrap_or_default() {
                let alias = self.ranges.aliases.remove(address);
                stale.extend(alias.map(|extent| self.hold(extent, &[])));
            }
        }
        (stale, busy)
    }

    /// Takes all aliases, also those that could not be unmapped before, when the suballocator ends.
    pub(crate) fn drain_aliases(&mut self) -> Vec<Extent> {
        core::mem::take(&mut self.ranges.aliases).touching(0, u64::MAX).collect()
    }

    /// Holds the addresses of an alias that lie in none of these gaps.
    fn hold(&mut self, extent: Extent, gaps: &[(u64, u32)]) -> Stale {
        *self.ranges.aliases.in_flight.entry(extent.number).or_default() += 1;
        let before = self.ranges.moving.range(extent.address..extent.end()).map(|(&address, _)| address);
        // Of one that could not be unmapped.
        let mut held: SmallVec<[u64; 2]> = if gaps.is_empty() { before.collect() } else { SmallVec::new() };
        if !held.is_empty() {
            return Stale { extent, held };
        }
        let mut at = extent.address;
        while at < extent.end() {
            let gap =
                gaps.iter().find(|&&(start, units)| start <= at && at < start + u64::from(units) * UNIT);
            if let Some(&(start, units)) = gap {
                at = start + u64::from(units) * UNIT;
                continue;
            }
            let next = gaps.iter().map(|gap| gap.0).filter(|start| *start > at).min();
            let Some((id, end)) = self.absent_at(at, next.unwrap_or(u64::MAX).min(extent.end())) else {
                debug_assert!(false, "an alias at {at:#x} where memory is");
                break;
            };
            self.lose(id);
            held.push(at);
            at = end;
        }
        Stale { extent, held }
    }

    /// Cuts the part between two addresses out of the absent node that the first one lies in. Its node is in no table then. Returns the
    /// end of the part, which is the node's where that ends before.
    fn absent_at(&mut self, from: u64, to: u64) -> Option<(Id, u64)> {
        let (_, &found) = self.ranges.absent.range(..=from).next_back()?;
        let mut id = found;
        if self.nodes[id].end() <= from {
            return None;
        }
        self.detach(id);
        let front = ((from - self.nodes[id].address) / UNIT) as u32;
        if front > 0 {
            let behind = self.nodes.cut(id, front);
            self.attach(id);
            id = behind;
        }
        let end = self.nodes[id].end().min(to);
        if self.nodes[id].end() > end {
            let behind = self.nodes.cut(id, ((end - from) / UNIT) as u32);
            self.attach(behind);
        }
        Some((id, end))
    }

    /// The alias is unmapped: what is held of it is absent again. Or it could not be, and its addresses are held until a later attempt: those
    /// in a gap are for the caller to [abandon](Self::abandon_growth) as lost.
    ///
    /// The caller has abandoned or finished its growth before it settles one that could not be unmapped.
    pub(crate) fn settle_stale(&mut self, stale: Stale, is_unmapped: bool) {
        let in_flight = &mut self.ranges.aliases.in_flight;
        if let Some(count) = in_flight.get_mut(&stale.extent.number) {
            *count -= 1;
            if *count == 0 {
                in_flight.remove(&stale.extent.number);
            }
        }
        if !is_unmapped {
            self.ranges.aliases.enter(stale.extent, None);
            return;
        }
        for address in stale.held {
            if let Some(id) = self.ranges.moving.remove(&address) {
                self.join_absent(id);
            }
        }
    }

    /// Unowned free blocks of about a page at least, the shortest ones first; of those of similar length the one that was free the longest.
    pub(super) fn longer_than_a_page(&self) -> impl Iterator<Item = Id> + '_ {
        let bins = &self.owners.place(Owner::UNOWNED).bins;
        let page = self.ranges.page_units;
        let zones = [Zone::SECOND, Zone::FIRST].into_iter();
        let of_pages =
            zones.filter_map(move |zone| bins.at_least(zone.bin(page))).flat_map(|first| bins.up(first));
        of_pages.flat_map(move |bin| bins.list(&self.nodes, bin, End::Back))
    }
}
