//! `Segment`: a range of addresses to carve.

use std::collections::{BTreeMap, BTreeSet};

use super::node::{BlockNode, Id, NONE};
use super::range::Extent;
use super::{Core, Owner, UNIT};

/// A range of addresses to carve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) units: u32,
}

/// What the upstream has made of which a block is a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Around {
    Segment(Segment),
    /// The pages that the block lies on, side by side.
    Pages(Vec<Extent>),
    /// It is no block, or has no memory.
    Nothing,
}

/// All segments.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// By address: the size, and the first block. That node stays the first one: cutting and merging keep the front
    /// node.
    by_address: BTreeMap<u64, (u32, Id)>,
    /// The empty, unowned segments: size and address. In the order in which they go back to the upstream, so that the
    /// next one is found in O(log segments).
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

    /// Notes that a whole segment is one free, unowned block.
    pub(super) fn enter_whole(&mut self, node: &BlockNode) {
        self.whole.insert((node.units, node.address));
    }

    /// Notes that it no longer is.
    pub(super) fn leave_whole(&mut self, node: &BlockNode) {
        self.whole.remove(&(node.units, node.address));
    }

    /// Adds addresses without memory.
    pub(super) fn add_addresses(&mut self, segment: Segment, first: Id) {
        let replaced = self.by_address.insert(segment.address, (segment.units, first));
        debug_assert!(replaced.is_none(), "a segment at {:#x} twice", segment.address);
    }

    /// Removes addresses without memory.
    pub(super) fn remove_addresses(&mut self, address: u64) {
        self.by_address.remove(&address);
    }

    /// Counts memory that is mapped.
    pub(super) fn gain(&mut self, units: u32) {
        self.units += u64::from(units);
    }

    /// Counts memory that is mapped no longer.
    pub(super) fn lose(&mut self, units: u32) {
        self.units -= u64::from(units);
    }

    /// An estimate: a map holds up to 11 entries in a leaf, and leaves are at least half full.
    pub(super) fn bytes(&self) -> usize {
        2 * (self.by_address.len() * size_of::<(u64, (u32, Id))>()
            + self.whole.len() * size_of::<(u32, u64)>())
    }
}

impl Core {
    /// Adds a segment: one free, unowned block. Its address is a multiple of [`UNIT`]. Segments never merge.
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

    /// Where the first segment begins, and where the last one ends.
    pub(crate) fn addresses(&self) -> Option<(u64, u64)> {
        let (start, _) = self.segments.by_address.first_key_value()?;
        let (last, (units, _)) = self.segments.by_address.last_key_value()?;
        Some((*start, last + u64::from(*units) * UNIT))
    }

    /// What the upstream has made of which a block is a part.
    pub(crate) fn around(&self, address: u64, bytes: u64) -> Around {
        let Some((segment, _)) = self.segments.around(address) else { return Around::Nothing };
        if !self.ranges.has(segment.address) {
            return Around::Segment(segment);
        }
        let pages = self.ranges.touching(address, address + bytes);
        let (Some(first), Some(last)) = (pages.first(), pages.last()) else { return Around::Nothing };
        let is_whole = first.address <= address
            && address + bytes <= last.end()
            && pages.windows(2).all(|pair| pair[0].end() == pair[1].address);
        if is_whole { Around::Pages(pages) } else { Around::Nothing }
    }

    /// Takes out the largest empty, unowned segment of at most `at_most` units: the largest, because each segment is
    /// one call to the upstream. O(log segments).
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

    /// All segments but ranges, each with whether `is_such` is true for the holder of a block of it. The core is empty
    /// afterwards, without streams.
    pub(crate) fn drain_segments(&mut self, is_such: impl Fn(Owner) -> bool) -> Vec<(Segment, bool)> {
        let holds = |first| self.chain(first).any(|id| is_such(self.nodes[id].holder));
        let whole = self.segments.iter().filter(|(segment, _)| !self.ranges.has(segment.address));
        let segments = whole.map(|(segment, first)| (segment, holds(first))).collect();
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
