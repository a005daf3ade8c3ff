//! `Membership`: the part that this process has in a shared limit.

use super::SharedConfig;
use super::joining::{join, lock_of};
use super::table::{MEMBERS, SharedRefusal, Table};
use crate::error::{Error, Member};
use crate::joint::{JointPage, Others};

/// One of the members of a shared limit.
///
/// Whoever calls a method that changes something has the turn of the tree of allowances under it: a process gets the locks of its
/// own a second time, so they do not keep its threads apart.
pub(in super::super) struct Membership {
    /// When it is dropped, the place is free for others.
    table: Table<JointPage>,
    at: usize,
    owner: u64,
    name: String,
    others: Others,
}

impl Membership {
    /// Joins the processes that share a limit.
    pub(in super::super) fn join(config: &SharedConfig) -> Result<Self, Error> {
        join(config)
    }

    pub(super) fn new(
        table: Table<JointPage>,
        at: usize,
        owner: u64,
        config: &SharedConfig,
        others: Others,
    ) -> Self {
        Self { table, at, owner, name: config.member.clone(), others }
    }

    /// The name of this member; empty if it has none.
    pub(in super::super) fn name(&self) -> &str {
        &self.name
    }

    /// In a child of the process that has joined, which has no part.
    pub(in super::super) fn is_of_parent(&self) -> bool {
        self.table.words().is_of_parent()
    }

    /// Takes `bytes`. What dead members had comes back before there is a refusal.
    pub(in super::super) fn take(&self, bytes: u64) -> Result<(), SharedRefusal> {
        loop {
            match self.take_at_once(bytes) {
                Err(SharedRefusal::NoRoom { .. }) if self.clear_dead() => {}
                outcome => return outcome,
            }
        }
    }

    /// As [`take`](Self::take), without a look at who is dead.
    pub(in super::super) fn take_at_once(&self, bytes: u64) -> Result<(), SharedRefusal> {
        self.table.take(self.at, self.owner, bytes)
    }

    /// Gives back what was taken.
    pub(in super::super) fn give(&self, bytes: u64) {
        self.table.give(self.at, self.owner, bytes);
    }

    fn clear_dead(&self) -> bool {
        self.table.clear_dead(self.at, |at| lock_of(self.others.lock(at)))
    }

    /// The bytes that may be taken.
    pub(in super::super) fn left(&self) -> u64 {
        self.table.picture().left(self.at, self.table.limit())
    }

    /// All that have a part or a guarantee now.
    pub(in super::super) fn members(&self) -> Vec<Member> {
        self.clear_dead();
        members(&self.table, self.at)
    }
}

impl Drop for Membership {
    /// While something is out, which is leaked, the place stays this process's until its end.
    fn drop(&mut self) {
        if self.is_of_parent() || self.table.owner(self.at) != self.owner {
            return;
        }
        if self.table.picture().parts[self.at].taken > 0 {
            self.table.words_mut().keep();
        } else {
            self.table.clear(self.at);
        }
    }
}

/// All that have a part or a guarantee, of which `mine` is this process.
pub(super) fn members(table: &Table<JointPage>, mine: usize) -> Vec<Member> {
    let parts = table.picture().parts;
    let is_one = |at: &usize| table.owner(*at) != 0 || parts[*at].taken > 0 || parts[*at].guaranteed > 0;
    let member = |at: usize| Member {
        name: table.name(at),
        process: Some(table.process(at)).filter(|_| table.owner(at) != 0),
        used_bytes: parts[at].taken as usize,
        guaranteed_bytes: parts[at].guaranteed as usize,
        is_this_process: at == mine,
    };
    (0..MEMBERS).filter(is_one).map(member).collect()
}
