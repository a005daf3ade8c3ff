//! How a stream's memory becomes nobody's.

use super::bins::{Bin, End};
use super::node::{Id, NONE};
use super::{Core, Owner};
use crate::stream::Epoch;

/// How far the settling of a stream's blocks has come, between two calls of [`Core::settle_some`].
#[derive(Debug)]
pub(crate) struct Settling {
    done: Epoch,
    /// Smaller bins have been looked through.
    bin: Bin,
    /// The next block of that bin; [`NONE`] for its first.
    next: Id,
    /// The oldest and the newest epoch of what stays.
    kept: (u64, u64),
    /// What [`Core::change_counters`] said first.
    since: Option<[u64; 3]>,
}

impl Settling {
    /// Everything up to `done` is over.
    pub(crate) fn up_to(done: Epoch) -> Self {
        Self { done, bin: Bin::of(0), next: NONE, kept: (u64::MAX, 0), since: None }
    }
}

impl Core {
    /// Everything of `owner` up to `done` is over: those blocks become nobody's, and are joined with neighbours that are.
    /// O(free blocks of the owner), and O(1) if none of them is so old.
    pub(crate) fn settle(&mut self, owner: Owner, done: Epoch) {
        let mut looks = usize::MAX;
        let is_through = self.settle_some(owner, &mut Settling::up_to(done), &mut looks);
        debug_assert!(is_through);
    }

    /// As [`settle`](Self::settle), looking at no more than `looks` blocks, which are counted down. Returns `true` if there
    /// are no more.
    ///
    /// Others may have been at the core between two calls. What has come into a bin that was looked through, as what is cut off
    /// a block does, may be left for another time.
    pub(crate) fn settle_some(&mut self, owner: Owner, settling: &mut Settling, looks: &mut usize) -> bool {
        let Settling { done, .. } = *settling;
        let place = self.owners.place(owner);
        if owner == Owner::UNOWNED || place.free_units == 0 || place.oldest > done.0 {
            return true;
        }
        let now = self.change_counters();
        let is_undisturbed = *settling.since.get_or_insert(now) == now;
        while let Some(bin) = self.owners.place(owner).bins.at_least(settling.bin) {
            let is_there = bin == settling.bin && self.is_in(settling.next, owner, bin);
            let mut id =
                if is_there { settling.next } else { self.owners.place(owner).bins.first(bin, End::Front) };
            while id != NONE {
                let Some(left) = looks.checked_sub(1) else {
                    (settling.bin, settling.next) = (bin, id);
                    return false;
                };
                *looks = left;
                // Read first: settling this block moves no other block of the owner.
                let (next, epoch) = (self.nodes[id].next, self.nodes[id].epoch);
                if epoch <= done.0 {
                    self.unlink(id);
                    self.join(id, Owner::UNOWNED, 0, false);
                } else {
                    settling.kept = (settling.kept.0.min(epoch), settling.kept.1.max(epoch));
                }
                id = next;
            }
            let Some(larger) = bin.larger() else { break };
            (settling.bin, settling.next) = (larger, NONE);
        }
        // Else the bounds stay, which are those of more blocks.
        if is_undisturbed {
            let place = self.owners.place_mut(owner);
            (place.oldest, place.newest) = settling.kept;
        }
        true
    }

    /// Whether a node is a free block of that owner in that bin: what it was when somebody else was not at the core yet.
    fn is_in(&self, id: Id, owner: Owner, bin: Bin) -> bool {
        let node = &self.nodes[id];
        node.holder == owner && Bin::of(node.units) == bin
    }

    /// Figures of which one changes whenever a free block may have come into a bin: how many have come back, how many have gone
    /// out, of which something may have been cut off, and how often runs were joined. No figure ever comes back to what it was.
    fn change_counters(&self) -> [u64; 3] {
        [self.released, self.released + self.out_blocks() as u64, self.gathered]
    }
}
