//! `Bins`: the free blocks of one owner, by size.

use super::node::{Id, NONE};
use super::nodes::Nodes;

/// The bins for each doubling of the size: a block is at most 1/32 larger than the smallest of its bin.
const BINS: usize = 32;
/// One level for sizes below 32 units, then one for each doubling up to 2^32.
const LEVELS: usize = 28;

/// Blocks of similar size; up to 63 units, of exactly one size. A larger bin has larger blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Bin(u16);

impl Bin {
    pub(super) const LARGEST: Self = Self((LEVELS * BINS - 1) as u16);

    /// The bin of blocks of that size.
    #[inline]
    pub(super) fn of(units: u32) -> Self {
        let level = (units | (BINS as u32 - 1)).ilog2() - (BINS.ilog2() - 1);
        let at = (units >> level.saturating_sub(1)) & (BINS as u32 - 1);
        Self((level * BINS as u32 + at) as u16)
    }

    /// The next larger one.
    #[inline]
    pub(super) fn larger(self) -> Option<Self> {
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
        self.level() < 2
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
    levels: u32,
    /// A bit for each bin of a level that has a block.
    bins: [u32; LEVELS],
    /// The lists of a level, made when it gets its first block.
    ends: [Option<Box<[Ends; BINS]>>; LEVELS],
}

impl Bins {
    /// The first block at that end of a bin.
    #[inline]
    pub(super) fn first(&self, bin: Bin, end: End) -> Id {
        match (&self.ends[bin.level()], end) {
            (Some(ends), End::Front) => ends[bin.at()].front,
            (Some(ends), End::Back) => ends[bin.at()].back,
            (None, _) => NONE,
        }
    }

    /// The smallest bin that has a block, from `bin` on.
    #[inline]
    pub(super) fn at_least(&self, bin: Bin) -> Option<Bin> {
        let here = self.bins[bin.level()] & (!0 << bin.at());
        if here != 0 {
            return Some(Bin((bin.level() * BINS) as u16 + here.trailing_zeros() as u16));
        }
        let above = self.levels & (!0 << (bin.level() + 1));
        if above == 0 {
            return None;
        }
        let level = above.trailing_zeros() as usize;
        Some(Bin((level * BINS) as u16 + self.bins[level].trailing_zeros() as u16))
    }

    /// The largest bin that has a block, up to `bin`.
    #[inline]
    pub(super) fn at_most(&self, bin: Bin) -> Option<Bin> {
        let here = self.bins[bin.level()] & (!0 >> (BINS - 1 - bin.at()));
        if here != 0 {
            return Some(Bin((bin.level() * BINS) as u16 + here.ilog2() as u16));
        }
        let below = self.levels & ((1 << bin.level()) - 1);
        if below == 0 {
            return None;
        }
        let level = below.ilog2() as usize;
        Some(Bin((level * BINS) as u16 + self.bins[level].ilog2() as u16))
    }

    /// The bins that have a block, the smallest first.
    pub(super) fn used(&self) -> impl Iterator<Item = Bin> + '_ {
        core::iter::successors(self.at_least(Bin(0)), |bin| self.at_least(bin.larger()?))
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
        let all = self.ends[level].get_or_insert_with(|| Box::new([Ends { front: NONE, back: NONE }; BINS]));
        let ends = &mut all[at];
        let Ends { front, back } = *ends;
        if front == NONE {
            *ends = Ends { front: id, back: id };
            self.levels |= 1 << level;
            self.bins[level] |= 1 << at;
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
        let Some(all) = &mut self.ends[level] else { return };
        let ends = &mut all[at];
        if prev == NONE {
            ends.front = next;
        }
        if next == NONE {
            ends.back = prev;
        }
        if prev == next {
            self.bins[level] &= !(1 << at);
            if self.bins[level] == 0 {
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
            && let Some(all) = &mut self.ends[bin.level()]
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
            assert_eq!(self.levels >> level & 1 != 0, self.bins[level] != 0, "level {level}");
            assert!(self.bins[level] == 0 || self.ends[level].is_some(), "level {level}");
            for at in (0..BINS).filter(|_| self.ends[level].is_some()) {
                let bin = Bin((level * BINS + at) as u16);
                assert_eq!(self.bins[level] >> at & 1 != 0, self.first(bin, End::Front) != NONE, "{bin:?}");
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.ends.iter().flatten().count() * size_of::<[Ends; BINS]>()
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
        assert_eq!((Bin::of(u32::MAX), Bin::LARGEST.larger()), (Bin::LARGEST, None));
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
