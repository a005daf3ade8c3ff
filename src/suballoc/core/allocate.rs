//! Allocates a block.

use smallvec::SmallVec;

use super::fit::FitRequest;
use super::node::{BlockNode, Id};
use super::{Core, Owner, UNIT};
use crate::stream::Epoch;

/// A block that has gone out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TakenBlock {
    pub(crate) address: u64,
    /// Its former owner.
    pub(crate) from: Owner,
}

impl Core {
    /// A block for `requester`: of its own or unowned, else of an owner in `reach` with an epoch up to that reach. The
    /// rest of the free block keeps its owner and epoch. `align_units` is a power of two.
    ///
    /// A good fit, after a bounded number of steps. Of its own and of unowned blocks: one that is at most 1/32 larger
    /// than needed, if there is one; but only a few blocks of the request's own bin are looked at. Of each other
    /// owner's blocks only a few are looked at. [`gather`](Self::gather) moves the largest ones to where the search
    /// begins.
    #[inline]
    pub(crate) fn allocate(
        &mut self,
        requester: Owner,
        units: u32,
        align_units: u32,
        reach: &[(Owner, Epoch)],
    ) -> Option<TakenBlock> {
        let zone = self.ranges.zone_for(units);
        self.allocate_in(requester, FitRequest { units, align_units, zone }, reach)
    }

    /// The same in the zone where such blocks do not lie, for when memory ends.
    pub(crate) fn allocate_elsewhere(
        &mut self,
        requester: Owner,
        units: u32,
        align_units: u32,
        reach: &[(Owner, Epoch)],
    ) -> Option<TakenBlock> {
        let zone = self.ranges.zone_for(units).other();
        self.allocate_in(requester, FitRequest { units, align_units, zone }, reach)
    }

    #[inline]
    fn allocate_in(
        &mut self,
        requester: Owner,
        request: FitRequest,
        reach: &[(Owner, Epoch)],
    ) -> Option<TakenBlock> {
        let FitRequest { units, align_units, .. } = request;
        debug_assert!(units > 0 && align_units.is_power_of_two(), "{units} units at {align_units}");
        let id = self.fit_free(requester, request).or_else(|| self.fit_foreign(requester, request, reach))?;
        let node = &self.nodes[id];
        let (from, front) = (node.holder, request.front(node)?);
        let (id, address) = self.carve(id, front, units);
        self.index.insert(address, id);
        Some(TakenBlock { address, from })
    }

    /// Up to `count` blocks of `units` each, cut from one free block, appended to `out`. If there is none so long, half
    /// as many, and so on. Of the requester's own or unowned memory.
    pub(crate) fn allocate_run(
        &mut self,
        requester: Owner,
        units: u32,
        count: u32,
        out: &mut SmallVec<[u64; 16]>,
    ) -> Option<Owner> {
        debug_assert!(units > 0 && count > 0, "{count} blocks of {units} units");
        let mut count = count;
        let (id, from) = loop {
            if let Some(units) = units.checked_mul(count) {
                let request = FitRequest { units, align_units: 1, zone: self.ranges.zone_for(units) };
                if let Some(id) = self.fit_free(requester, request) {
                    let from = self.nodes[id].holder;
                    break (self.carve(id, 0, units).0, from);
                }
            }
            count /= 2;
            if count == 0 {
                return None;
            }
        };
        let mut last = id;
        for _ in 1..count {
            let behind = self.nodes.cut(last, units);
            self.enter_out(last, out);
            last = behind;
        }
        self.enter_out(last, out);
        Some(from)
    }

    /// Returns `true` if `requester` could have a block of `units` of its own or unowned memory. O(1).
    pub(crate) fn has_whole(&self, requester: Owner, units: u32) -> bool {
        let request = FitRequest { units, align_units: 1, zone: self.ranges.zone_for(units) };
        self.fits(requester, request) || self.fits(Owner::UNOWNED, request)
    }

    /// Returns `true` if a block of `units` would be cut for `requester` from one, of its own or unowned, that is more
    /// than a quarter longer. O(1).
    pub(crate) fn would_cut(&self, requester: Owner, units: u32) -> bool {
        let request = FitRequest { units, align_units: 1, zone: self.ranges.zone_for(units) };
        self.fit_free(requester, request).is_some_and(|id| self.nodes[id].units - units > units / 4)
    }

    /// Returns `true` if only one stream has ever been entered: then its blocks are merged with all free neighbours at
    /// once.
    pub(crate) fn is_of_one_stream(&self) -> bool {
        self.owners.is_sole()
    }

    fn enter_out(&mut self, id: Id, out: &mut SmallVec<[u64; 16]>) {
        let address = self.nodes[id].address;
        self.index.insert(address, id);
        out.push(address);
    }

    #[cold]
    fn fit_foreign(&self, requester: Owner, request: FitRequest, reach: &[(Owner, Epoch)]) -> Option<Id> {
        let others = reach.iter().filter(|(owner, _)| *owner != requester && *owner != Owner::UNOWNED);
        others.into_iter().find_map(|&(owner, epoch)| self.fit_within(owner, epoch.0, request))
    }

    /// Takes `units` out of a free block, from `front` on. The parts before and after stay free.
    #[inline]
    fn carve(&mut self, id: Id, front: u32, units: u32) -> (Id, u64) {
        if front > 0 {
            return self.carve_middle(id, front, units);
        }
        let nodes = &mut self.nodes;
        let node = &nodes[id];
        let BlockNode { address, epoch, units: whole, after, prev, next, holder, .. } = *node;
        if node.is_whole() && holder == Owner::UNOWNED {
            self.segments.leave_whole(node);
        }
        self.free_units -= u64::from(units);
        let place = self.owners.place_mut(holder);
        place.free_units -= u64::from(units);
        let zone = self.ranges.zone(address);
        let bin = zone.bin(whole);
        let rest = whole - units;
        if rest == 0 {
            place.bins.remove(nodes, bin, (prev, next));
        } else {
            let behind = nodes.make();
            let new = zone.bin(rest);
            let (prev, next) = if new == bin {
                // The rest of a block much larger than the request is in the same bin: it takes the place of the block
                // there.
                place.bins.replace(nodes, bin, (prev, next), behind)
            } else {
                place.bins.remove(nodes, bin, (prev, next));
                place.bins.push(nodes, new, behind, place.end(epoch))
            };
            let address = address + u64::from(units) * UNIT;
            nodes[behind] = BlockNode { address, epoch, units: rest, before: id, after, prev, next, holder };
            nodes[after].before = behind;
            nodes[id].units = units;
            nodes[id].after = behind;
        }
        nodes[id].holder = Owner::OUT;
        (id, address)
    }

    /// The same where the first aligned address is inside the block.
    #[cold]
    fn carve_middle(&mut self, id: Id, front: u32, units: u32) -> (Id, u64) {
        self.unlink(id);
        let taken = self.nodes.cut(id, front);
        if self.nodes[taken].units > units {
            let behind = self.nodes.cut(taken, units);
            self.link(behind);
        }
        self.link(id);
        self.free_units -= u64::from(units);
        self.nodes[taken].holder = Owner::OUT;
        (taken, self.nodes[taken].address)
    }
}
