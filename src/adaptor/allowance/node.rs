//! `AllowanceNode`: the counts of one allowance, and how they change together.

use core::mem;

use smallvec::SmallVec;

use super::Allowance;
use super::crossing::SoftLimit;
use super::lending::{Lenders, Tree};
use super::limit_refusal::LimitRefusal;
use super::purse::Purses;
use super::shared::{Membership, SharedRefusal};
use crate::driver::DriverResult;
use crate::error::{LimitName, Member};
use crate::sync::{Arc, AtomicU64, Ordering, Seat, TokenGuard, yield_now};

/// Threads hold some of the room in advance, in purses. Bytes are counted in whole units of 256, so the bit is free.
const LENT: u64 = 1;

/// How often threads meet at a node before one of them is lent room. Opening a purse and calling it back costs two exchanges
/// and the turn: with one opening in sixteen meetings that is an eighth of what the meetings cost themselves.
const MEETINGS: u64 = if cfg!(loom) { 1 } else { 16 };

/// In a model threads need not meet to be lent room: it would take schedules, and show nothing.
const ALWAYS_MEET: bool = cfg!(loom);

/// The part of the room that is left which one thread is lent, at most: threads by the dozen leave most of it to all.
const PART: u64 = if cfg!(loom) { 4 } else { 64 };

/// The most that one thread is lent at a time. One that takes and gives back blocks of 256 B to 1 MiB, 32 to 64 at a time,
/// moves by more than this once in 250 calls.
const MOST: u64 = 4 << 20;

/// Less than this is not lent: it would be used up by a few small blocks.
const LEAST: u64 = if cfg!(loom) { 256 } else { 16 << 10 };

/// One node of a tree of limits.
///
/// Threads that take from nodes under a root do so one after the other. A thread gets the turn of the tree, checks that
/// all nodes below the root have room, takes from the root, and then updates the other counts. No taken bytes ever have
/// to be returned, so no request is refused because of one that fails itself. Only the root's count may change
/// meanwhile, by threads that take from the root without the turn. So it is last, and one exchange both checks and
/// takes.
///
/// Threads that meet at a node are lent room, each in a [purse](super::purse) of its own: bytes that are counted here and in
/// all nodes above, and that no block has yet. While some is lent, a thread takes from its purse and gives to it, and
/// writes no line of memory that another thread writes. What is lent lies below the hard and the soft limit of each node, so
/// what is taken from a purse crosses neither. A request that finds too little left calls everything back before it is
/// refused, and before it crosses a soft limit: see [`Tree`].
pub(super) struct AllowanceNode {
    /// Shared with the reports of what is refused: no copy is made of it.
    pub(super) name: LimitName,
    pub(super) hard: u64,
    above: Above,
    pub(super) soft: SoftLimit,
    /// What is out and what is lent, which together are never above `hard`; and the bit [`LENT`]. Changed by exchanges in a
    /// root, and below by who has the turn.
    taken: AtomicU64,
    /// As `taken`, without the bit.
    peak: AtomicU64,
    refusals: AtomicU64,
    /// How often threads have met here since one of them was lent room.
    meetings: AtomicU64,
    purses: Purses,
    /// Its number among the lenders of the tree; 0 while it is none. Changed by who has the turn.
    lender: AtomicU64,
    tree: Arc<Tree>,
}

/// What a node takes from, too.
pub(super) enum Above {
    Nothing,
    Parent(Allowance),
    /// The limit that this process shares with others. Only a root has one, and it is taken from with the turn of the tree.
    Shared(Box<Membership>),
}

/// The outcome of taking from a node.
#[derive(Clone, Copy)]
pub(super) struct TakeOutcome {
    used: u64,
    crosses: bool,
}

/// The nodes whose soft limit was crossed: how far above the one that was taken from, and what was out then.
pub(super) type Crossings = SmallVec<[(usize, u64); 2]>;

/// A count that leaves no room, as it was read.
struct NoRoom {
    taken: u64,
    /// The other processes have left none.
    shared: Option<SharedRefusal>,
}

impl NoRoom {
    fn of(taken: u64) -> Self {
        Self { taken, shared: None }
    }
}

#[inline]
fn is_lent(taken: u64) -> bool {
    taken & LENT != 0
}

/// The count, if it leaves no room for `bytes` below `limit`.
#[inline]
fn is_short(bytes: u64, taken: u64, limit: u64) -> Option<NoRoom> {
    (bytes > limit.saturating_sub(taken & !LENT)).then_some(NoRoom::of(taken))
}

impl AllowanceNode {
    pub(super) fn new(name: &str, hard: u64, above: Above) -> Self {
        let tree = match &above {
            Above::Parent(parent) => Arc::clone(&parent.node.tree),
            Above::Nothing | Above::Shared(_) => Arc::default(),
        };
        Self {
            // A name is a part of one line.
            name: name.replace(char::is_control, "_").into(),
            hard,
            above,
            soft: SoftLimit::default(),
            taken: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            meetings: AtomicU64::new(0),
            purses: Purses::default(),
            lender: AtomicU64::new(0),
            tree,
        }
    }

    /// # Errors
    ///
    /// That the driver is not initialised, in a child of the process that it was made in.
    pub(super) fn require_here(&self) -> DriverResult<()> {
        self.tree.require_here()
    }

    // Relaxed, as all that only tell: figures of about one moment.

    /// The live bytes. Exact while no other thread takes or returns any.
    pub(super) fn used(&self) -> u64 {
        if !is_lent(self.taken.load(Ordering::Relaxed)) {
            return self.taken();
        }
        let mut handles = Vec::new();
        let Some(lenders) = self.tree.lock_here() else { return self.taken() };
        let credit = lenders.credit_below(self, &mut handles);
        let taken = self.taken();
        drop(lenders);
        // Purses change without the turn, and the root does: between the two readings.
        taken.saturating_sub(credit)
    }

    /// What is out and what is lent.
    #[inline]
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed) & !LENT
    }

    #[inline]
    pub(super) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    pub(super) fn left(&self) -> u64 {
        let left = self.hard.saturating_sub(self.used());
        self.membership().map_or(left, |membership| left.min(membership.left()))
    }

    /// The bytes that threads hold in advance.
    pub(super) fn credit(&self) -> u64 {
        self.purses.credit()
    }

    /// This node and all above it.
    pub(super) fn upwards(&self) -> impl Iterator<Item = &Self> {
        core::iter::successors(Some(self), |node| node.above())
    }

    fn above(&self) -> Option<&Self> {
        self.parent().map(|parent| &*parent.node)
    }

    pub(super) fn parent(&self) -> Option<&Allowance> {
        match &self.above {
            Above::Parent(parent) => Some(parent),
            Above::Nothing | Above::Shared(_) => None,
        }
    }

    /// Returns `true` if nothing is taken from but this node.
    #[inline]
    pub(super) fn stands_alone(&self) -> bool {
        matches!(self.above, Above::Nothing)
    }

    fn is_root(&self) -> bool {
        !matches!(self.above, Above::Parent(_))
    }

    /// The name of this process among those that share the limit of this root; empty if it has none.
    pub(super) fn shared_as(&self) -> Option<&str> {
        match &self.above {
            Above::Shared(membership) => Some(membership.name()),
            Above::Nothing | Above::Parent(_) => None,
        }
    }

    /// The part of this process in a limit that it shares; `None` too in a child of the process that has it.
    pub(super) fn membership(&self) -> Option<&Membership> {
        match &self.above {
            Above::Shared(membership) if !membership.is_of_parent() => Some(membership),
            _ => None,
        }
    }

    /// The processes that share the limit of this root. With the turn, because those that are dead are cleared away.
    pub(super) fn members(&self) -> Vec<Member> {
        let Some(_lenders) = self.tree.lock_here() else { return Vec::new() };
        self.membership().map(Membership::members).unwrap_or_default()
    }

    /// Takes `bytes` from here, where nothing is above.
    #[inline]
    pub(super) fn take_at_root(self: &Arc<Self>, bytes: u64) -> Result<TakeOutcome, LimitRefusal> {
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
    pub(super) fn take_in_a_tree(self: &Arc<Self>, bytes: u64) -> Result<Crossings, LimitRefusal> {
        if is_lent(self.taken.load(Ordering::Relaxed)) && self.purses.take(bytes) {
            return Ok(Crossings::new());
        }
        self.take_in_turn(bytes)
    }

    /// Takes `bytes` from here and from all above, if that leaves each at or below its soft limit, and no thread that has the turn
    /// is in the way. Otherwise nothing has changed, and nothing is counted as refused.
    #[inline]
    pub(super) fn take_at_once(self: &Arc<Self>, bytes: u64) -> bool {
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
        if self.tree.is_of_parent() {
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
        if self.tree.is_of_parent() {
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
                // What no room is enough for calls nothing back.
                Err(_) if bytes > self.largest() => {
                    drop(lenders);
                    return Err(self.too_large(bytes).unwrap_or_else(|| self.refuse(0, self.used())));
                }
                Err(_) => lenders = self.recall(lenders, &mut handles),
            }
        }
    }

    /// Calls back what the tree has lent. Returns the turn.
    #[cold]
    fn recall<'a>(
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
    fn ceiling(&self) -> u64 {
        self.soft.bytes().map_or(self.hard, |soft| soft.min(self.hard))
    }

    /// Takes from a root alone, and sets `flag`. Returns what was taken before and whether another thread was met, or the count
    /// that was in the way.
    #[inline]
    fn exchange(&self, bytes: u64, flag: u64) -> Result<(u64, bool), NoRoom> {
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
    fn note_peak(&self, taken: u64) {
        // Most of the time it is no peak, and then nothing is written.
        if taken > self.peak() {
            // Relaxed: a figure.
            self.peak.fetch_max(taken, Ordering::Relaxed);
        }
    }

    /// The most that may be had at a time, of this and of all above.
    pub(super) fn largest(&self) -> u64 {
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
    pub(super) fn refuse(&self, height: usize, used: u64) -> LimitRefusal {
        // Relaxed: a figure.
        self.refusals.fetch_add(1, Ordering::Relaxed);
        LimitRefusal { height, used, shared: None }
    }

    /// Another thread wrote the count of this root between a look at it and an exchange.
    #[cold]
    fn meet(self: &Arc<Self>) {
        if self.has_met_enough()
            && let Some(mut lenders) = self.tree.try_lock()
        {
            self.lend(0, &mut lenders);
        }
    }

    fn has_met_enough(&self) -> bool {
        // Relaxed: an estimate, of which some are lost where two threads reset it.
        if self.share() < LEAST || self.meetings.fetch_add(1, Ordering::Relaxed) + 1 < MEETINGS {
            return false;
        }
        self.meetings.store(0, Ordering::Relaxed);
        true
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn tree_for_tests(&self) -> &Tree {
        &self.tree
    }

    /// Lends room to this thread, as when it has met others often enough.
    #[cfg(all(test, not(loom)))]
    pub(super) fn lend_now(self: &Arc<Self>) -> bool {
        self.lend(0, &mut self.tree.lock())
    }

    /// The purse of this thread has not enough: takes `bytes`, and more for the purse.
    #[cold]
    fn refill(self: &Arc<Self>, bytes: u64) -> bool {
        // Where another thread has the turn, this one goes to the count.
        self.purses.is_open()
            && self.tree.try_lock().is_some_and(|mut lenders| self.lend(bytes, &mut lenders))
    }

    /// The most that a thread is lent at a time, however much is left. Larger blocks never come from a purse.
    fn share(&self) -> u64 {
        (self.hard / PART).min(MOST)
    }

    /// Takes `bytes`, and more for the purse of this thread. Returns `false` if there is not enough room for that below the
    /// limits; then nothing has changed.
    fn lend(self: &Arc<Self>, bytes: u64, lenders: &mut Lenders) -> bool {
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

    /// Closes the purses, and gives back what was in them. The caller has the turn.
    pub(super) fn call_back(&self) {
        let credit = self.purses.close();
        if credit > 0 {
            self.give_to_each(credit);
        }
    }

    /// Nothing of the tree is lent any more. The caller has the turn.
    pub(super) fn end_lending(&self) {
        self.lender.store(0, Ordering::Relaxed);
        for node in self.upwards() {
            // Release: who sees that nothing is lent sees what was called back. The bit and the count are one word, so that is
            // so for the count anyway.
            node.taken.fetch_and(!LENT, Ordering::Release);
        }
    }

    /// Sets the soft limit. What is lent lies below it, before and after.
    pub(super) fn set_soft(&self, bytes: u64) {
        let mut handles = Vec::new();
        let Some(lenders) = self.tree.lock_here() else { return };
        let lenders = self.recall(lenders, &mut handles);
        self.soft.set_bytes(bytes);
        drop(lenders);
    }

    /// Gives `bytes` back that were taken from here.
    #[inline]
    pub(super) fn give(&self, bytes: u64) {
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
    fn give_to_each(&self, bytes: u64) {
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

    fn take_parent(&mut self) -> Option<Allowance> {
        self.parent()?;
        match mem::replace(&mut self.above, Above::Nothing) {
            Above::Parent(parent) => Some(parent),
            Above::Nothing | Above::Shared(_) => None,
        }
    }

    /// The last handle is gone: what threads hold in advance goes back to the nodes above.
    fn retire(&self) {
        // Relaxed: nobody else has the node. It is entered again by none, and those who called it back meanwhile had a handle.
        if self.lender.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(mut lenders) = self.tree.lock_here() else { return };
        self.call_back();
        lenders.leave(self.lender.load(Ordering::Relaxed));
        self.lender.store(0, Ordering::Relaxed);
    }
}

impl TakeOutcome {
    /// Nothing was crossed.
    const WITHIN: Self = Self { used: 0, crosses: false };

    /// What was out then, if it is more than the soft limit and was not before.
    #[inline]
    pub(super) fn crossing(self) -> Option<u64> {
        self.crosses.then_some(self.used)
    }
}

impl Drop for AllowanceNode {
    /// One after the other: a tree may be deeper than the stack.
    fn drop(&mut self) {
        self.retire();
        let mut parent = self.take_parent();
        while let Some(above) = parent {
            parent = Arc::into_inner(above.node).and_then(|mut node| {
                node.retire();
                node.take_parent()
            });
        }
    }
}
