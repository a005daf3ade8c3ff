//! `Membership`: the part that this process has in a shared limit.

use std::path::{Path, PathBuf};

use super::SharedConfig;
use super::joining::join;
use super::table::{MEMBERS, SharedRefusal, Table};
use crate::error::{Error, Member};
use crate::joint::{self, JointPage, Others};

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
    /// Takes no lock: a child of a fork has it as well, and would keep that.
    others: Others,
    /// The directory of this user's files.
    room: PathBuf,
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
        room: PathBuf,
    ) -> Self {
        Self { table, at, owner, name: config.member.clone(), others, room }
    }

    /// The name of this member; empty if it has none.
    pub(in super::super) fn name(&self) -> &str {
        &self.name
    }

    /// In a child of the process that has joined, which has no part.
    pub(in super::super) fn is_forked_child(&self) -> bool {
        self.table.words().is_forked_child()
    }

    /// Takes `bytes`. What dead members had comes back before there is a refusal.
    pub(in super::super) fn take(&self, bytes: u64) -> Result<(), SharedRefusal> {
        match self.take_at_once(bytes) {
            Err(SharedRefusal::NoRoom { .. }) => {}
            outcome => return outcome,
        }
        // Whether or not something comes back here: another process may have been first.
        self.clear_dead();
        match self.take_at_once(bytes) {
            Err(SharedRefusal::NoRoom { used, .. }) => {
                Err(SharedRefusal::NoRoom { used, has_file: self.has_file() })
            }
            outcome => outcome,
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

    fn clear_dead(&self) {
        self.table.clear_dead(self.at, |at| is_held(&self.table, &self.others, &self.room, at));
    }

    /// Whether those who join now join this limit.
    fn has_file(&self) -> bool {
        self.others.identity().is_ok_and(|(_, names)| names > 0)
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
        if self.is_forked_child() || self.table.owner(self.at) != self.owner {
            return;
        }
        if self.table.picture().parts[self.at].taken > 0 {
            self.table.words_mut().keep();
        } else {
            self.table.clear(self.at);
        }
    }
}

/// Whether a member lives, or has left something that the driver keeps for its children.
pub(super) fn is_held(table: &Table<JointPage>, others: &Others, room: &Path, at: usize) -> bool {
    let life = table.life(at);
    // Who cannot be asked is not known to be dead.
    others.is_locked(at).unwrap_or(true)
        || (table.picture().parts[at].taken > 0 && joint::kin_is_left(room, &[life]))
}

/// All that have a part or a guarantee, of which `mine` is this process.
pub(super) fn members(table: &Table<JointPage>, mine: usize) -> Vec<Member> {
    let parts = table.picture().parts;
    let is_one = |at: &usize| table.owner(*at) != 0 || parts[*at].taken > 0 || parts[*at].guaranteed > 0;
    let member = |at: usize| Member {
        name: table.name(at),
        process: Some(table.life(at).process).filter(|_| table.owner(at) != 0),
        used_bytes: parts[at].taken as usize,
        guaranteed_bytes: parts[at].guaranteed as usize,
        is_this_process: at == mine,
    };
    (0..MEMBERS).filter(is_one).map(member).collect()
}
