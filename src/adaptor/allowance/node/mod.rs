//! `AllowanceNode`: the counts of one allowance, and how they change together.

mod giving;
mod lent;
mod taking;

use core::mem;

use super::Allowance;
use super::crossing::SoftLimit;
use super::lending::Tree;
use super::purse::Purses;
use super::shared::Membership;
use crate::driver::DriverResult;
use crate::error::{LimitName, Member};
use crate::sync::{Arc, AtomicU64, Ordering};

/// Threads hold some of the room in advance, in purses. Bytes are counted in whole units of 256, so the bit is free.
const LENT: u64 = 1;

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
    /// The bytes that are out and those that are lent, together never above `hard`; and the bit [`LENT`]. Changed by exchanges in a
    /// root, and below by who has the turn.
    taken: AtomicU64,
    /// As `taken`, without the bit.
    peak: AtomicU64,
    refusals: AtomicU64,
    /// How often more came back than was out.
    excesses: AtomicU64,
    /// How often threads have met here since one of them was lent room.
    meetings: AtomicU64,
    purses: Purses,
    /// Its number among the lenders of the tree; 0 while it is none. Changed by who has the turn.
    lender: AtomicU64,
    tree: Arc<Tree>,
}

/// The limit above a node: the node takes from that, too.
pub(super) enum Above {
    Nothing,
    Parent(Allowance),
    /// The limit that this process shares with others. Only a root has one, and it is taken from with the turn of the tree.
    Shared(Box<Membership>),
}

#[inline]
fn is_lent(taken: u64) -> bool {
    taken & LENT != 0
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
            excesses: AtomicU64::new(0),
            meetings: AtomicU64::new(0),
            purses: Purses::default(),
            lender: AtomicU64::new(0),
            tree,
        }
    }

    pub(super) fn require_same_process(&self) -> DriverResult<()> {
        self.tree.require_same_process()
    }

    // Relaxed, as all that only tell: figures of about one moment.

    /// The live bytes. Exact while no other thread takes or returns any.
    pub(super) fn used(&self) -> u64 {
        if !is_lent(self.taken.load(Ordering::Relaxed)) {
            return self.taken();
        }
        let mut handles = Vec::new();
        let Some(lenders) = self.tree.lock_unless_forked() else { return self.taken() };
        let credit = lenders.credit_below(self, &mut handles);
        let taken = self.taken();
        drop(lenders);
        // Purses change without the turn, and the root does: between the two readings.
        taken.saturating_sub(credit)
    }

    /// The bytes that are out and those that are lent.
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

    pub(super) fn excesses(&self) -> u64 {
        self.excesses.load(Ordering::Relaxed)
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
            Above::Shared(membership) if !membership.is_forked_child() => Some(membership),
            _ => None,
        }
    }

    /// The processes that share the limit of this root. With the turn, because those that are dead are cleared away.
    pub(super) fn members(&self) -> Vec<Member> {
        let Some(_lenders) = self.tree.lock_unless_forked() else { return Vec::new() };
        self.membership().map(Membership::members).unwrap_or_default()
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
        let Some(mut lenders) = self.tree.lock_unless_forked() else { return };
        self.call_back();
        lenders.leave(self.lender.load(Ordering::Relaxed));
        self.lender.store(0, Ordering::Relaxed);
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn tree_for_tests(&self) -> &Tree {
        &self.tree
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
