//! `Nodes`: the table of all nodes.

use core::ops::{Index, IndexMut};

#[cfg(test)]
use core::cell::Cell;

use super::node::{Id, NONE, Node};
use super::{Owner, UNIT};

/// 10 KiB: a core of few blocks stays small, and a new chunk costs about a microsecond.
const CHUNK: usize = 256;

/// The table of all nodes: fixed chunks, so that growing it never copies.
#[derive(Debug)]
pub(super) struct Nodes {
    chunks: Vec<Box<[Node; CHUNK]>>,
    /// The first vacant node; the rest follow by `next`.
    vacant: Id,
    /// How many nodes have been visited: what the tests count instead of time.
    #[cfg(test)]
    visits: Cell<usize>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            chunks: Vec::new(),
            vacant: NONE,
            #[cfg(test)]
            visits: Cell::new(0),
        }
    }
}

impl Index<Id> for Nodes {
    type Output = Node;

    #[inline]
    fn index(&self, id: Id) -> &Node {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        &self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl IndexMut<Id> for Nodes {
    #[inline]
    fn index_mut(&mut self, id: Id) -> &mut Node {
        #[cfg(test)]
        self.visits.set(self.visits.get() + 1);
        &mut self.chunks[id as usize / CHUNK][id as usize % CHUNK]
    }
}

impl Nodes {
    /// Enters a node.
    #[inline]
    pub(super) fn make(&mut self, node: Node) -> Id {
        if self.vacant == NONE {
            self.grow();
        }
        let id = self.vacant;
        let slot = &mut self[id];
        let next = slot.next;
        *slot = node;
        self.vacant = next;
        id
    }

    /// Removes a node, which nothing leads to any more.
    #[inline]
    pub(super) fn drop(&mut self, id: Id) {
        let next = self.vacant;
        let node = &mut self[id];
        node.holder = Owner::VACANT;
        node.next = next;
        self.vacant = id;
    }

    /// Cuts a block after `units`: what is behind is a node of its own, of the same holder, in no bin.
    #[inline]
    pub(super) fn cut(&mut self, id: Id, units: u32) -> Id {
        let node = &mut self[id];
        let (address, rest) = (node.address + u64::from(units) * UNIT, node.units - units);
        let behind = Node { address, units: rest, before: id, prev: NONE, next: NONE, ..*node };
        node.units = units;
        let made = self.make(behind);
        self[id].after = made;
        if behind.after != NONE {
            self[behind.after].before = made;
        }
        made
    }

    /// Joins a block and the one behind it, both in no bin.
    #[inline]
    pub(super) fn join(&mut self, id: Id, behind: Id) {
        let Node { units, after, .. } = self[behind];
        self.drop(behind);
        let node = &mut self[id];
        node.units += units;
        node.after = after;
        if after != NONE {
            self[after].before = id;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.chunks.capacity() * size_of::<Box<[Node; CHUNK]>>()
            + self.chunks.len() * size_of::<[Node; CHUNK]>()
    }

    #[cold]
    fn grow(&mut self) {
        let first = self.chunks.len() * CHUNK;
        let last = u32::try_from(first + CHUNK - 1).ok().filter(|&last| last < NONE);
        let last = last.expect("2^32 blocks need 160 GiB of nodes");
        let mut chunk = vec![Node::EMPTY; CHUNK].into_boxed_slice();
        for (node, next) in chunk.iter_mut().zip(first as Id + 1..=last) {
            node.next = next;
        }
        chunk[CHUNK - 1].next = self.vacant;
        self.vacant = first as Id;
        let Ok(chunk) = chunk.try_into() else { unreachable!("made with that length") };
        self.chunks.push(chunk);
    }

    /// Visits since the last call.
    #[cfg(test)]
    pub(super) fn take_visits(&self) -> usize {
        self.visits.take()
    }

    /// How many nodes are not vacant: for `verify`.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.chunks.iter().flat_map(|chunk| chunk.iter()).filter(|node| node.holder != Owner::VACANT).count()
    }
}
