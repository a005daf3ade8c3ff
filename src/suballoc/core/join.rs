//! Inserts free blocks into their bins, removes them, and merges them with their neighbours.

use super::node::{BlockNode, Id};
use super::{Core, Owner};

impl Core {
    /// Adds a free block to its owner's figures, and puts it into its bin.
    #[inline]
    pub(super) fn link(&mut self, id: Id) {
        let BlockNode { address, units, epoch, holder, .. } = self.nodes[id];
        let place = self.owners.place_mut(holder);
        place.gain(units, epoch);
        let end = place.end(epoch);
        let bin = self.ranges.zone(address).bin(units);
        let links = place.bins.push(&mut self.nodes, bin, id, end);
        let node = &mut self.nodes[id];
        (node.prev, node.next) = links;
        if node.is_whole() && holder == Owner::UNOWNED {
            self.segments.enter_whole(node);
        }
    }

    /// Subtracts a free block from its owner's figures, and takes it from its bin.
    #[inline]
    pub(super) fn unlink(&mut self, id: Id) {
        let node = &self.nodes[id];
        let BlockNode { address, units, prev, next, holder, .. } = *node;
        if node.is_whole() && holder == Owner::UNOWNED {
            self.segments.leave_whole(node);
        }
        let place = self.owners.place_mut(holder);
        place.free_units -= u64::from(units);
        let bin = self.ranges.zone(address).bin(units);
        place.bins.remove(&mut self.nodes, bin, (prev, next));
    }

    /// Makes a block that is in no bin a free one of `owner`, merged with its neighbours of the same owner; if
    /// `greedy`, with unowned ones too.
    pub(super) fn join(&mut self, mut id: Id, owner: Owner, mut epoch: u64, greedy: bool) {
        let joins = |holder: Owner| holder == owner || (greedy && holder == Owner::UNOWNED);
        loop {
            let after = self.nodes[id].after;
            if !joins(self.nodes[after].holder) {
                break;
            }
            epoch = epoch.max(self.nodes[after].epoch);
            self.unlink(after);
            self.nodes.join(id, after);
        }
        loop {
            let before = self.nodes[id].before;
            if !joins(self.nodes[before].holder) {
                break;
            }
            epoch = epoch.max(self.nodes[before].epoch);
            self.unlink(before);
            self.nodes.join(before, id);
            id = before;
        }
        let node = &mut self.nodes[id];
        node.holder = owner;
        node.epoch = epoch;
        self.link(id);
    }
}
