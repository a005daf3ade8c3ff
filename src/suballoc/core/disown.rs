//! Disowning: makes a stream's memory of completed work unowned.

use super::bins::{Bin, End};
use super::node::{Id, NONE};
use super::{Core, Owner};
use crate::stream::Epoch;

/// The progress of disowning a stream's blocks, between two calls of [`Core::disown_some`].
#[derive(Debug)]
pub(crate) struct Disowning {
    done: Epoch,
    /// The bins before it have been looked through.
    bin: Bin,
    /// The next block of that bin; [`NONE`] for its first.
    next: Id,
    /// The oldest and the newest epoch of the blocks that stay.
    kept: (u64, u64),
    /// The first result of [`Core::change_counters`].
    since: Option<[u64; 4]>,
}

impl Disowning {
    /// All work up to `done` is completed.
    pub(crate) fn up_to(done: Epoch) -> Self {
        Self { done, bin: Bin::of(0), next: NONE, kept: (u64::MAX, 0), since: None }
    }
}

impl Core {
    /// All work of `owner` up to `done` is completed: those blocks become unowned, and are merged with unowned
    /// neighbours. O(free blocks of the owner), and O(1) if none of them is so old.
    pub(crate) fn disown(&mut self, owner: Owner, done: Epoch) {
        let mut looks = usize::MAX;
        let is_through = self.disown_some(owner, &mut Disowning::up_to(done), &mut looks);
        debug_assert!(is_through);
    }

    /// As [`disown`](Self::disown), for at most `looks` blocks, which are counted down. Returns `true` if all blocks
    /// have been looked at.
    ///
    /// Other threads may use the core between two calls. A block that has meanwhile come into a finished bin, such as a
    /// rest after a cut, may be left for another time.
    pub(crate) fn disown_some(&mut self, owner: Owner, disowning: &mut Disowning, looks: &mut usize) -> bool {
        let Disowning { done, .. } = *disowning;
        let place = self.owners.place(owner);
        if owner == Owner::UNOWNED || place.free_units == 0 || place.oldest > done.0 {
            return true;
        }
        let now = self.change_counters();
        let is_undisturbed = *disowning.since.get_or_insert(now) == now;
        while let Some(bin) = self.owners.place(owner).bins.next_used(disowning.bin) {
            let is_there = bin == disowning.bin && self.is_in(disowning.next, owner, bin);
            let mut id =
                if is_there { disowning.next } else { self.owners.place(owner).bins.first(bin, End::Front) };
            while id != NONE {
                let Some(left) = looks.checked_sub(1) else {
                    (disowning.bin, disowning.next) = (bin, id);
                    return false;
                };
                *looks = left;
                // Read before disowning the block, which moves no other block of the owner.
                let (next, epoch) = (self.nodes[id].next, self.nodes[id].epoch);
                if epoch <= done.0 {
                    self.unlink(id);
                    self.join(id, Owner::UNOWNED, 0, false);
                } else {
                    disowning.kept = (disowning.kept.0.min(epoch), disowning.kept.1.max(epoch));
                }
                id = next;
            }
            let Some(next) = bin.next() else { break };
            (disowning.bin, disowning.next) = (next, NONE);
        }
        // If the core has changed, the old bounds stay, which are wider.
        if is_undisturbed {
            let place = self.owners.place_mut(owner);
            (place.oldest, place.newest) = disowning.kept;
        }
        true
    }

    /// Returns `true` if a node is still a free block of that owner in that bin.
    fn is_in(&self, id: Id, owner: Owner, bin: Bin) -> bool {
        let node = &self.nodes[id];
        node.holder == owner && self.ranges.zone(node.address).bin(node.units) == bin
    }

    /// Counters of which one grows whenever a free block may have come into a bin: of frees, of allocations, which may
    /// leave a rest, of `gather`, and of growths in place. None ever decreases.
    fn change_counters(&self) -> [u64; 4] {
        [self.released, self.released + self.out_blocks() as u64, self.gathered, self.regrown]
    }
}
