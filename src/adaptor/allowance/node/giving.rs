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
        if is_lent || !self.stands_alone() { self.give_in_turn(bytes) } else { self.give_to_root(bytes) }
    }

    /// Gives `bytes` back with the turn of the tree, and half of what is in the purse of this thread: it is full.
    #[inline(never)]
    fn give_in_turn(&self, bytes: u64) {
        if self.tree.is_of_parent() {
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
        let Some(_lenders) = lenders else { return self.give_to_root(bytes) };
        let spare = if bytes <= self.share() { self.purses.halve() } else { 0 };
        self.give_to_each(bytes + spare);
    }

    /// Gives back here and to all above. The caller has the turn, or this is a root.
    pub(super) fn give_to_each(&self, bytes: u64) {
        for node in self.upwards() {
            if node.is_root() {
                node.give_to_root(bytes);
                // Behind the count here, which is a part of that of all.
                if let Above::Shared(membership) = &node.above {
                    membership.give(bytes);
                }
                continue;
            }
            let before = node.taken.load(Ordering::Relaxed);
            debug_assert!(
                before & !LENT >= bytes,
                "{bytes} bytes were given back, of {before} that were out"
            );
            // Relaxed: as where it is taken.
            node.taken.store(before.saturating_sub(bytes), Ordering::Relaxed);
        }
    }

    #[inline]
    fn give_to_root(&self, bytes: u64) {
        // Release: pairs with the acquire in `exchange`.
        let before = self.taken.fetch_sub(bytes, Ordering::Release);
        debug_assert!(before & !LENT >= bytes, "{bytes} bytes were given back, of {before} that were out");
    }
}
