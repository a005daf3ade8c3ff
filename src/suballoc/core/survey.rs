//! Queries of the core: the largest block, the block at an address, the sums.

use super::bins::{End, Zone};
use super::node::Id;
use super::owner::OwnerPlace;
use super::range::SHORT_UNITS;
use super::{Core, Owner, UNIT};
use crate::stream::{Epoch, StreamId};

/// How many blocks of the largest bin are compared.
const LARGEST: usize = 64;

/// The block at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inspected {
    /// The address is in no segment.
    Foreign,
    /// The middle of a block, which begins at `block`.
    Inside { block: u64 },
    /// The beginning of a free block.
    Free { units: u32 },
    /// The beginning of a block that is out.
    Out { units: u32 },
}

/// A block, as a snapshot shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockSeen {
    pub(crate) address: u64,
    pub(crate) units: u32,
    pub(crate) state: SeenState,
}

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeenState {
    Out,
    /// With the stream and the epoch of its free; `None` if unowned.
    Free(Option<(StreamId, Epoch)>),
}

impl Core {
    /// The largest block that [`allocate`](Self::allocate) with these arguments finds, in units, without an alignment.
    /// Every smaller request of the same zone is found, too. A larger one may be found in the blocks within reach, of which only a few
    /// are looked at here.
    pub(crate) fn largest(&self, requester: Owner, reach: &[(Owner, Epoch)]) -> u32 {
        let rest = self.largest_in(self.ranges.rest(), requester, reach);
        if self.ranges.zone_for(rest) == self.ranges.rest() {
            return rest;
        }
        // It is short, and so is each request up to it: those are served from the range of short blocks.
        self.largest_in(Zone::FIRST, requester, reach).min(SHORT_UNITS)
    }

    fn largest_in(&self, zone: Zone, requester: Owner, reach: &[(Owner, Epoch)]) -> u32 {
        let own = self.largest_fit(requester, zone).max(self.largest_fit(Owner::UNOWNED, zone));
        let others = reach.iter().filter(|(owner, _)| *owner != requester && *owner != Owner::UNOWNED);
        others.map(|&(owner, epoch)| self.largest_fit_within(owner, epoch.0, zone)).fold(own, u32::max)
    }

    /// The largest free block of all owners, or one that is less by at most 1/32: only a few blocks of the largest bin of
    /// each zone are compared. Exact if that bin has no more blocks, or blocks of fewer than 64 units. O(owners).
    pub(crate) fn largest_free(&self) -> u32 {
        let [first, second] = [Zone::FIRST, Zone::SECOND].map(|zone| self.largest_free_in(zone));
        first.max(second)
    }

    fn largest_free_in(&self, zone: Zone) -> u32 {
        let largest = |place: &OwnerPlace| place.bins.down(zone).next();
        let Some(bin) = self.owners.iter().filter_map(|(_, place)| largest(place)).max() else { return 0 };
        let places = self.owners.iter().filter(|(_, place)| largest(place) == Some(bin));
        let blocks = places.flat_map(|(_, place)| place.bins.list(&self.nodes, bin, End::Front));
        blocks.take(LARGEST).map(|id| self.nodes[id].units).max().unwrap_or(0)
    }

    /// The block that begins at `address`, or covers it. O(1) if a block that is out begins there, else O(blocks of the
    /// segment).
    pub(crate) fn inspect(&self, address: u64) -> Inspected {
        if let Some(units) = self.units_out_at(address) {
            return Inspected::Out { units };
        }
        let covers = |first| self.chain(first).map(|id| &self.nodes[id]).find(|node| address < node.end());
        match self.segments.around(address).and_then(|(_, first)| covers(first)) {
            None => Inspected::Foreign,
            Some(node) if matches!(node.holder, Owner::ABSENT | Owner::HOLLOW) => Inspected::Foreign,
            Some(node) if node.address == address => Inspected::Free { units: node.units },
            Some(node) => Inspected::Inside { block: node.address },
        }
    }

    /// The length of the block that is out and begins at `address`. O(1).
    pub(crate) fn units_out_at(&self, address: u64) -> Option<u32> {
        self.index.find(&self.nodes, address).map(|id| self.nodes[id].units)
    }

    /// Of all owners.
    pub(crate) fn free_units(&self) -> u64 {
        self.free_units
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn unowned_units(&self) -> u64 {
        self.owners.place(Owner::UNOWNED).free_units
    }

    /// The number of frees so far: if it has changed, a search may find more.
    pub(crate) fn released(&self) -> u64 {
        self.released
    }

    pub(crate) fn out_units(&self) -> u64 {
        self.segments.units() - self.free_units
    }

    /// Of all segments.
    pub(crate) fn reserved_units(&self) -> u64 {
        self.segments.units()
    }

    pub(crate) fn out_blocks(&self) -> usize {
        self.index.len()
    }

    /// All blocks in the order of their addresses, without gaps within a segment, or a stretch of a range. Blocks whose
    /// pages are being mapped or unmapped are left out, and so are those that sleep.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockSeen> + '_ {
        let all = self.segments.iter().flat_map(|(_, first)| self.chain(first));
        let is_memory = |id: &Id| self.nodes[*id].holder.has_memory();
        all.filter(is_memory).map(|id| {
            let node = &self.nodes[id];
            let state = match node.holder {
                Owner::OUT => SeenState::Out,
                owner => SeenState::Free(self.stream_of(owner).map(|stream| (stream, Epoch(node.epoch)))),
            };
            BlockSeen { address: node.address, units: node.units, state }
        })
    }

    /// The heap memory of the core, in bytes. It never shrinks.
    pub(crate) fn metadata_bytes(&self) -> usize {
        self.nodes.bytes()
            + self.index.bytes()
            + self.owners.bytes()
            + self.segments.bytes()
            + self.ranges.bytes()
    }
}

const _: () = assert!(UNIT.is_power_of_two());
