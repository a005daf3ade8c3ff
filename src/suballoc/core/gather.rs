//! Merges free neighbours of different owners.

use super::bins::End;
use super::node::{BlockNode, Id};
use super::{Core, Owner};
use crate::stream::Epoch;

/// The owners whose blocks a requester may take, and up to which epoch: by place.
pub(super) struct Limits(Vec<Option<u64>>);

impl Limits {
    /// Its own blocks, unowned ones, and those within reach.
    pub(super) fn of(core: &Core, requester: Owner, reach: &[(Owner, Epoch)]) -> Self {
        let mut limits = vec![None; core.owners.len()];
        for &(owner, epoch) in reach {
            let limit = &mut limits[owner.place()];
            *limit = (*limit).max(Some(epoch.0));
        }
        limits[Owner::UNOWNED.place()] = Some(u64::MAX);
        limits[requester.place()] = Some(u64::MAX);
        Self(limits)
    }

    pub(super) fn take(&self, node: &BlockNode) -> bool {
        // A block that is out has no place.
        matches!(self.0.get(node.holder.place()), Some(Some(limit)) if node.epoch <= *limit)
    }
}

impl Core {
    /// Merges every run of two or more adjacent free blocks that `requester` may take (its own, unowned ones, and those
    /// within reach) into one block of `requester` at `epoch`; without a requester, into an unowned block. Returns by
    /// how many blocks there are fewer.
    ///
    /// The caller's `epoch` is the requester's present one, which comes after all epochs within its reach. Unowned
    /// neighbours are one block already. O(free blocks).
    ///
    /// Afterwards the largest block of each bin that `requester` may take is where [`allocate`](Self::allocate) looks
    /// first, so a request that it does not find then has no block.
    pub(crate) fn gather(&mut self, requester: Owner, epoch: Epoch, reach: &[(Owner, Epoch)]) -> usize {
        self.gathered += 1;
        let limits = Limits::of(self, requester, reach);
        let joined = self
            .runs(&limits)
            .into_iter()
            .map(|first| self.gather_run(first, requester, epoch.0, &limits))
            .sum();
        let owners: Vec<Owner> = self.owners.iter().map(|(owner, _)| owner).collect();
        for owner in owners {
            if let Some(limit) = limits.0[owner.place()] {
                let end = if owner == requester || owner == Owner::UNOWNED { End::Front } else { End::Back };
                self.move_largest_to_end(owner, limit, end);
            }
        }
        joined
    }

    /// The first block of each run of two or more.
    fn runs(&self, limits: &Limits) -> Vec<Id> {
        let takes = |id: Id| limits.take(&self.nodes[id]);
        let all = self.owners.iter().filter(|(owner, _)| limits.0[owner.place()].is_some());
        let blocks = all.flat_map(|(_, place)| place.bins.iter(&self.nodes));
        let first = |&id: &Id| takes(id) && takes(self.nodes[id].after) && !takes(self.nodes[id].before);
        blocks.filter(first).collect()
    }

    fn gather_run(&mut self, first: Id, requester: Owner, mut epoch: u64, limits: &Limits) -> usize {
        let mut joined = 0;
        // The epochs of other streams say nothing about this one.
        let own = |node: &BlockNode| if node.holder == requester { node.epoch } else { 0 };
        epoch = epoch.max(own(&self.nodes[first]));
        self.unlink(first);
        loop {
            let after = self.nodes[first].after;
            if !limits.take(&self.nodes[after]) {
                break;
            }
            epoch = epoch.max(own(&self.nodes[after]));
            self.unlink(after);
            self.nodes.join(first, after);
            joined += 1;
        }
        let node = &mut self.nodes[first];
        node.holder = requester;
        node.epoch = if requester == Owner::UNOWNED { 0 } else { epoch };
        self.link(first);
        joined
    }

    /// Moves the largest block up to epoch `limit` of each bin to that end of it.
    fn move_largest_to_end(&mut self, owner: Owner, limit: u64, end: End) {
        let place = self.owners.place_mut(owner);
        let mut moves = Vec::new();
        for bin in place.bins.used() {
            let within = place.bins.list(&self.nodes, bin, end).filter(|&id| self.nodes[id].epoch <= limit);
            // Of equal ones the nearest to the end, which needs no move.
            let largest = within
                .reduce(|best, id| if self.nodes[id].units > self.nodes[best].units { id } else { best });
            moves.extend(largest.filter(|&id| id != place.bins.first(bin, end)).map(|id| (bin, id)));
        }
        for (bin, id) in moves {
            let links = (self.nodes[id].prev, self.nodes[id].next);
            place.bins.remove(&mut self.nodes, bin, links);
            (self.nodes[id].prev, self.nodes[id].next) = place.bins.push(&mut self.nodes, bin, id, end);
        }
    }
}
