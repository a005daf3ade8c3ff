//! What do threads hold in advance?

use super::{AllowanceNode, LENT};
use crate::adaptor::allowance::lending::Lenders;
use crate::sync::{Arc, Ordering, Seat, TokenGuard, yield_now};

/// How often threads meet at a node before one of them is lent room. Opening a purse and calling it back costs two exchanges
/// and the turn: with one opening in sixteen meetings that is an eighth of what the meetings cost themselves.
const MEETINGS: u64 = if cfg!(loom) { 1 } else { 16 };

/// In a model threads need not meet to be lent room: it would take schedules, and show nothing.
pub(super) const ALWAYS_MEET: bool = cfg!(loom);

/// The part of the room that is left which one thread is lent, at most: threads by the dozen leave most of it to all.
const PART: u64 = if cfg!(loom) { 4 } else { 64 };

/// The most that one thread is lent at a time. One that takes and gives back blocks of 256 B to 1 MiB, 32 to 64 at a time,
/// moves by more than this once in 250 calls.
const MOST: u64 = 4 << 20;

/// Less than this is not lent: it would be used up by a few small blocks.
const LEAST: u64 = if cfg!(loom) { 256 } else { 16 << 10 };

impl AllowanceNode {
    /// Another thread wrote the count of this root between a look at it and an exchange.
    #[cold]
    pub(super) fn meet(self: &Arc<Self>) {
        if self.has_met_enough()
            && let Some(mut lenders) = self.tree.try_lock()
        {
            self.lend(0, &mut lenders);
        }
    }

    pub(super) fn has_met_enough(&self) -> bool {
        // Relaxed: an estimate, of which some are lost where two threads reset it.
        if self.share() < LEAST || self.meetings.fetch_add(1, Ordering::Relaxed) + 1 < MEETINGS {
            return false;
        }
        self.meetings.store(0, Ordering::Relaxed);
        true
    }

    /// Lends room to this thread, as when it has met others often enough.
    #[cfg(all(test, not(loom)))]
    pub(in super::super) fn lend_now(self: &Arc<Self>) -> bool {
        self.lend(0, &mut self.tree.lock())
    }

    /// The purse of this thread has not enough: takes `bytes`, and more for the purse.
    #[cold]
    pub(super) fn refill(self: &Arc<Self>, bytes: u64) -> bool {
        // Where another thread has the turn, this one goes to the count.
        self.purses.is_open()
            && self.tree.try_lock().is_some_and(|mut lenders| self.lend(bytes, &mut lenders))
    }

    /// The most that a thread is lent at a time, however much is left. Larger blocks never come from a purse.
    pub(super) fn share(&self) -> u64 {
        (self.hard / PART).min(MOST)
    }

    /// Takes `bytes`, and more for the purse of this thread. Returns `false` if there is not enough room for that below the
    /// limits; then nothing has changed.
    pub(super) fn lend(self: &Arc<Self>, bytes: u64, lenders: &mut Lenders) -> bool {
        let left = self.upwards().map(|node| node.ceiling().saturating_sub(node.taken())).min().unwrap_or(0);
        let credit = (left.saturating_sub(bytes) / PART).min(MOST) & !0xFF;
        if credit < LEAST || bytes > self.share() {
            return false;
        }
        let (Some(seat), Some(root)) = (Seat::take(), self.upwards().last()) else { return false };
        // What threads hold in advance cannot be called back for another process.
        if !root.stands_alone() {
            return false;
        }
        let sum = bytes + credit;
        // The root first: its count is the one that others may have changed since it was looked at.
        let Ok((before, _)) = root.exchange(sum, LENT) else { return false };
        root.note_peak(before + sum);
        for node in self.upwards().filter(|node| !node.is_root()) {
            let taken = node.taken() + sum;
            // Relaxed: as where blocks are taken.
            node.taken.store(taken | LENT, Ordering::Relaxed);
            node.note_peak(taken);
        }
        self.purses.open(seat, credit);
        // Relaxed, here and below: with the turn.
        if self.lender.load(Ordering::Relaxed) == 0 {
            self.lender.store(lenders.enter(self), Ordering::Relaxed);
        }
        true
    }

    /// Calls back what the tree has lent. Returns the turn.
    #[cold]
    pub(super) fn recall<'a>(
        &'a self,
        mut lenders: TokenGuard<'a, Lenders>,
        handles: &mut Vec<Arc<Self>>,
    ) -> TokenGuard<'a, Lenders> {
        while lenders.recall(handles).is_err() {
            drop(lenders);
            yield_now();
            lenders = self.tree.lock();
        }
        lenders
    }

    /// Closes the purses, and gives back what was in them. The caller has the turn.
    pub(in super::super) fn call_back(&self) {
        let credit = self.purses.close();
        if credit > 0 {
            self.give_to_each(credit);
        }
    }

    /// Nothing of the tree is lent any more. The caller has the turn.
    pub(in super::super) fn end_lending(&self) {
        self.lender.store(0, Ordering::Relaxed);
        for node in self.upwards() {
            // Release: who sees that nothing is lent sees what was called back. The bit and the count are one word, so that is
            // so for the count anyway.
            node.taken.fetch_and(!LENT, Ordering::Release);
        }
    }

    /// Sets the soft limit. What is lent lies below it, before and after.
    pub(in super::super) fn set_soft(&self, bytes: u64) {
        let mut handles = Vec::new();
        let Some(lenders) = self.tree.lock_unless_forked() else { return };
        let lenders = self.recall(lenders, &mut handles);
        self.soft.set_bytes(bytes);
        drop(lenders);
    }
}
