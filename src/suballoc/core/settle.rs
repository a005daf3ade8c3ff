//! How a stream's memory becomes nobody's.

use super::bins::{Bin, End};
use super::node::NONE;
use super::{Core, Owner};
use crate::stream::Epoch;

impl Core {
    /// Everything of `owner` up to `done` is over: those blocks become nobody's, and are joined with neighbours that are.
    /// O(free blocks of the owner), and O(1) if none of them is so old.
    pub(crate) fn settle(&mut self, owner: Owner, done: Epoch) {
        let place = self.owners.place(owner);
        if owner == Owner::NOBODY || place.free_units == 0 || place.oldest > done.0 {
            return;
        }
        let (mut oldest, mut newest) = (u64::MAX, 0);
        let mut from = Bin::of(0);
        while let Some(bin) = self.owners.place(owner).bins.at_least(from) {
            let mut id = self.owners.place(owner).bins.first(bin, End::Front);
            while id != NONE {
                // Read first: settling this block moves no other block of the owner.
                let (next, epoch) = (self.nodes[id].next, self.nodes[id].epoch);
                if epoch <= done.0 {
                    self.unlink(id);
                    self.join(id, Owner::NOBODY, 0, false);
                } else {
                    (oldest, newest) = (oldest.min(epoch), newest.max(epoch));
                }
                id = next;
            }
            match bin.larger() {
                Some(larger) => from = larger,
                None => break,
            }
        }
        let place = self.owners.place_mut(owner);
        (place.oldest, place.newest) = (oldest, newest);
    }
}
