//! `Index`: the blocks that are out, by address.

use super::UNIT;
use super::node::{Id, NONE};
use super::nodes::Nodes;

/// Each shard grows alone: at 100,000 blocks that moves 3,100 entries, not all.
const SHARDS: usize = 32;
/// The homes of a shard that gets its first block.
const FIRST: usize = 8;
/// Slots that are compared at once.
const GROUP: usize = 4;
/// The slots behind the last home, at first.
const OVERHANG: usize = 8;

/// A block that is out: a part of its hash in the upper 32 bits, its node in the lower. 0 is an empty slot, as no block
/// has the node 0.
///
/// With the hash beside it, an entry is found and moved without a look at its node.
type IndexSlot = u64;

/// The blocks that are out, by address: 11 to 16 bytes a block.
///
/// Open addressing with linear probing: most lookups read one cache line, where tables of hints and entries read two. A
/// removal leaves no mark, so a table is never cleaned up.
#[derive(Debug)]
pub(super) struct Index {
    shards: [IndexShard; SHARDS],
    len: usize,
}

#[derive(Debug, Default)]
struct IndexShard {
    slots: Vec<IndexSlot>,
    /// The number of slots that are a home. The slots behind them take the overflow of the last homes, so that no
    /// search wraps around.
    homes: usize,
    len: usize,
}

impl Default for Index {
    fn default() -> Self {
        Self { shards: core::array::from_fn(|_| IndexShard::default()), len: 0 }
    }
}

/// The factor is the fraction of the golden ratio: it spreads addresses that lie at equal distances.
#[inline]
fn hash(address: u64) -> u64 {
    (address / UNIT).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The bits below those that the slot keeps.
#[inline]
fn shard(hash: u64) -> usize {
    (hash >> 26) as usize % SHARDS
}

const KEPT: u64 = !0 << 32;

impl Index {
    #[inline]
    pub(super) fn insert(&mut self, address: u64, id: Id) {
        let hash = hash(address);
        self.len += 1;
        self.shards[shard(hash)].insert(hash & KEPT | u64::from(id));
    }

    #[inline]
    pub(super) fn find(&self, nodes: &Nodes, address: u64) -> Option<Id> {
        let hash = hash(address);
        self.shards[shard(hash)].find(nodes, address, hash).map(|(_, id)| id)
    }

    #[inline]
    pub(super) fn remove(&mut self, nodes: &Nodes, address: u64) -> Option<Id> {
        let hash = hash(address);
        let shard = &mut self.shards[shard(hash)];
        let (at, id) = shard.find(nodes, address, hash)?;
        shard.remove(at);
        self.len -= 1;
        Some(id)
    }

    /// How many blocks are out.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[cfg(all(test, not(loom)))]
    pub(super) fn recount(&self) -> usize {
        self.shards.iter().flat_map(|shard| &shard.slots).filter(|slot| **slot != 0).count()
    }

    pub(super) fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.slots.capacity() * size_of::<IndexSlot>()).sum()
    }
}

impl IndexShard {
    /// The home of a slot: the kept bits of the hash as a fraction of the table, which need not be a power of two.
    #[inline]
    fn home(slot: IndexSlot, homes: usize) -> usize {
        (((slot >> 32) * homes as u64) >> 32) as usize
    }

    #[inline]
    fn find(&self, nodes: &Nodes, address: u64, hash: u64) -> Option<(usize, Id)> {
        let mut at = Self::home(hash, self.homes);
        while let Some(&slot) = self.slots.get(at) {
            let id = slot as Id;
            if slot >> 32 == hash >> 32 && id != NONE && nodes[id].address == address {
                return Some((at, id));
            }
            if slot == 0 {
                break;
            }
            at += 1;
        }
        None
    }

    #[inline]
    fn insert(&mut self, slot: IndexSlot) {
        // At most three quarters full: then a search ends after 2.5 slots on average.
        if self.len >= self.homes / 4 * 3 {
            self.grow();
        }
        self.len += 1;
        self.place(slot);
    }

    /// Puts a slot into the first empty place from its home on.
    #[inline]
    fn place(&mut self, slot: IndexSlot) {
        let mut at = Self::home(slot, self.homes);
        loop {
            let Some(group) = self.slots.get_mut(at..).and_then(|slots| slots.first_chunk_mut::<GROUP>())
            else {
                self.slots.reserve_exact(OVERHANG);
                self.slots.extend([0; OVERHANG]);
                continue;
            };
            let vacant = mask(group, |slot| slot == 0);
            if vacant != 0 {
                group[vacant.trailing_zeros() as usize] = slot;
                return;
            }
            at += GROUP;
        }
    }

    /// Empties a slot. Slots behind it move up towards their homes.
    #[inline]
    fn remove(&mut self, at: usize) {
        let homes = self.homes;
        self.len -= 1;
        let (mut hole, mut at) = (at, at + 1);
        while let Some(&slot) = self.slots.get(at).filter(|slot| **slot != 0) {
            if Self::home(slot, homes) <= hole {
                self.slots[hole] = slot;
                hole = at;
            }
            at += 1;
        }
        self.slots[hole] = 0;
    }

    /// Half as large again: twice as large would be up to 21 bytes a block.
    #[cold]
    fn grow(&mut self) {
        let homes = (self.homes / 2 * 3).max(FIRST);
        let old = core::mem::replace(&mut self.slots, vec![0; homes + OVERHANG]);
        self.homes = homes;
        old.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.place(slot));
    }
}

/// A bit for each slot that fulfils `is`. Without a branch, which would be hard to predict.
#[inline]
fn mask(group: &[IndexSlot; GROUP], is: impl Fn(IndexSlot) -> bool) -> u32 {
    group.iter().enumerate().fold(0, |mask, (at, &slot)| mask | u32::from(is(slot)) << at)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::node::BlockNode;
    use super::*;

    /// A step for each way in which addresses are alike: neighbours, pages, segments, and far apart.
    #[test]
    fn what_is_inserted_is_found_until_it_is_removed() {
        for step in [UNIT, 3 * UNIT, 2 << 20, 1 << 34] {
            let (mut nodes, mut index) = (Nodes::default(), Index::default());
            let address = |at: u64| 0x7f00_0000_0000 + at * step;
            for at in 0..5_000 {
                let id = nodes.make();
                nodes[id] = BlockNode { address: address(at), ..BlockNode::VACANT };
                index.insert(address(at), id);
            }
            let removed = |at: u64| at.is_multiple_of(3) || (1_000..2_000).contains(&at);
            for at in (0..5_000).filter(|&at| removed(at)) {
                assert!(index.remove(&nodes, address(at)).is_some());
                assert_eq!(index.remove(&nodes, address(at)), None);
            }
            for at in 0..5_000 {
                let id = index.find(&nodes, address(at));
                assert_eq!(
                    id.map(|id| nodes[id].address),
                    (!removed(at)).then_some(address(at)),
                    "{at}, step {step}"
                );
            }
            let left = (0..5_000).filter(|&at| !removed(at)).count();
            assert_eq!((index.len(), index.recount()), (left, left));
        }
    }

    #[test]
    fn addresses_at_equal_distances_are_spread() {
        for step in [UNIT, 2 * UNIT, 4096, 2 << 20, 1 << 30] {
            let mut index = Index::default();
            (1..=64_000).for_each(|at| index.insert(0x7f00_0000_0000 + u64::from(at) * step, at));
            let most = index.shards.iter().map(|shard| shard.len).max();
            assert!(most < Some(2_400), "{most:?} of 2,000 in one table, step {step}");
            let far = index.shards.iter().map(IndexShard::longest_way).max();
            assert!(far < Some(40), "{far:?} slots from home, step {step}");
        }
    }

    /// All of them at home in the last slot: there are more behind it then.
    #[test]
    fn slots_that_are_alike_find_room_too() {
        let mut shard = IndexShard::default();
        (1..=100).for_each(|id| shard.insert(KEPT | id));
        assert_eq!(shard.slots.iter().filter(|slot| **slot != 0).count(), 100);
        for left in (0..100).rev() {
            let last = shard.slots.iter().rposition(|slot| *slot != 0);
            shard.remove(shard.homes - 1);
            assert_eq!(last, Some(shard.homes - 1 + left), "those behind have moved up");
        }
    }

    impl IndexShard {
        /// How far the farthest slot is from its home.
        fn longest_way(&self) -> usize {
            let way = |(at, &slot): (usize, &IndexSlot)| at - Self::home(slot, self.homes);
            self.slots.iter().enumerate().filter(|(_, slot)| **slot != 0).map(way).max().unwrap_or(0)
        }
    }
}
