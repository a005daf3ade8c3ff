//! Frees a block.

use super::node::{BlockNode, Id};
use super::{Core, Owner};
use crate::stream::Epoch;

/// No block that is out begins at the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotOut;

impl Core {
    /// Frees a block on `owner` at `epoch`, which is ignored for [`Owner::UNOWNED`]. Returns its size.
    ///
    /// The block is merged at once with free neighbours of the same owner. While only one stream has ever been entered,
    /// its blocks are merged with unowned neighbours too, and the stream owns the result: no other stream could take
    /// that memory sooner, and a program of one stream never needs to gather. Not where streams are [kept
    /// apart](Core::keeping_apart).
    #[inline]
    pub(crate) fn release(&mut self, address: u64, owner: Owner, epoch: Epoch) -> Result<u32, NotOut> {
        let id = self.index.remove(&self.nodes, address).ok_or(NotOut)?;
        Ok(self.release_node(id, owner, epoch))
    }

    /// The same, if a block of this length that is out begins there. Else nothing is done.
    pub(crate) fn release_exactly(
        &mut self,
        address: u64,
        units: u32,
        owner: Owner,
        epoch: Epoch,
    ) -> Result<(), NotOut> {
        let id = self.index.remove(&self.nodes, address).ok_or(NotOut)?;
        if self.nodes[id].units != units {
            self.index.insert(address, id);
            return Err(NotOut);
        }
        self.release_node(id, owner, epoch);
        Ok(())
    }

    /// Frees a block that has left the index. Returns its size.
    #[inline]
    fn release_node(&mut self, id: Id, owner: Owner, epoch: Epoch) -> u32 {
        let BlockNode { units, before, after, .. } = self.nodes[id];
        self.free_units += u64::from(units);
        self.released += 1;
        debug_assert!(owner == Owner::UNOWNED || self.stream_of(owner).is_some(), "the stream has left");
        let epoch = if owner == Owner::UNOWNED { 0 } else { epoch.0 };
        let (left, right) = (self.nodes[before].holder, self.nodes[after].holder);
        if !self.apart && self.owners.is_sole() {
            self.mixed |= owner == Owner::UNOWNED;
            if owner != Owner::UNOWNED && (self.mixed || left == Owner::UNOWNED || right == Owner::UNOWNED) {
                self.join(id, owner, epoch, true);
                return units;
            }
        }
        self.put(id, owner, epoch, left == owner, right == owner);
        units
    }

    /// Whether a block that `owner` frees is merged with a neighbour of that holder.
    pub(super) fn joins_when_freed(&self, owner: Owner, holder: Owner) -> bool {
        let takes_unowned = !self.apart && self.owners.is_sole() && owner != Owner::UNOWNED;
        holder == owner || (takes_unowned && holder == Owner::UNOWNED)
    }

    /// As [`join`](Self::join), for at most one neighbour on each side, which the caller has found. A block stays in
    /// its bin if the merged one belongs there too.
    #[inline]
    fn put(&mut self, id: Id, owner: Owner, mut epoch: u64, left: bool, right: bool) {
        let nodes = &mut self.nodes;
        let place = self.owners.place_mut(owner);
        let BlockNode { address, units, before, mut after, .. } = nodes[id];
        let zone = self.ranges.zone(address);
        let (mut joined, mut whole) = (id, units);
        // The links of the neighbour whose place in a bin is kept: the one before, else the one behind.
        let mut inherited = None;
        if right {
            let behind = nodes.take(after);
            after = behind.after;
            nodes[after].before = id;
            whole += behind.units;
            epoch = epoch.max(behind.epoch);
            let (bin, links) = (zone.bin(behind.units), (behind.prev, behind.next));
            if left || zone.bin(whole) != bin {
                place.bins.remove(nodes, bin, links);
            } else {
                inherited = Some(place.bins.replace(nodes, bin, links, id));
            }
        }
        if left {
            nodes.take(id);
            nodes[after].before = before;
            joined = before;
            let front = &nodes[before];
            whole += front.units;
            epoch = epoch.max(front.epoch);
            let (bin, links) = (zone.bin(front.units), (front.prev, front.next));
            if zone.bin(whole) == bin {
                inherited = Some(links);
            } else {
                place.bins.remove(nodes, bin, links);
            }
        }
        place.gain(units, epoch);
        place.last_busy = self.released;
        let links = match inherited {
            Some(links) => links,
            None => place.bins.push(nodes, zone.bin(whole), joined, place.end(epoch)),
        };
        let node = &mut nodes[joined];
        (node.units, node.after, node.holder, node.epoch) = (whole, after, owner, epoch);
        (node.prev, node.next) = links;
        if owner == Owner::UNOWNED && node.is_whole() {
            self.segments.enter_whole(node);
        }
    }
}
