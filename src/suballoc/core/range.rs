//! Ranges: segments of which a part has no memory.
//!
//! A range is a segment of addresses alone. Memory is mapped into it in *extents*: pages of the source, each mapped whole.
//! Addresses without memory are *absent* nodes, which are in no bin and never merge with blocks, so that searches and
//! frees cost what they cost in any other segment. An absent node begins and ends at an extent's border, or at the
//! border of the range.
//!
//! The last page of a range is never mapped: so no range is ever one free block, and work that runs past the end of a range
//! meets addresses without memory. Within a range it may meet an [alias](super::alias).

use std::collections::{BTreeMap, BTreeSet};

use super::alias::Aliases;
use super::bins::Zone;
use super::node::{BlockNode, Id, NONE};
use super::sleeping::GivenUp;
use super::{Core, Owner, Segment, UNIT};

/// Blocks of at most this many units have a range of their own: 64 KiB, the longest that are short to a cache. Caches
/// keep them for their streams wherever they lie, and among long blocks they would keep free memory apart.
pub(super) const SHORT_UNITS: u32 = super::LONG_UNITS;

/// With less memory than this there is one range for all blocks, so that a small pool does not hold two pages where one
/// would do: 16 MiB. With 0 to 64 MiB the footprints of a hundred made-up workloads are the same on average, to a
/// hundredth.
const ONE_RANGE_UNITS: u64 = (16 << 20) / UNIT;

/// A page that is mapped: its place, and the number that its source knows it by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    pub(crate) address: u64,
    pub(crate) units: u32,
    pub(crate) number: u64,
}

impl Extent {
    /// The address behind its last byte.
    pub(crate) const fn end(&self) -> u64 {
        self.address + self.units as u64 * UNIT
    }
}

/// What a drained range still had mapped, each extent with whether work may still use it.
#[derive(Debug)]
pub(crate) struct DrainedRange {
    pub(crate) range: Segment,
    pub(crate) extents: Vec<(Extent, bool)>,
}

/// All ranges.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// The unit of extents; 0 while there is no range.
    pub(super) page_units: u32,
    /// Where each begins.
    starts: BTreeSet<u64>,
    /// By address: the units and the number.
    extents: BTreeMap<u64, (u32, u64)>,
    /// The absent nodes, by address.
    pub(super) absent: BTreeMap<u64, Id>,
    /// The addresses behind the last memory of the range of short blocks, and of the last range of others; 0 while there
    /// is none.
    pub(super) frontiers: [u64; 2],
    /// The range of short blocks: where it begins, and its bytes.
    short: (u64, u64),
    /// The zone of all other blocks: the first one where there are no ranges.
    rest: Zone,
    /// The range of short blocks has no hole for one: they go to the others.
    is_short_full: bool,
    /// The nodes whose pages are being mapped or unmapped, and those of addresses that are lost, by address: no search finds
    /// them.
    pub(super) moving: BTreeMap<u64, Id>,
    /// The pages without memory on which blocks sleep, by address.
    pub(super) given_up: BTreeMap<u64, GivenUp>,
    /// The free nodes of these pages, by address.
    pub(super) hollow: BTreeMap<u64, Id>,
    pub(super) aliases: Aliases,
}

impl Ranges {
    pub(super) fn insert(&mut self, extent: Extent) {
        let replaced = self.extents.insert(extent.address, (extent.units, extent.number));
        debug_assert!(replaced.is_none(), "an extent at {:#x} twice", extent.address);
        self.aliases.note_mapped(extent);
    }

    pub(super) fn remove(&mut self, extent: Extent) {
        let removed = self.extents.remove(&extent.address);
        debug_assert_eq!(removed, Some((extent.units, extent.number)));
    }

    /// The extent that begins there.
    pub(super) fn extent_at(&self, address: u64) -> Option<Extent> {
        self.extents.get(&address).map(|&(units, number)| Extent { address, units, number })
    }

    /// The extents that lie wholly within these addresses, the last one first.
    pub(super) fn within(&self, from: u64, to: u64) -> impl Iterator<Item = Extent> + '_ {
        let all = self.extents.range(from..to).rev();
        all.map(|(&address, &(units, number))| Extent { address, units, number })
            .filter(move |extent| extent.end() <= to)
    }

    /// The extents with a part between these addresses, in their order.
    pub(super) fn touching(&self, from: u64, to: u64) -> Vec<Extent> {
        if from >= to {
            return Vec::new();
        }
        let around = self.extents.range(..=from).next_back();
        let all = around.into_iter().chain(self.extents.range(from + 1..to));
        all.map(|(&address, &(units, number))| Extent { address, units, number })
            .filter(|extent| extent.end() > from)
            .collect()
    }

    /// The same for pages that are given up: their addresses and units.
    pub(super) fn given_up_within(&self, from: u64, to: u64) -> Vec<(u64, u32)> {
        let around = self.given_up.range(..=from).next_back();
        let all = around.into_iter().chain(self.given_up.range(from + 1..to));
        all.map(|(&address, page)| (address, page.units))
            .filter(|&(address, units)| address + u64::from(units) * UNIT > from)
            .collect()
    }

    /// The last absent node of a range is its end.
    pub(super) fn note_frontiers(&mut self) {
        let last = |zone| self.absent_in(zone).next_back().map_or(0, |(address, _)| address);
        self.frontiers = [last(Zone::FIRST), last(Zone::SECOND)];
    }

    /// The absent nodes of a zone, in the order of their addresses.
    pub(super) fn absent_in(&self, zone: Zone) -> impl DoubleEndedIterator<Item = (u64, Id)> + '_ {
        let (start, end) = (self.short.0, self.short.0 + self.short.1);
        let is_first = zone == Zone::FIRST;
        let (low, high) = if is_first { (start..end, end..end) } else { (0..start, end..u64::MAX) };
        self.absent.range(low).chain(self.absent.range(high)).map(|(&address, &id)| (address, id))
    }

    /// The zone that an address lies in.
    #[inline]
    pub(super) fn zone(&self, address: u64) -> Zone {
        let (start, bytes) = self.short;
        if address.wrapping_sub(start) < bytes { Zone::FIRST } else { self.rest }
    }

    /// The zone of all blocks but the short ones.
    pub(super) fn rest(&self) -> Zone {
        self.rest
    }

    /// The zone that a request is served from.
    #[inline]
    pub(super) fn zone_for(&self, units: u32) -> Zone {
        if units > SHORT_UNITS || self.short.1 == 0 || self.is_short_full { self.rest } else { Zone::FIRST }
    }

    /// Returns `true` if a segment that begins there is a range.
    pub(super) fn has(&self, address: u64) -> bool {
        self.starts.contains(&address)
    }

    /// An estimate: a map holds up to 11 entries in a leaf, and leaves are at least half full.
    pub(super) fn bytes(&self) -> usize {
        2 * (self.extents.len() * size_of::<(u64, (u32, u64))>()
            + (self.absent.len() + self.moving.len() + self.hollow.len()) * size_of::<(u64, Id)>()
            + self.given_up.len() * size_of::<(u64, GivenUp)>())
            + self.aliases.bytes()
    }
}

impl Core {
    /// Returns `true` if a request of so many units is served from the range of short blocks.
    pub(crate) fn is_short(&self, units: u32) -> bool {
        self.ranges.short.1 > 0 && self.ranges.zone_for(units) == Zone::FIRST
    }

    /// Returns `true` if there is enough memory for a range of short blocks, and none yet.
    pub(crate) fn wants_short_range(&self) -> bool {
        self.ranges.short.1 == 0 && !self.ranges.is_short_full && self.reserved_units() >= ONE_RANGE_UNITS
    }

    /// Adds the range of short blocks, as [`add_range`](Self::add_range). Once.
    pub(crate) fn add_short_range(&mut self, address: u64, units: u32, page_units: u32) {
        debug_assert_eq!(self.ranges.short.1, 0, "a range of short blocks twice");
        self.ranges.short = (address, u64::from(units) * UNIT);
        self.add_range(address, units, page_units);
    }

    /// From now on the other ranges serve short blocks too.
    pub(crate) fn close_short_range(&mut self) {
        self.ranges.is_short_full = true;
    }

    /// Adds a range without memory. Its address and its units are whole pages of `page_units`, of which the last one
    /// is never mapped.
    pub(crate) fn add_range(&mut self, address: u64, units: u32, page_units: u32) {
        debug_assert!(page_units.is_power_of_two() && units.is_multiple_of(page_units) && units > page_units);
        debug_assert!(address.is_multiple_of(u64::from(page_units) * UNIT), "{address:#x}");
        debug_assert!(self.ranges.page_units == 0 || self.ranges.page_units == page_units);
        self.ranges.page_units = page_units;
        self.ranges.rest = Zone::SECOND;
        let id = self.nodes.make();
        self.nodes[id] = BlockNode { address, units, holder: Owner::ABSENT, ..BlockNode::VACANT };
        self.segments.add_addresses(Segment { address, units }, id);
        self.ranges.starts.insert(address);
        self.ranges.absent.insert(address, id);
        self.ranges.note_frontiers();
    }

    /// Adds a range that a page fills, but for the last page, which is never mapped: one free, unowned block.
    pub(crate) fn add_page(&mut self, page: Extent, page_units: u32) {
        self.add_range(page.address, page.units + page_units, page_units);
        let Some(&id) = self.ranges.absent.get(&page.address) else { return };
        self.detach(id);
        let guard = self.nodes.cut(id, page.units);
        self.attach(guard);
        self.nodes[id].holder = Owner::UNOWNED;
        self.attach(id);
        self.ranges.insert(page);
        self.segments.gain(page.units);
    }

    /// Takes the ranges out without memory, in which no block sleeps.
    pub(crate) fn take_empty_ranges(&mut self) -> Vec<Segment> {
        let is_empty = |&(range, first): &(Segment, Id)| {
            let BlockNode { units, holder, .. } = self.nodes[first];
            holder == Owner::ABSENT && units == range.units
        };
        let empty: Vec<(Segment, Id)> = self.segments.iter().filter(is_empty).collect();
        for &(range, first) in &empty {
            self.detach(first);
            self.nodes.take(first);
            self.segments.remove_addresses(range.address);
            self.ranges.starts.remove(&range.address);
        }
        empty.into_iter().map(|(range, _)| range).collect()
    }

    /// The number of extents that are mapped.
    pub(crate) fn extents(&self) -> usize {
        self.ranges.extents.len()
    }

    /// Takes a free or absent node out of its bin or table.
    pub(super) fn detach(&mut self, id: Id) {
        let BlockNode { address, units, holder, .. } = self.nodes[id];
        if holder == Owner::ABSENT {
            self.ranges.absent.remove(&address);
            self.ranges.note_frontiers();
        } else {
            self.unlink(id);
            self.free_units -= u64::from(units);
        }
    }

    /// Puts a free or absent node into its bin or table. It merges with no neighbour.
    pub(super) fn attach(&mut self, id: Id) {
        let BlockNode { address, units, holder, .. } = self.nodes[id];
        if holder == Owner::ABSENT {
            self.ranges.absent.insert(address, id);
            self.ranges.note_frontiers();
        } else {
            self.link(id);
            self.free_units += u64::from(units);
        }
    }

    /// Makes a node that is in no bin absent, merged with its absent neighbours.
    pub(super) fn join_absent(&mut self, mut id: Id) {
        let BlockNode { before, after, .. } = self.nodes[id];
        if self.nodes[after].holder == Owner::ABSENT {
            self.detach(after);
            self.nodes.join(id, after);
        }
        if self.nodes[before].holder == Owner::ABSENT {
            self.detach(before);
            self.nodes.join(before, id);
            id = before;
        }
        self.nodes[id].holder = Owner::ABSENT;
        self.attach(id);
    }

    /// Nothing can be mapped at the addresses of a node that is in no bin: no search ever finds it.
    pub(super) fn lose(&mut self, id: Id) {
        self.nodes[id].holder = Owner::MOVING;
        self.ranges.moving.insert(self.nodes[id].address, id);
    }

    /// Makes a node of memory that is in no bin a free one of no owner, merged with its neighbours.
    pub(super) fn join_unowned(&mut self, id: Id) {
        self.free_units += u64::from(self.nodes[id].units);
        // While there is one stream, its own free memory may lie beside.
        self.mixed = true;
        self.join(id, Owner::UNOWNED, 0, false);
    }

    /// All ranges, with what is mapped in them, and whether `is_such` is true for the holder of a block that an extent
    /// has a part of. To be called before [`drain_segments`](Self::drain_segments), which forgets them.
    pub(crate) fn ranges_to_drain(&self, is_such: impl Fn(Owner) -> bool) -> Vec<DrainedRange> {
        let ranges = self.segments.iter().filter(|(segment, _)| self.ranges.has(segment.address));
        let drained = |(range, first): (Segment, Id)| {
            let end = range.address + u64::from(range.units) * UNIT;
            let mut id = first;
            let extents =
                self.ranges.extents.range(range.address..end).map(|(&address, &(units, number))| {
                    let extent = Extent { address, units, number };
                    while self.nodes[id].end() <= address {
                        id = self.nodes[id].after;
                    }
                    let mut is_lost = is_such(self.nodes[id].holder);
                    while self.nodes[id].end() < extent.end() && self.nodes[id].after != NONE {
                        id = self.nodes[id].after;
                        is_lost |= is_such(self.nodes[id].holder);
                    }
                    (extent, is_lost)
                });
            DrainedRange { range, extents: extents.collect() }
        };
        ranges.map(drained).collect()
    }

    /// The stretches of memory of all segments, in the order of their addresses.
    pub(crate) fn stretches(&self) -> Vec<(u64, u64)> {
        let mut stretches: Vec<(u64, u64)> = Vec::new();
        for (segment, first) in self.segments.iter() {
            if !self.ranges.has(segment.address) {
                stretches.push((segment.address, u64::from(segment.units)));
                continue;
            }
            let mut has_begun = false;
            for id in self.chain(first) {
                let node = &self.nodes[id];
                let is_memory = node.holder.has_memory();
                match stretches.last_mut() {
                    Some((_, units)) if is_memory && has_begun => *units += u64::from(node.units),
                    _ if is_memory => stretches.push((node.address, u64::from(node.units))),
                    _ => {}
                }
                has_begun = is_memory;
            }
        }
        stretches
    }
}
