//! How is room taken?

use smallvec::SmallVec;

use super::lent::ALWAYS_MEET;
use super::{Above, AllowanceNode, LENT, is_lent};
use crate::adaptor::allowance::limit_refusal::LimitRefusal;
use crate::adaptor::allowance::shared::SharedRefusal;
use crate::sync::{Arc, Ordering};

/// The outcome of taking from a node.
#[derive(Clone, Copy)]
pub(in super::super) struct TakeOutcome {
    used: u64,
    crosses: bool,
}

/// The nodes whose soft limit was crossed: how far above the one that was taken from, and what was out then.
pub(in super::super) type Crossings = SmallVec<[(usize, u64); 2]>;

/// A count that leaves no room, as it was read.
pub(super) struct NoRoom {
    taken: u64,
    /// The other processes have left none.
    shared: Option<SharedRefusal>,
}

impl NoRoom {
    fn of(taken: u64) -> Self {
        Self { taken, shared: None }
    }
}

/// The count, if it leaves no room for `bytes` below `limit`.
#[inline]
fn is_short(bytes: u64, taken: u64, limit: u64) -> Option<NoRoom> {
    (bytes > limit.saturating_sub(taken & !LENT)).then_some(NoRoom::of(taken))
}

impl AllowanceNode {
    /// Takes `bytes` from here, where nothing is above.
    #[inline]
    pub(in super::super) fn take_at_root(self: &Arc<Self>, bytes: u64) -> Result<TakeOutcome, LimitRefusal> {
        if is_lent(self.taken.load(Ordering::Relaxed)) && (self.purses.take(bytes) || self.refill(bytes)) {
            return Ok(TakeOutcome::WITHIN);
        }
        match self.exchange(bytes, 0) {
            Ok((before, has_met)) => {
                if has_met || ALWAYS_MEET {
                    self.meet();
                }
                Ok(self.note(before, bytes))
            }
            Err(NoRoom { taken, .. }) if !is_lent(taken) => Err(self.refuse(0, taken)),
            Err(_) => self.take_in_turn(bytes).map(|crossings| match crossings.first() {
                Some(&(_, used)) => TakeOutcome { used, crosses: true },
                None => TakeOutcome::WITHIN,
            }),
        }
    }

    /// Takes `bytes` from here and from all above, or from none.
    #[inline]
    pub(in super::super) fn take_in_a_tree(self: &Arc<Self>, bytes: u64) -> Result<Crossings, LimitRefusal> {
        if is_lent(self.taken.load(Ordering::Relaxed)) && self.purses.take(bytes) {
            return Ok(Crossings::new());
        }
        self.take_in_turn(bytes)
    }

    /// Takes `bytes` from here and from all above, if that leaves each at or below its soft limit, and no thread that has the turn
    /// is in the way. Otherwise nothing has changed, and nothing is counted as refused.
    #[inline]
    pub(in super::super) fn take_at_once(self: &Arc<Self>, bytes: u64) -> bool {
        if is_lent(self.taken.load(Ordering::Relaxed)) && self.purses.take(bytes) {
            return true;
        }
        if !self.stands_alone() {
            return self.take_at_once_in_turn(bytes);
        }
        if is_lent(self.taken.load(Ordering::Relaxed)) && self.refill(bytes) {
            return true;
        }
        let Some(has_met) = self.take_below_ceiling(bytes) else { return false };
        if has_met || ALWAYS_MEET {
            self.meet();
        }
        true
    }

    /// As [`take_at_once`](Self::take_at_once), below a root.
    #[inline(never)]
    fn take_at_once_in_turn(self: &Arc<Self>, bytes: u64) -> bool {
        if self.tree.is_forked_child() {
            return false;
        }
        let Some(mut lenders) = self.tree.try_lock() else { return false };
        if self.purses.is_open() && self.lend(bytes, &mut lenders) {
            return true;
        }
        let below_the_root = || self.upwards().filter(|node| !node.is_root());
        if below_the_root().any(|node| bytes > node.ceiling().saturating_sub(node.taken())) {
            return false;
        }
        // The root last of all that can fail: its count is the one that others may have changed since it was looked at.
        if !self.upwards().last().is_some_and(|root| root.take_at_once_of_root(bytes)) {
            return false;
        }
        for node in below_the_root() {
            // Relaxed: as in `take_from_each`.
            let taken = node.taken.load(Ordering::Relaxed) + bytes;
            node.taken.store(taken, Ordering::Relaxed);
            node.note_peak(taken & !LENT);
        }
        true
    }

    /// As [`take_below_ceiling`](Self::take_below_ceiling), and from the limit that other processes share. The caller has the turn.
    fn take_at_once_of_root(&self, bytes: u64) -> bool {
        let Above::Shared(membership) = &self.above else { return self.take_below_ceiling(bytes).is_some() };
        // Looked at before, so that others are not refused because of what would go back.
        let is_room = bytes <= self.ceiling().saturating_sub(self.taken());
        if !is_room || membership.take_at_once(bytes).is_err() {
            return false;
        }
        let is_taken = self.take_below_ceiling(bytes).is_some();
        if !is_taken {
            membership.give(bytes);
        }
        is_taken
    }

    /// Takes `bytes` from a root alone, unless that were more than its soft limit: a soft limit that is set meanwhile takes effect
    /// from the next request on. Returns whether another thread was met.
    #[inline]
    fn take_below_ceiling(&self, bytes: u64) -> Option<bool> {
        let (before, has_met) = self.exchange_below(bytes, 0, |_| self.ceiling()).ok()?;
        self.note_peak(before + bytes);
        Some(has_met)
    }

    /// Takes `bytes` with the turn of the tree. What is lent is called back where it is in the way.
    #[inline(never)]
    fn take_in_turn(self: &Arc<Self>, bytes: u64) -> Result<Crossings, LimitRefusal> {
        if self.tree.is_forked_child() {
            return Err(self.refuse(0, self.taken()));
        }
        let (mut lenders, has_met) = match self.tree.try_lock() {
            Some(lenders) => (lenders, ALWAYS_MEET),
            None => (self.tree.lock(), true),
        };
        let may_lend = self.purses.is_open() || has_met && self.has_met_enough();
        if may_lend && self.lend(bytes, &mut lenders) {
            return Ok(Crossings::new());
        }
        // Dropped behind the turn, on each way out.
        let mut handles = Vec::new();
        loop {
            match self.take_from_each(bytes) {
                Ok(crossings) => {
                    drop(lenders);
                    return Ok(crossings);
                }
                Err((height, NoRoom { taken, shared })) if !is_lent(taken) => {
                    drop(lenders);
                    let refusing = self.upwards().nth(height).unwrap_or(self);
                    return Err(self
                        .too_large(bytes)
                        .unwrap_or_else(|| LimitRefusal { shared, ..refusing.refuse(height, taken) }));
                }
                // A request that no room is enough for calls nothing back.
                Err(_) if bytes > self.largest() => {
                    drop(lenders);
                    return Err(self.too_large(bytes).unwrap_or_else(|| self.refuse(0, self.used())));
                }
                Err(_) => lenders = self.recall(lenders, &mut handles),
            }
        }
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
            } else if let Some(short) = node.is_short_of(bytes, node.taken.load(Ordering::Relaxed)) {
                return Err((height, short));
            }
        }
        for (height, node) in self.upwards().enumerate().filter(|(_, node)| !node.is_root()) {
            let before = node.taken.load(Ordering::Relaxed);
            // Relaxed: all who write have the turn; others read figures. The sum is at most `hard`, which was looked at above.
            node.taken.store(before + bytes, Ordering::Relaxed);
            note(height, node.note(before & !LENT, bytes));
        }
        Ok(crossings)
    }

    /// Takes `bytes` from a root, and before from the limit that other processes share: what is out here is never more than this
    /// process has of that. Returns what was taken before. The caller has the turn.
    fn take_from_root(&self, bytes: u64) -> Result<u64, NoRoom> {
        let Above::Shared(membership) = &self.above else { return Ok(self.exchange(bytes, 0)?.0) };
        let refused = |refusal| NoRoom { shared: Some(refusal), ..NoRoom::of(self.taken()) };
        membership.take(bytes).map_err(refused)?;
        // There is room: what is taken here is a part of what all have.
        let (before, _) = self.exchange(bytes, 0).inspect_err(|_| membership.give(bytes))?;
        Ok(before)
    }

    /// The count, if it leaves no room for `bytes`. While some is lent, there is none above the soft limit either.
    #[inline]
    fn is_short_of(&self, bytes: u64, taken: u64) -> Option<NoRoom> {
        is_short(bytes, taken, self.limit_at(taken))
    }

    /// The limit of what is taken, where this much is taken.
    #[inline]
    fn limit_at(&self, taken: u64) -> u64 {
        if is_lent(taken) { self.ceiling() } else { self.hard }
    }

    /// The lower one of the limits.
    pub(super) fn ceiling(&self) -> u64 {
        self.soft.bytes().map_or(self.hard, |soft| soft.min(self.hard))
    }

    /// Takes from a root alone, and sets `flag`. Returns what was taken before and whether another thread was met, or the count
    /// that was in the way.
    #[inline]
    pub(super) fn exchange(&self, bytes: u64, flag: u64) -> Result<(u64, bool), NoRoom> {
        self.exchange_below(bytes, flag, |taken| self.limit_at(taken))
    }

    /// As [`exchange`](Self::exchange), below another limit.
    #[inline]
    fn exchange_below(
        &self,
        bytes: u64,
        flag: u64,
        limit: impl Fn(u64) -> u64,
    ) -> Result<(u64, bool), NoRoom> {
        let mut taken = self.taken.load(Ordering::Relaxed);
        let mut has_met = false;
        loop {
            if let Some(short) = is_short(bytes, taken | flag, limit(taken | flag)) {
                return Err(short);
            }
            let next = (taken + bytes) | flag;
            // Acquire: pairs with the release in `give`. Who takes what another gave comes after what the other did before:
            // when a block is asked for, the one that made room for it is back with the upstream.
            match self.taken.compare_exchange_weak(taken, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(before) => return Ok((before & !LENT, has_met)),
                Err(now) => (taken, has_met) = (now, true),
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
    pub(super) fn note_peak(&self, taken: u64) {
        // Most of the time it is no peak, and then nothing is written.
        if taken > self.peak() {
            // Relaxed: a figure.
            self.peak.fetch_max(taken, Ordering::Relaxed);
        }
    }

    /// The most that may be had at a time, of this and of all above.
    pub(in super::super) fn largest(&self) -> u64 {
        self.upwards().map(|node| node.hard).min().unwrap_or(0)
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
    /// Nothing was crossed.
    const WITHIN: Self = Self { used: 0, crosses: false };

    /// What was out then, if it is more than the soft limit and was not before.
    #[inline]
    pub(in super::super) fn crossing(self) -> Option<u64> {
        self.crosses.then_some(self.used)
    }
}
