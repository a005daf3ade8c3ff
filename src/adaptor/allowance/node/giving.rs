//! How does room go back?

use super::{Above, AllowanceNode, LENT, is_lent};
use crate::sync::Ordering;

impl AllowanceNode {
    /// Gives `bytes` back that were taken from here.
    #[inline]
    pub(in super::super) fn give(&self, bytes: u64) {
        let is_lent = is_lent(self.taken.load(Ordering::Relaxed));
        if is_lent && self.purses.put(bytes, 2 * self.share()) {
            return;
        }
        if is_lent || !self.stands_alone() {
            self.give_in_turn(bytes);
        } else {
            self.give_to_root(bytes);
        }
    }

    /// Gives `bytes` back with the turn of the tree, and half of what is in the purse of this thread: it is full.
    #[inline(never)]
    fn give_in_turn(&self, bytes: u64) {
        if self.tree.is_forked_child() {
            // The bytes stay with it.
            return;
        }
        let lenders = if !self.stands_alone() {
            Some(self.tree.lock())
        } else if self.purses.is_open() {
            self.tree.try_lock()
        } else {
            None
        };
        let Some(_lenders) = lenders else {
            self.give_to_root(bytes);
            return;
        };
        let spare = if bytes <= self.share() { self.purses.halve() } else { 0 };
        self.give_to_each(bytes + spare);
    }

    /// Gives back here and to all above. The caller has the turn, or this is a root.
    pub(super) fn give_to_each(&self, bytes: u64) {
        let mut bytes = bytes;
        for node in self.upwards() {
            if node.is_root() {
                let given = node.give_to_root(bytes);
                // Behind the count here, which is a part of that of all.
                if let Above::Shared(membership) = &node.above {
                    membership.give(given);
                }
                continue;
            }
            let before = node.taken.load(Ordering::Relaxed);
            // What was not out here is not this node's above either: it would be another child's.
            bytes = node.at_most(bytes, before);
            // Relaxed: as where it is taken.
            node.taken.store(before - bytes, Ordering::Relaxed);
        }
    }

    /// Returns how much of it was out.
    #[inline]
    fn give_to_root(&self, bytes: u64) -> u64 {
        // Relaxed: whoever gives comes after whoever took, so what is read counts those bytes.
        if bytes > self.taken() {
            return self.give_rest(bytes);
        }
        // Release: pairs with the acquire in `exchange`.
        let before = self.taken.fetch_sub(bytes, Ordering::Release);
        let given = self.at_most(bytes, before);
        if given < bytes {
            // Another thread was giving too much in the same moment.
            self.taken.fetch_add(bytes - given, Ordering::Release);
        }
        given
    }

    /// Gives back what is out, which is less than there is to give: by an exchange, because another thread must not see less than
    /// nothing, which would be room for nobody.
    #[cold]
    fn give_rest(&self, bytes: u64) -> u64 {
        let mut before = self.taken.load(Ordering::Relaxed);
        loop {
            // Others may take meanwhile.
            let out = before & !LENT;
            let given = if out > self.hard { 0 } else { bytes.min(out) };
            let after = before - given;
            // Release: as in `give_to_root`.
            match self.taken.compare_exchange(before, after, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return self.at_most(bytes, before),
                Err(now) => before = now,
            }
        }
    }

    /// What can go back of `bytes`: more than is out goes back only where a block is freed twice, over an upstream that has not noticed.
    #[inline]
    fn at_most(&self, bytes: u64, taken: u64) -> u64 {
        let out = taken & !LENT;
        // Above the limit: below zero, while another thread that has given too much is about to give some of that back.
        let out = if out > self.hard { 0 } else { out };
        if bytes > out { self.note_excess(out) } else { bytes }
    }

    #[cold]
    fn note_excess(&self, out: u64) -> u64 {
        // Relaxed: a figure for people.
        self.excesses.fetch_add(1, Ordering::Relaxed);
        out
    }
}
