//! `Tree`: the nodes of a tree of allowances that have lent room to threads, and how that room is called back.
//!
//! # Why nobody is refused because of room that is lent
//!
//! A refusal is decided by one who has the turn of the tree, or on a count whose `LENT` bit is not set. Purses are opened and
//! filled by those who have the turn alone, and the bit is cleared after all purses are closed and what was in them has gone
//! back. So at the moment of the decision the counts are what is out, to the byte.

use std::sync::Weak;

use super::node::AllowanceNode;
use crate::driver::DriverResult;
use crate::sync::{Arc, Token, TokenGuard};

/// What the nodes of one tree share.
#[derive(Default)]
pub(super) struct Tree {
    turn: Token<Lenders>,
}

impl Tree {
    /// Returns `true` in a child of the process that the tree was made in.
    pub(super) fn is_forked_child(&self) -> bool {
        self.turn.is_forked_child()
    }

    pub(super) fn require_same_process(&self) -> DriverResult<()> {
        self.turn.require_same_process()
    }

    /// The turn; `None` in a child of the process that the tree was made in.
    pub(super) fn lock_unless_forked(&self) -> Option<TokenGuard<'_, Lenders>> {
        self.turn.lock_unless_forked()
    }

    pub(super) fn lock(&self) -> TokenGuard<'_, Lenders> {
        self.turn.lock()
    }

    pub(super) fn try_lock(&self) -> Option<TokenGuard<'_, Lenders>> {
        self.turn.try_lock()
    }
}

/// The nodes that have lent room to threads, by numbers.
#[derive(Default)]
pub(super) struct Lenders {
    last: u64,
    list: Vec<(u64, Weak<AllowanceNode>)>,
}

/// A node that has lent room is being dropped, on another thread: it gives that back as soon as it has the turn.
pub(super) struct Leaving;

impl Lenders {
    /// Enters a node. Returns its number here, which is not 0.
    pub(super) fn enter(&mut self, node: &Arc<AllowanceNode>) -> u64 {
        self.last += 1;
        self.list.push((self.last, Arc::downgrade(node)));
        self.last
    }

    pub(super) fn leave(&mut self, number: u64) {
        self.list.retain(|(entered, _)| *entered != number);
    }

    /// Closes all purses of the tree, and gives back what was in them. The handles are to be dropped once the turn has been
    /// given back, because the last one of a node asks for it.
    pub(super) fn recall(&mut self, handles: &mut Vec<Arc<AllowanceNode>>) -> Result<(), Leaving> {
        let first = handles.len();
        handles.extend(self.list.iter().filter_map(|(_, node)| node.upgrade()));
        let lenders = &handles[first..];
        for node in lenders {
            node.call_back();
        }
        if lenders.len() < self.list.len() {
            return Err(Leaving);
        }
        // Not before all purses are closed: the nodes above have lent what those below them have.
        for node in lenders {
            node.end_lending();
        }
        self.list.clear();
        Ok(())
    }

    /// What threads hold of `node`, and of the nodes under it.
    pub(super) fn credit_below(&self, node: &AllowanceNode, handles: &mut Vec<Arc<AllowanceNode>>) -> u64 {
        let first = handles.len();
        handles.extend(self.list.iter().filter_map(|(_, lender)| lender.upgrade()));
        let below = |lender: &&Arc<AllowanceNode>| lender.upwards().any(|above| core::ptr::eq(above, node));
        handles[first..].iter().filter(below).map(|lender| lender.credit()).sum()
    }
}
