//! `Bins`: the free blocks of one owner, by size.

use super::node::{Id, NONE};
use super::nodes::Nodes;

/// The bins for each doubling of the size: a block is at most 1/32 larger than the smallest of its bin.
const BINS: usize = 32;
/// One level for sizes below 32 units, then one for each doubling up to 2^32.
const ZONE_LEVELS: usize = 28;
/// Those of both zones.
const LEVELS: usize = 2 * ZONE_LEVELS;

/// Where a block lies. A search stays within a zone, so that short blocks do not lie among the long ones.
///
/// Segments are of the first zone. Over pages, the first zone has the short blocks, and the second one the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Zone(u16);

impl Zone {
    pub(super) const FIRST: Self = Self(0);
    pub(super) const SECOND: Self = Self((ZONE_LEVELS * BINS) as u16);

    /// The other zone.
    pub(super) fn other(self) -> Self {
        if self == Self::FIRST { Self::SECOND } else { Self::FIRST }
    }

    /// The bin of blocks of that size here.
    #[inline]
    pub(super) fn bin(self, units: u32) -> Bin {
        Bin(Bin::of(units).0 + self.0)
    }
}

/// Blocks of similar size; up to 63 units, of exactly one size. A larger bin has larger blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Bin(u16);

impl Bin {
    pub(super) const LARGEST: Self = Self((LEVELS * BINS - 1) as u16);

    /// The bin of blocks of that size in the first zone.
    #[inline]
    pub(super) fn of(units: u32) -> Self {
        let level = (units | (BINS as u32 - 1)).ilog2() - (BINS.ilog2() - 1);
        let at = (units >> level.saturating_sub(1)) & (BINS as u32 - 1);
        Self((level * BINS as u32 + at) as u16)
    }

    /// The next larger one of the zone.
    #[inline]
    pub(super) fn larger(self) -> Option<Self> {
        let next = self.0 + 1;
        if usize::from(next).is_multiple_of(ZONE_LEVELS * BINS) { None } else { Some(Self(next)) }
    }

    /// The next one, of whatever zone.
    #[inline]
    pub(super) fn next(self) -> Option<Self> {
        if self < Self::LARGEST { Some(Self(self.0 + 1)) } else { None }
    }

    /// The next smaller one.
    #[inline]
    pub(super) fn smaller(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }

    /// Returns `true` if all blocks of the bin are of one size.
    #[inline]
    pub(super) fn is_exact(self) -> bool {
        self.level() % ZONE_LEVELS < 2
    }

    /// Returns `true` if it is a bin of that zone.
    pub(super) fn is_of(self, zone: Zone) -> bool {
        (self.level() >= ZONE_LEVELS) == (zone != Zone::FIRST)
    }

    #[inline]
    fn level(self) -> usize {
        usize::from(self.0) / BINS
    }

    #[inline]
    fn at(self) -> usize {
        usize::from(self.0) % BINS
    }
}

/// Which end of a bin: roughly, later epochs are at the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Front,
    Back,
}

/// The neighbours of a block in its bin, or [`NONE`].
pub(super) type Links = (Id, Id);

#[derive(Clone, Copy, Debug)]
struct Ends {
    front: Id,
    back: Id,
}

/// The free blocks of one owner, by size: a two-level segregated fit.
///
/// Bins are lists. A block enters its bin at the front if it is as new as any block of its owner, else at the back. The
/// owner searches from the front, so it reuses its newest blocks. Other streams search from the back, so they find
/// first the blocks that they have most likely waited for.
#[derive(Debug, Default)]
pub(super) struct Bins {
    /// A bit for each level that has a block.
    levels: u64,
    first: ZoneBins,
    /// Made when it gets its first block: only pools over pages have any.
    second: Option<Box<ZoneBins>>,
}

/// The bins of one zone.
#[derive(Debug, Default)]
struct ZoneBins {
    /// A bit for each bin of a level that has a block.
    bins: [u32; ZONE_LEVELS],
    /// The lists of a level, made when it gets its first block.
    ends: [Option<Box<[Ends; BINS]>>; ZONE_LEVELS],
}

impl Bins {
    /// A bit for each bin of a level that has a block.
    #[inline]
    fn used_of(&self, level: usize) -> u32 {
        match &self.second {
            Some(second) if level >= ZONE_LEVELS => second.bins[level - ZONE_LEVELS],
            _ if level >= ZONE_LEVELS => 0,
            _ => self.first.bins[level],
        }
    }

    /// The lists of a level, if it ever had a block.
    #[inline]
    fn ends_of(&self, level: usize) -> Option<&[Ends; BINS]> {
        match &self.second {
            Some(second) if level >= ZONE_LEVELS => second.ends[level - ZONE_LEVELS].as_deref(),
            _ if level >= ZONE_LEVELS => None,
            _ => self.first.ends[level].as_deref(),
        }
    }

    /// Both, to be changed.
    #[inline]
    fn level_mut(&mut self, level: usize) -> (&mut u32, &mut Option<Box<[Ends; BINS]>>) {
        if level < ZONE_LEVELS {
            return (&mut self.first.bins[level], &mut self.first.ends[level]);
        }
        let second = self.second.get_or_insert_default();
        (&mut second.bins[level - ZONE_LEVELS], &mut second.ends[level - ZONE_LEVELS])
    }

    /// The first block at that end of a bin.
    #[inline]
    pub(super) fn first(&self, bin: Bin, end: End) -> Id {
        match (self.ends_of(bin.level()), end) {
            (Some(ends), End::Front) => ends[bin.at()].front,
            (Some(ends), End::Back) => ends[bin.at()].back,
            (None, _) => NONE,
        }
    }

    /// The smallest bin of the zone that has a block, from `bin` on.
    #[inline]
    pub(super) fn at_least(&self, bin: Bin) -> Option<Bin> {
        self.next_used(bin).filter(|used| bin.level() >= ZONE_LEVELS || used.level() < ZONE_LEVELS)
    }

    /// The same in all zones.
    #[inline]
    pub(super) fn next_used(&self, bin: Bin) -> Option<Bin> {
        let here = self.used_of(bin.level()) & (!0 << bin.at());
        if here != 0 {
            return Some(Bin((bin.level() * BINS) as u16 + here.trailing_zeros() as u16));
        }
        let above = self.levels & (!0 << (bin.level() + 1));
        if above == 0 {
            return None;
        }
        let level = above.trailing_zeros() as usize;
        Some(Bin((level * BINS) as u16 + self.used_of(level).trailing_zeros() as u16))
    }

    /// The largest bin that has a block, up to `bin`.
    #[inline]
    pub(super) fn at_most(&self, bin: Bin) -> Option<Bin> {
        let here = self.used_of(bin.level()) & (!0 >> (BINS - 1 - bin.at()));
        if here != 0 {
            return Some(Bin((bin.level() * BINS) as u16 + here.ilog2() as u16));
        }
        let below = self.levels & ((1 << bin.level()) - 1);
        if below == 0 {
            return None;
        }
        let level = below.ilog2() as usize;
        Some(Bin((level * BINS) as u16 + self.used_of(level).ilog2() as u16))
    }

    /// A bin that has a block, and the larger ones of its zone that have one, the smallest first.
    #[inline]
    pub(super) fn up(&self, first: Bin) -> impl Iterator<Item = Bin> + '_ {
        core::iter::successors(Some(first), |bin| self.at_least(bin.larger()?))
    }

    /// The bins of a zone that have a block, the largest first.
    pub(super) fn down(&self, zone: Zone) -> impl Iterator<Item = Bin> + '_ {
        let down =
            core::iter::successors(self.at_most(zone.bin(u32::MAX)), |bin| self.at_most(bin.smaller()?));
        down.take_while(move |bin| bin.is_of(zone))
    }

    /// The bins that have a block, the smallest first.
    pub(super) fn used(&self) -> impl Iterator<Item = Bin> + '_ {
        core::iter::successors(self.next_used(Bin(0)), |bin| self.next_used(bin.next()?))
    }

    /// All blocks, the smallest bin first.
    pub(super) fn iter<'a>(&'a self, nodes: &'a Nodes) -> impl Iterator<Item = Id> + 'a {
        self.used().flat_map(|bin| self.list(nodes, bin, End::Front))
    }

    /// The blocks of one bin.
    #[inline]
    pub(super) fn list<'a>(
        &self,
        nodes: &'a Nodes,
        bin: Bin,
        end: End,
    ) -> impl Iterator<Item = Id> + use<'a> {
        let step = move |id: Id| match end {
            End::Front => nodes[id].next,
            End::Back => nodes[id].prev,
        };
        core::iter::successors(some(self.first(bin, end)), move |&id| some(step(id)))
    }

    /// Adds a block at an end of the bin of its size. Returns its new links.
    #[inline]
    #[must_use]
    pub(super) fn push(&mut self, nodes: &mut Nodes, bin: Bin, id: Id, end: End) -> Links {
        let (level, at) = (bin.level(), bin.at());
        let (used, all) = self.level_mut(level);
        let all = all.get_or_insert_with(|| Box::new([Ends { front: NONE, back: NONE }; BINS]));
        let ends = &mut all[at];
        let Ends { front, back } = *ends;
        if front == NONE {
            *ends = Ends { front: id, back: id };
            *used |= 1 << at;
            self.levels |= 1 << level;
            (NONE, NONE)
        } else if end == End::Front {
            ends.front = id;
            nodes[front].prev = id;
            (NONE, front)
        } else {
            ends.back = id;
            nodes[back].next = id;
            (back, NONE)
        }
    }

    /// Removes a block with these links from its bin.
    #[inline]
    pub(super) fn remove(&mut self, nodes: &mut Nodes, bin: Bin, (prev, next): Links) {
        nodes[prev].next = next;
        nodes[next].prev = prev;
        if prev != NONE && next != NONE {
            return;
        }
        let (level, at) = (bin.level(), bin.at());
        let (used, all) = self.level_mut(level);
        let Some(all) = all else { return };
        let ends = &mut all[at];
        if prev == NONE {
            ends.front = next;
        }
        if next == NONE {
            ends.back = prev;
        }
        if prev == next {
            *used &= !(1 << at);
            if *used == 0 {
                self.levels &= !(1 << level);
            }
        }
    }

    /// Puts another block in the place of one with these links. Returns its new links.
    #[inline]
    #[must_use]
    pub(super) fn replace(&mut self, nodes: &mut Nodes, bin: Bin, (prev, next): Links, new: Id) -> Links {
        nodes[prev].next = new;
        nodes[next].prev = new;
        if (prev == NONE || next == NONE)
            && let (_, Some(all)) = self.level_mut(bin.level())
        {
            let ends = &mut all[bin.at()];
            if prev == NONE {
                ends.front = new;
            }
            if next == NONE {
                ends.back = new;
            }
        }
        (prev, next)
    }

    /// Panics unless the bitmaps say which bins have a block.
    #[cfg(all(test, not(loom)))]
    pub(super) fn verify(&self) {
        for level in 0..LEVELS {
            assert_eq!(self.levels >> level & 1 != 0, self.used_of(level) != 0, "level {level}");
            assert!(self.used_of(level) == 0 || self.ends_of(level).is_some(), "level {level}");
            for at in (0..BINS).filter(|_| self.ends_of(level).is_some()) {
                let bin = Bin((level * BINS + at) as u16);
                assert_eq!(
                    self.used_of(level) >> at & 1 != 0,
                    self.first(bin, End::Front) != NONE,
                    "{bin:?}"
                );
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let lists = |zone: &ZoneBins| zone.ends.iter().flatten().count() * size_of::<[Ends; BINS]>();
        let second = self.second.as_ref().map_or(0, |second| size_of::<ZoneBins>() + lists(second));
        lists(&self.first) + second
    }
}

#[inline]
fn some(id: Id) -> Option<Id> {
    if id == NONE { None } else { Some(id) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::node::BlockNode;
    use super::*;

    #[test]
    fn a_bin_is_at_most_a_32nd_wide_and_larger_blocks_are_in_larger_bins() {
        let mut sizes: Vec<u32> =
            (0..32).flat_map(|log| [1 << log, (1 << log) + 1, u32::MAX >> log]).collect();
        sizes.extend((1..5_000).chain(1_000_000..1_001_000));
        sizes.sort_unstable();
        for pair in sizes.windows(2) {
            let (small, large) = (Bin::of(pair[0]), Bin::of(pair[1]));
            assert!(small <= large, "{pair:?}");
            let near = u64::from(pair[1]) * 32 < u64::from(pair[0]) * 33;
            assert!(near || pair[0] == pair[1] || small < large, "{pair:?} in {small:?}");
            assert!(!small.is_exact() || pair[0] == pair[1] || small < large, "{pair:?} in {small:?}");
        }
        assert_eq!((Bin::of(63).is_exact(), Bin::of(64).is_exact()), (true, false));
        assert_eq!((Zone::SECOND.bin(u32::MAX), Bin::LARGEST.larger()), (Bin::LARGEST, None));
        assert_eq!(Bin(0).smaller(), None);
    }

    #[test]
    fn the_next_bin_with_a_block_is_found_from_both_sides() {
        let (mut nodes, mut bins) = (Nodes::default(), Bins::default());
        let sizes = [1, 31, 32, 63, 64, 1000, 1 << 20, u32::MAX];
        let ids = sizes.map(|units| {
            let id = nodes.make();
            nodes[id] = BlockNode { units, ..BlockNode::VACANT };
            (nodes[id].prev, nodes[id].next) = bins.push(&mut nodes, Bin::of(units), id, End::Front);
            id
        });
        bins.verify();
        assert_eq!(bins.iter(&nodes).collect::<Vec<_>>(), ids);
        for pair in sizes.windows(2) {
            let between = Bin::of(pair[0]).larger().expect("the last is the largest");
            assert_eq!(bins.at_least(between), Some(Bin::of(pair[1])));
            assert_eq!(
                bins.at_most(Bin::of(pair[1]).smaller().expect("not the smallest")),
                Some(Bin::of(pair[0]))
            );
        }
        for id in ids {
            let BlockNode { units, prev, next, .. } = nodes[id];
            bins.remove(&mut nodes, Bin::of(units), (prev, next));
            bins.verify();
        }
        assert_eq!((bins.at_least(Bin(0)), bins.at_most(Bin::LARGEST)), (None, None));
    }
}
