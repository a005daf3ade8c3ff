//! `Segment`: a range of addresses to carve.

use std::collections::{BTreeMap, BTreeSet};

use super::node::{BlockNode, Id, NONE};
use super::{Core, Owner, UNIT};

/// A range of addresses to carve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) units: u32,
}

/// All segments.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// By address: the size, and the first block. That node stays the first one: cutting and joining keep the one in front.
    by_address: BTreeMap<u64, (u32, Id)>,
    /// Those that are one block, free and nobody's: size and address. In the order in which they are given back, so that
    /// finding the next one takes as long with 100,000 of them as with ten.
    whole: BTreeSet<(u32, u64)>,
    units: u64,
}

impl Segments {
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    /// In the order of addresses, each with its first block.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Segment, Id)> + '_ {
        self.by_address.iter().map(|(&address, &(units, first))| (Segment { address, units }, first))
    }

    /// The segment that an address lies in, with its first block.
    pub(super) fn around(&self, address: u64) -> Option<(Segment, Id)> {
        let (&start, &(units, first)) = self.by_address.range(..=address).next_back()?;
        (address - start < u64::from(units) * UNIT).then_some((Segment { address: start, units }, first))
    }

    /// The same as `whole`, for `verify`.
    #[cfg(all(test, not(loom)))]
    pub(super) fn whole(&self) -> &BTreeSet<(u32, u64)> {
        &self.whole
    }

    /// A block that is its whole segment is free from now on, and nobody's.
    pub(super) fn enter_whole(&mut self, node: &BlockNode) {
        self.whole.insert((node.units, node.address));
    }

    /// It is so no more.
    pub(super) fn leave_whole(&mut self, node: &BlockNode) {
        self.whole.remove(&(node.units, node.address));
    }

    /// About: a map holds up to 11 entries a leaf and is at least half full.
    pub(super) fn bytes(&self) -> usize {
        2 * (self.by_address.len() * size_of::<(u64, (u32, Id))>()
            + self.whole.len() * size_of::<(u32, u64)>())
    }
}

impl Core {
    /// Units at an address (a multiple of [`UNIT`]), free, nobody's. A segment never merges with another.
    pub(crate) fn add_segment(&mut self, address: u64, units: u32) {
        debug_assert!(units > 0 && address.is_multiple_of(UNIT), "{units} units at {address:#x}");
        let id = self.nodes.make();
        self.nodes[id] = BlockNode { address, units, holder: Owner::UNOWNED, ..BlockNode::VACANT };
        let replaced = self.segments.by_address.insert(address, (units, id));
        debug_assert!(replaced.is_none(), "a segment at {address:#x} twice");
        self.segments.units += u64::from(units);
        self.free_units += u64::from(units);
        self.link(id);
    }

    /// Takes out one segment that is wholly free and nobody's, of at most `at_most` units: the largest such, because what
    /// gives memory back calls its upstream once a segment. O(log segments).
    pub(crate) fn take_segment(&mut self, at_most: u64) -> Option<Segment> {
        let at_most = u32::try_from(at_most).unwrap_or(u32::MAX);
        let &(units, address) = self.segments.whole.range(..=(at_most, u64::MAX)).next_back()?;
        let &(_, id) = self.segments.by_address.get(&address)?;
        self.unlink(id);
        self.nodes.take(id);
        self.segments.by_address.remove(&address);
        self.segments.units -= u64::from(units);
        self.free_units -= u64::from(units);
        Some(Segment { address, units })
    }

    /// All segments, whatever they hold, each with whether a block of it is such a one's. The core is empty afterwards and
    /// knows no stream any more.
    pub(crate) fn drain_segments(&mut self, is_such: impl Fn(Owner) -> bool) -> Vec<(Segment, bool)> {
        let holds = |first| self.chain(first).any(|id| is_such(self.nodes[id].holder));
        let segments = self.segments.iter().map(|(segment, first)| (segment, holds(first))).collect();
        *self = Self::new();
        segments
    }

    /// A block and all that follow it in its segment.
    pub(super) fn chain(&self, first: Id) -> impl Iterator<Item = Id> + '_ {
        core::iter::successors(Some(first), |&id| {
            let after = self.nodes[id].after;
            (after != NONE).then_some(after)
        })
    }
}
