//! `Nodes`: the table of all nodes.

use core::ops::{Index, IndexMut};

#[cfg(test)]
use core::cell::Cell;

#[cfg(all(test, not(loom)))]
use super::Owner;
use super::UNIT;
use super::node::{BlockNode, Id, NONE};
use crate::suballoc::debugger::ShownArray;

/// 10 KiB: a core of few blocks stays small, and a new chunk costs about a microsecond.
pub(super) const CHUNK: usize = 256;

/// The table of all nodes: fixed chunks, so that growing it never copies.
#[derive(Debug)]
pub(super) struct Nodes {
    chunks: Vec<Box<[BlockNode; CHUNK]>>,
    /// Where the chunks are.
    shown: ShownArray,
    /// The first vacant node; the rest follow by `next`.
    vacant: Id,
    /// The number of visits of nodes, which the tests count instead of time.
    #[cfg(test)]
    visits: Cell<usize>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            shown: ShownArray::default(),
            vacant: NONE,
            #[cfg(test)]
            visits: Cell::new(0),
        }
    }
}

impl Index<Id> for Nodes {
    type Output = BlockNode;

    #[inline]
    fn index(&self, id: Id) -> &BlockNode {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl IndexMut<Id> for Nodes {
    #[inline]
    fn index_mut(&mut self, id: Id) -> &mut BlockNode {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl Nodes {
    /// A vacant node, to be written.
    #[inline]
    pub(super) fn make(&mut self) -> Id {
        if self.vacant == NONE {
            self.grow();
        }
        let id = self.vacant;
        self.vacant = self[id].next;
        id
    }

    /// Removes a node that no link leads to any more.
    #[inline]
    pub(super) fn take(&mut self, id: Id) -> BlockNode {
        let vacant = BlockNode { next: self.vacant, ..BlockNode::VACANT };
        self.vacant = id;
        core::mem::replace(&mut self[id], vacant)
    }

    /// Cuts a block after `units`. The rest gets a node of its own, with the same holder, in no bin.
    #[inline]
    pub(super) fn cut(&mut self, id: Id, units: u32) -> Id {
        let made = self.make();
        let node = &mut self[id];
        let BlockNode { address, units: whole, after, epoch, holder, .. } = *node;
        node.units = units;
        node.after = made;
        let address = address + u64::from(units) * UNIT;
        let (prev, next) = (NONE, NONE);
        self[made] =
            BlockNode { address, epoch, units: whole - units, before: id, after, prev, next, holder };
        self[after].before = made;
        made
    }

    /// Merges a block and the one behind it, both in no bin.
    #[inline]
    pub(super) fn join(&mut self, id: Id, behind: Id) {
        let BlockNode { units, after, .. } = self.take(behind);
        let node = &mut self[id];
        node.units += units;
        node.after = after;
        self[after].before = id;
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Box<[BlockNode; CHUNK]>>()
            + self.chunks.len() * size_of::<[BlockNode; CHUNK]>()
    }

    #[cold]
    fn grow(&mut self) {
        let first = self.chunks.len() * CHUNK;
        let last = u32::try_from(first + CHUNK - 1).expect("2^32 blocks need 160 GiB of nodes");
        let mut chunk = vec![BlockNode::VACANT; CHUNK].into_boxed_slice();
        for (node, next) in chunk.iter_mut().zip(first as Id + 1..=last) {
            node.next = next;
        }
        self.vacant = first as Id;
        if self.vacant == NONE {
            chunk[0] = BlockNode::NOTHING;
            self.vacant += 1;
        }
        let Ok(chunk) = chunk.try_into() else { unreachable!("made with that length") };
        self.shown.push(&mut self.chunks, chunk);
    }

    /// For a debugger.
    pub(super) fn shown(&self) -> &ShownArray {
        &self.shown
    }

    /// Visits since the last call.
    #[cfg(test)]
    pub(super) fn take_visits(&self) -> usize {
        self.visits.take()
    }

    /// The number of nodes that are not vacant, for `verify`.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        let nodes = self.chunks.iter().flat_map(|chunk| chunk.iter()).skip(1);
        nodes.filter(|node| node.holder != Owner::VACANT).count()
    }
}
