//! `AllowanceNode`: the counts of one allowance, and how they change together.

mod giving;
mod taking;

use core::mem;

use super::Allowance;
use super::crossing::SoftLimit;
use super::shared::Membership;
use crate::driver::DriverResult;
use crate::error::{LimitName, Member};
use crate::sync::{Arc, AtomicU64, Ordering, Token};

/// One node of a tree of limits.
///
/// Threads that take from nodes under a root do so one after the other. A thread gets the turn of the tree, checks that
/// all nodes below the root have room, takes from the root, and then updates the other counts. No taken bytes ever have
/// to be returned, so no request is refused because of one that fails itself. Only the root's count may change
/// meanwhile, by threads that take from the root without the turn. So it is last, and one exchange both checks and
/// takes.
pub(super) struct AllowanceNode {
    /// Shared with the reports of what is refused: no copy is made of it.
    pub(super) name: LimitName,
    pub(super) hard: u64,
    above: Above,
    pub(super) soft: SoftLimit,
    /// The bytes that are out, never above `hard`. Changed by exchanges in a root, and below by who has the turn.
    used: AtomicU64,
    peak: AtomicU64,
    refusals: AtomicU64,
    /// How often more came back than was out.
    excesses: AtomicU64,
    /// The turn of all nodes under one root.
    turn: Arc<Token<()>>,
}

/// The limit above a node: the node takes from that, too.
pub(super) enum Above {
    Nothing,
    Parent(Allowance),
    /// The limit that this process shares with others. Only a root has one, and it is taken from with the turn of the tree.
    Shared(Box<Membership>),
}

impl AllowanceNode {
    pub(super) fn new(name: &str, hard: u64, above: Above) -> Self {
        let turn = match &above {
            Above::Parent(parent) => Arc::clone(&parent.node.turn),
            Above::Nothing | Above::Shared(_) => Arc::default(),
        };
        Self {
            // A name is a part of one line.
            name: name.replace(char::is_control, "_").into(),
            hard,
            above,
            soft: SoftLimit::default(),
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
            excesses: AtomicU64::new(0),
            turn,
        }
    }

    pub(super) fn require_same_process(&self) -> DriverResult<()> {
        self.turn.require_same_process()
    }

    // Relaxed, as all that only tell: figures of about one moment.

    /// The live bytes.
    #[inline]
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
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
        let Some(_turn) = self.turn.lock_unless_forked() else { return Vec::new() };
        self.membership().map(Membership::members).unwrap_or_default()
    }

    fn take_parent(&mut self) -> Option<Allowance> {
        self.parent()?;
        match mem::replace(&mut self.above, Above::Nothing) {
            Above::Parent(parent) => Some(parent),
            Above::Nothing | Above::Shared(_) => None,
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn turn_for_tests(&self) -> &Token<()> {
        &self.turn
    }
}

impl Drop for AllowanceNode {
    /// One after the other: a tree may be deeper than the stack.
    fn drop(&mut self) {
        let mut parent = self.take_parent();
        while let Some(above) = parent {
            parent = Arc::into_inner(above.node).and_then(|mut node| node.take_parent());
        }
    }
}
