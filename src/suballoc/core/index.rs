//! `Index`: the blocks that are out, by address.

use hashbrown::HashTable;

use super::UNIT;
use super::node::Id;
use super::nodes::Nodes;

/// A table that grows visits all its nodes again. In 64 tables a stall at 100,000 blocks is 1,600 visits, not 100,000.
const SHARDS: usize = 64;

/// The blocks that are out, by address: tables of ids, 5 to 12 bytes a block.
#[derive(Debug)]
pub(super) struct Index {
    shards: [HashTable<Id>; SHARDS],
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { shards: [const { HashTable::new() }; SHARDS], len: 0 }
    }
}

/// The two halves of a 128-bit product, folded: addresses differ in few bits, and the table uses the lowest and the
/// highest ones. The factor is the fraction of the golden ratio.
#[inline]
fn hash(address: u64) -> u64 {
    let product = u128::from(address / UNIT) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}

/// Bits that the table itself does not use: it takes the lowest ones, and the highest seven.
#[inline]
fn shard(hash: u64) -> usize {
    (hash >> 48) as usize % SHARDS
}

impl Index {
    #[inline]
    pub(super) fn insert(&mut self, nodes: &Nodes, id: Id) {
        let hashed = hash(nodes[id].address);
        self.shards[shard(hashed)].insert_unique(hashed, id, |&id| hash(nodes[id].address));
        self.len += 1;
    }

    #[inline]
    pub(super) fn find(&self, nodes: &Nodes, address: u64) -> Option<Id> {
        let hashed = hash(address);
        self.shards[shard(hashed)].find(hashed, |&id| nodes[id].address == address).copied()
    }

    #[inline]
    pub(super) fn remove(&mut self, nodes: &Nodes, address: u64) -> Option<Id> {
        let hashed = hash(address);
        let entry = self.shards[shard(hashed)].find_entry(hashed, |&id| nodes[id].address == address).ok()?;
        self.len -= 1;
        Some(entry.remove().0)
    }

    /// How many blocks are out.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn recount(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(HashTable::allocation_size).sum()
    }
}
