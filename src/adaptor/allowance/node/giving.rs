//! How does room go back?

use super::{Above, AllowanceNode};
use crate::sync::Ordering;

impl AllowanceNode {
    /// Gives `bytes` back that were taken from here.
    #[inline]
    pub(in super::super) fn give(&self, bytes: u64) {
        if self.stands_alone() {
            self.give_to_root(bytes);
        } else {
            self.give_to_each(bytes);
        }
    }

    /// Gives back here and to all above, with the turn. In a child of a fork the bytes stay with the parent.
    #[inline(never)]
    fn give_to_each(&self, mut bytes: u64) {
        let Some(_turn) = self.turn.lock_unless_forked() else { return };
        for node in self.upwards() {
            if node.is_root() {
                let given = node.give_to_root(bytes);
                // Behind the count here, which is a part of that of all.
                if let Above::Shared(membership) = &node.above {
                    membership.give(given);
                }
                continue;
            }
            let before = node.used();
            // What was not out here is not this node's above either: it would be another child's.
            bytes = node.at_most(bytes, before);
            // Relaxed: as where it is taken.
            node.used.store(before - bytes, Ordering::Relaxed);
        }
    }

    /// Returns how much of it was out.
    #[inline]
    fn give_to_root(&self, bytes: u64) -> u64 {
        // Relaxed: whoever gives comes after whoever took, so what is read counts those bytes.
        if bytes > self.used() {
            return self.give_rest(bytes);
        }
        // Release: pairs with the acquire in `exchange`.
        let before = self.used.fetch_sub(bytes, Ordering::Release);
        let given = self.at_most(bytes, before);
        if given < bytes {
            // Another thread was giving too much in the same moment.
            self.used.fetch_add(bytes - given, Ordering::Release);
        }
        given
    }

    /// Gives back what is out, which is less than there is to give: by an exchange, because another thread must not see less than
    /// nothing, which would be room for nobody.
    #[cold]
    fn give_rest(&self, bytes: u64) -> u64 {
        let mut before = self.used();
        loop {
            // Others may take meanwhile.
            let given = if before > self.hard { 0 } else { bytes.min(before) };
            let after = before - given;
            // Release: as in `give_to_root`.
            match self.used.compare_exchange(before, after, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return self.at_most(bytes, before),
                Err(now) => before = now,
            }
        }
    }

    /// What can go back of `bytes`: more than is out goes back only where a block is freed twice, over an upstream that has not noticed.
    #[inline]
    fn at_most(&self, bytes: u64, used: u64) -> u64 {
        // Above the limit: below zero, while another thread that has given too much is about to give some of that back.
        let out = if used > self.hard { 0 } else { used };
        if bytes > out { self.note_excess(out) } else { bytes }
    }

    #[cold]
    fn note_excess(&self, out: u64) -> u64 {
        // Relaxed: a figure for people.
        self.excesses.fetch_add(1, Ordering::Relaxed);
        out
    }
}
