//! How is room taken?

use smallvec::SmallVec;

use super::{Above, AllowanceNode};
use crate::adaptor::allowance::limit_refusal::LimitRefusal;
use crate::adaptor::allowance::shared::SharedRefusal;
use crate::sync::Ordering;

/// The outcome of taking from a node.
#[derive(Clone, Copy)]
pub(in super::super) struct TakeOutcome {
    used: u64,
    crosses: bool,
}

/// The nodes whose soft limit was crossed: how far above the one that was taken from, and what was out then.
pub(in super::super) type Crossings = SmallVec<[(usize, u64); 2]>;

/// A count that leaves no room, as it was read.
struct NoRoom {
    used: u64,
    /// The other processes have left none.
    shared: Option<SharedRefusal>,
}

/// The count, if it leaves no room for `bytes` below `limit`.
#[inline]
fn is_short(bytes: u64, used: u64, limit: u64) -> Option<NoRoom> {
    (bytes > limit.saturating_sub(used)).then_some(NoRoom { used, shared: None })
}

impl AllowanceNode {
    /// Takes `bytes` from here, where nothing is above.
    #[inline]
    pub(in super::super) fn take_at_root(&self, bytes: u64) -> Result<TakeOutcome, LimitRefusal> {
        match self.exchange(bytes, self.hard) {
            Ok(before) => Ok(self.note(before, bytes)),
            Err(short) => Err(self.refuse(0, short.used)),
        }
    }

    /// Takes `bytes` from here and from all above, if that leaves each at or below its soft limit, and no thread that has the turn
    /// is in the way. Otherwise nothing has changed, and nothing is counted as refused.
    #[inline]
    pub(in super::super) fn take_at_once(&self, bytes: u64) -> bool {
        if self.stands_alone() { self.take_below_ceiling(bytes) } else { self.take_at_once_in_turn(bytes) }
    }

    /// As [`take_at_once`](Self::take_at_once), below a root.
    #[inline(never)]
    fn take_at_once_in_turn(&self, bytes: u64) -> bool {
        let Some(_turn) = self.turn.try_lock_unless_forked() else { return false };
        let below_the_root = || self.upwards().filter(|node| !node.is_root());
        if below_the_root().any(|node| is_short(bytes, node.used(), node.ceiling()).is_some()) {
            return false;
        }
        // The root last of all that can fail: its count is the one that others may have changed since it was looked at.
        if !self.upwards().last().is_some_and(|root| root.take_at_once_of_root(bytes)) {
            return false;
        }
        below_the_root().for_each(|node| node.note_peak(node.add(bytes) + bytes));
        true
    }

    /// As [`take_below_ceiling`](Self::take_below_ceiling), and from the limit that other processes share. The caller has the turn.
    fn take_at_once_of_root(&self, bytes: u64) -> bool {
        let Above::Shared(membership) = &self.above else { return self.take_below_ceiling(bytes) };
        // Looked at before, so that others are not refused because of what would go back.
        let is_room = is_short(bytes, self.used(), self.ceiling()).is_none();
        if !is_room || membership.take_at_once(bytes).is_err() {
            return false;
        }
        let is_taken = self.take_below_ceiling(bytes);
        if !is_taken {
            membership.give(bytes);
        }
        is_taken
    }

    /// Takes `bytes` from a root alone, unless that were more than its soft limit: a soft limit that is set meanwhile takes effect
    /// from the next request on.
    #[inline]
    fn take_below_ceiling(&self, bytes: u64) -> bool {
        let before = self.exchange(bytes, self.ceiling());
        before.map(|before| self.note_peak(before + bytes)).is_ok()
    }

    /// Takes `bytes` from here and from all above, or from none.
    #[inline(never)]
    pub(in super::super) fn take_in_turn(&self, bytes: u64) -> Result<Crossings, LimitRefusal> {
        let Some(turn) = self.turn.lock_unless_forked() else { return Err(self.refuse(0, self.used())) };
        let outcome = self.take_from_each(bytes);
        drop(turn);
        outcome.map_err(|(height, NoRoom { used, shared })| {
            let refusing = self.upwards().nth(height).unwrap_or(self);
            self.too_large(bytes).unwrap_or_else(|| LimitRefusal { shared, ..refusing.refuse(height, used) })
        })
    }

    /// Takes `bytes` from here and from all above, or from none. The caller has the turn.
    fn take_from_each(&self, bytes: u64) -> Result<Crossings, (usize, NoRoom)> {
        let mut crossings = Crossings::new();
        let mut note =
            |height, taking: TakeOutcome| crossings.extend(taking.crossing().map(|used| (height, used)));
        for (height, node) in self.upwards().enumerate() {
            if node.is_root() {
                let before = node.take_from_root(bytes).map_err(|short| (height, short))?;
                note(height, node.note(before, bytes));
            } else if let Some(short) = is_short(bytes, node.used(), node.hard) {
                return Err((height, short));
            }
        }
        for (height, node) in self.upwards().enumerate().filter(|(_, node)| !node.is_root()) {
            note(height, node.note(node.add(bytes), bytes));
        }
        Ok(crossings)
    }

    /// Takes `bytes` from a root, and before from the limit that other processes share: what is out here is never more than this
    /// process has of that. Returns what was out before. The caller has the turn.
    fn take_from_root(&self, bytes: u64) -> Result<u64, NoRoom> {
        let Above::Shared(membership) = &self.above else { return self.exchange(bytes, self.hard) };
        let refused = |refusal| NoRoom { used: self.used(), shared: Some(refusal) };
        membership.take(bytes).map_err(refused)?;
        // There is room: what is taken here is a part of what all have.
        self.exchange(bytes, self.hard).inspect_err(|_| membership.give(bytes))
    }

    /// Adds to a count below the root, which has room: it was looked at. Returns what was out before. The caller has the turn.
    fn add(&self, bytes: u64) -> u64 {
        let before = self.used();
        // Relaxed: all who write have the turn; others read figures.
        self.used.store(before + bytes, Ordering::Relaxed);
        before
    }

    /// The lower one of the limits.
    fn ceiling(&self) -> u64 {
        self.soft.bytes().map_or(self.hard, |soft| soft.min(self.hard))
    }

    /// Takes from a root alone. Returns what was out before, or the count that was in the way.
    #[inline]
    fn exchange(&self, bytes: u64, limit: u64) -> Result<u64, NoRoom> {
        let mut used = self.used();
        loop {
            if let Some(short) = is_short(bytes, used, limit) {
                return Err(short);
            }
            // Acquire: pairs with the release in `give`. Who takes what another gave comes after what the other did before:
            // when a block is asked for, the one that made room for it is back with the upstream.
            match self.used.compare_exchange_weak(used, used + bytes, Ordering::Acquire, Ordering::Relaxed) {
                Ok(before) => return Ok(before),
                Err(now) => used = now,
            }
        }
    }

    /// Writes down what follows from `bytes` more than `before`.
    #[inline]
    fn note(&self, before: u64, bytes: u64) -> TakeOutcome {
        let used = before + bytes;
        self.note_peak(used);
        // Of all who take, the one that crosses sees it, because each has a `before` of its own.
        let crosses = self.soft.is_crossed(before, used);
        if crosses {
            self.soft.count();
        }
        TakeOutcome { used, crosses }
    }

    #[inline]
    fn note_peak(&self, used: u64) {
        // Most of the time it is no peak, and then nothing is written.
        if used > self.peak() {
            // Relaxed: a figure.
            self.peak.fetch_max(used, Ordering::Relaxed);
        }
    }

    /// Refuses `bytes` if the limit of a node is less: more room elsewhere would not help. The caller has not locked
    /// the tree.
    #[cold]
    fn too_large(&self, bytes: u64) -> Option<LimitRefusal> {
        let (height, node) = self.upwards().enumerate().find(|(_, node)| bytes > node.hard)?;
        Some(node.refuse(height, node.used()))
    }

    #[cold]
    pub(in super::super) fn refuse(&self, height: usize, used: u64) -> LimitRefusal {
        // Relaxed: a figure.
        self.refusals.fetch_add(1, Ordering::Relaxed);
        LimitRefusal { height, used, shared: None }
    }
}

impl TakeOutcome {
    /// What was out then, if it is more than the soft limit and was not before.
    #[inline]
    pub(in super::super) fn crossing(self) -> Option<u64> {
        self.crosses.then_some(self.used)
    }
}
