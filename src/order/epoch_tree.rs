//! `EpochTree`: an epoch for each of many streams, in a tree whose nodes are shared.

use core::array;

use super::id::GENERATION_BITS;
use super::{Epoch, Stamp, StreamId};
use crate::sync::{Arc, AtomicU64, Ordering};

/// The children or entries of a node. With 16 a change copies three nodes of 168 bytes where 4,096 streams are known, and one
/// where all streams of a machine have places below 16.
const WIDTH_BITS: u32 = 4;
const WIDTH: usize = 1 << WIDTH_BITS;

/// The number of nodes that a join compares before it takes the rest from one side: so joins are exact where the places of the
/// streams lie below 112. With 32, a wait between any two of 4,000 streams takes six times as long and keeps twice the memory.
const EFFORT: usize = 8;

/// The known epoch of each stream of one machine.
///
/// A tree indexed by the place of the stream. A clone is a reference count. A change copies those nodes of the path to one leaf
/// that are shared. So the clocks of streams that wait for each other, which are nearly equal, share nearly all of their nodes.
/// Only the last stream of a place is entered: the earlier ones are over.
#[derive(Clone, Debug)]
pub(super) struct EpochTree {
    machine: u32,
    /// The number of levels above the leaves.
    height: u32,
    root: Arc<EpochNode>,
}

#[derive(Debug)]
struct EpochNode {
    /// The sum of the epochs in it. If one of two nodes includes the other, it is the heavier one.
    weight: u64,
    /// 1 once every point in it is known to be over: set after the points are finished, and lost when the node is changed.
    over: AtomicU64,
    body: EpochNodeBody,
}

#[derive(Clone, Debug)]
enum EpochNodeBody {
    Leaf([EpochEntry; WIDTH]),
    Inner([Option<Arc<EpochNode>>; WIDTH]),
}

/// The generation of a stream, above [`EPOCH_BITS`], and its epoch: the greater of two entries is the later. 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct EpochEntry(u64);

/// 17 million million events of one stream: 203 days at a million a second. Later epochs are not entered, which costs a wait.
const EPOCH_BITS: u32 = u64::BITS - GENERATION_BITS;
const MOST_EPOCH: u64 = (1 << EPOCH_BITS) - 1;

impl EpochEntry {
    fn of(stamp: Stamp) -> Self {
        Self(u64::from(stamp.stream.generation()) << EPOCH_BITS | stamp.epoch.0.min(MOST_EPOCH))
    }

    fn epoch(self) -> u64 {
        self.0 & MOST_EPOCH
    }

    fn generation(self) -> u32 {
        (self.0 >> EPOCH_BITS) as u32
    }

    fn stamp(self, machine: u32, place: u32) -> Option<Stamp> {
        (self.epoch() != 0).then(|| Stamp {
            stream: StreamId::in_place(machine, place, self.generation()),
            epoch: Epoch(self.epoch()),
        })
    }
}

/// Which side of a join includes the other.
enum Joined {
    Either,
    Left,
    Right,
    Neither(Arc<EpochNode>),
}

impl EpochTree {
    /// The empty tree for the streams of that machine.
    pub(super) fn of(machine: u32) -> Self {
        Self { machine, height: 0, root: Arc::new(EpochNode::empty(0)) }
    }

    /// The latest known epoch of the stream; 0 if there is none.
    pub(super) fn known(&self, stream: StreamId) -> Epoch {
        let entry = self.entry(stream);
        let is_it = stream.machine() == self.machine && entry.generation() == stream.generation();
        if is_it { Epoch(entry.epoch()) } else { Epoch::NONE }
    }

    fn entry(&self, stream: StreamId) -> EpochEntry {
        let place = stream.index();
        if !self.has_room_for(place) {
            return EpochEntry::default();
        }
        let (mut node, mut height) = (&self.root, self.height);
        loop {
            match &node.body {
                EpochNodeBody::Leaf(entries) => return entries[slot(place, 0)],
                EpochNodeBody::Inner(children) => match &children[slot(place, height)] {
                    Some(child) => (node, height) = (child, height - 1),
                    None => return EpochEntry::default(),
                },
            }
        }
    }

    /// Adds one point.
    pub(super) fn raise(&mut self, stamp: Stamp) {
        let entry = EpochEntry::of(stamp);
        // Streams of another machine are never waited for, and may be left out.
        if stamp.stream.machine() != self.machine || self.entry(stamp.stream) >= entry {
            return;
        }
        let place = stamp.stream.index();
        while !self.has_room_for(place) {
            self.grow();
        }
        put(&mut self.root, self.height, place, entry);
    }

    /// Removes the point, and earlier ones of its stream.
    pub(super) fn forget(&mut self, stamp: Stamp) {
        let known = self.entry(stamp.stream);
        let is_there = known != EpochEntry::default() && stamp.stream.machine() == self.machine;
        if is_there && known <= EpochEntry::of(stamp) {
            put(&mut self.root, self.height, stamp.stream.index(), EpochEntry::default());
        }
    }

    /// Adds the points of `other`. Where they differ in more than [`EFFORT`] nodes, some are left out. Points that are over may be
    /// left out.
    pub(super) fn join(&mut self, other: &Self) {
        if other.machine != self.machine {
            return;
        }
        while self.height < other.height {
            self.grow();
        }
        let mut other = other.clone();
        while other.height < self.height {
            other.grow();
        }
        match join(&self.root, &other.root, &mut { EFFORT }) {
            Joined::Either | Joined::Left => {}
            Joined::Right => self.root = other.root,
            Joined::Neither(both) => self.root = both,
        }
    }

    /// Returns `true` if every point is known to be over.
    pub(super) fn is_over(&self) -> bool {
        self.root.is_over()
    }

    /// Calls `finish` for each point in a node that is not marked as over, and marks the node: all points are over.
    pub(super) fn finish(&self, finish: &mut dyn FnMut(Stamp)) {
        self.root.finish(self.machine, self.height, 0, finish);
    }

    /// The points of the first leaf that ends behind a place, and the place that it ends before.
    pub(super) fn leaf_behind(&self, place: u32) -> Option<(u32, impl Iterator<Item = Stamp>)> {
        let (first, entries) = self.root.leaf_behind(self.height, 0, place)?;
        let machine = self.machine;
        let stamps = entries.into_iter().zip(first..).filter_map(move |(entry, at)| entry.stamp(machine, at));
        Some((first + WIDTH as u32, stamps))
    }

    fn has_room_for(&self, place: u32) -> bool {
        place >> (WIDTH_BITS * self.height) < WIDTH as u32
    }

    /// Makes room for sixteen times as many places.
    fn grow(&mut self) {
        let mut children = [const { None }; WIDTH];
        children[0] = Some(Arc::clone(&self.root));
        self.root = Arc::new(EpochNode::new(self.root.weight, EpochNodeBody::Inner(children)));
        self.height += 1;
    }
}

/// The index of the place in a node of that height.
fn slot(place: u32, height: u32) -> usize {
    (place >> (WIDTH_BITS * height)) as usize % WIDTH
}

/// Sets the entry of a place, to an earlier or later epoch. Returns the new weight.
fn put(node: &mut Arc<EpochNode>, height: u32, place: u32, entry: EpochEntry) -> u64 {
    let node = Arc::make_mut(node);
    node.over = AtomicU64::new(0);
    let (before, now) = match &mut node.body {
        EpochNodeBody::Leaf(entries) => {
            let before = core::mem::replace(&mut entries[slot(place, 0)], entry);
            (before.epoch(), entry.epoch())
        }
        EpochNodeBody::Inner(children) => {
            let child = &mut children[slot(place, height)];
            let mut it = child.take().unwrap_or_else(|| Arc::new(EpochNode::empty(height - 1)));
            let (before, now) = (it.weight, put(&mut it, height - 1, place, entry));
            // No epoch is 0, so a node without weight is empty.
            *child = (now != 0).then_some(it);
            (before, now)
        }
    };
    node.weight = node.weight - before + now;
    node.weight
}

fn join(left: &Arc<EpochNode>, right: &Arc<EpochNode>, effort: &mut usize) -> Joined {
    if Arc::ptr_eq(left, right) {
        return Joined::Either;
    }
    if right.is_over() {
        return Joined::Left;
    }
    if left.is_over() {
        return Joined::Right;
    }
    if *effort == 0 {
        return if left.weight >= right.weight { Joined::Left } else { Joined::Right };
    }
    *effort -= 1;
    #[cfg(all(test, not(loom)))]
    tests::COMPARED.set(tests::COMPARED.get() + 1);
    match (&left.body, &right.body) {
        (EpochNodeBody::Leaf(of_left), EpochNodeBody::Leaf(of_right)) => {
            let both: [EpochEntry; WIDTH] = array::from_fn(|at| of_left[at].max(of_right[at]));
            if both == *of_left {
                return Joined::Left;
            }
            if both == *of_right {
                return Joined::Right;
            }
            let weight = both.iter().map(|entry| entry.epoch()).sum();
            Joined::Neither(Arc::new(EpochNode::new(weight, EpochNodeBody::Leaf(both))))
        }
        (EpochNodeBody::Inner(of_left), EpochNodeBody::Inner(of_right)) => {
            let joined = array::from_fn(|at| match (&of_left[at], &of_right[at]) {
                (None, None) => Joined::Either,
                (Some(_), None) => Joined::Left,
                (None, Some(_)) => Joined::Right,
                (Some(left), Some(right)) => join(left, right, effort),
            });
            choose(of_left, of_right, joined)
        }
        _ => unreachable!("the two are of one height"),
    }
}

/// The node whose children were joined one by one: `left` or `right` itself where possible.
fn choose(
    of_left: &[Option<Arc<EpochNode>>; WIDTH],
    of_right: &[Option<Arc<EpochNode>>; WIDTH],
    joined: [Joined; WIDTH],
) -> Joined {
    if joined.iter().all(|child| matches!(child, Joined::Either | Joined::Left)) {
        return Joined::Left;
    }
    if joined.iter().all(|child| matches!(child, Joined::Either | Joined::Right)) {
        return Joined::Right;
    }
    let mut at = 0;
    let children = joined.map(|child| {
        at += 1;
        match child {
            Joined::Either | Joined::Left => of_left[at - 1].clone(),
            Joined::Right => of_right[at - 1].clone(),
            Joined::Neither(both) => Some(both),
        }
    });
    let weight = children.iter().flatten().map(|child| child.weight).sum();
    Joined::Neither(Arc::new(EpochNode::new(weight, EpochNodeBody::Inner(children))))
}

impl EpochNode {
    fn new(weight: u64, body: EpochNodeBody) -> Self {
        Self { weight, over: AtomicU64::new(0), body }
    }

    fn empty(height: u32) -> Self {
        let body = match height {
            0 => EpochNodeBody::Leaf([EpochEntry::default(); WIDTH]),
            _ => EpochNodeBody::Inner([const { None }; WIDTH]),
        };
        Self::new(0, body)
    }

    fn is_over(&self) -> bool {
        // Acquire: pairs with the release in `finish`. A thread that sees the mark also sees that the points are over.
        self.over.load(Ordering::Acquire) != 0
    }

    fn finish(&self, machine: u32, height: u32, first: u32, finish: &mut dyn FnMut(Stamp)) {
        if self.is_over() {
            return;
        }
        match &self.body {
            EpochNodeBody::Leaf(entries) => {
                let stamps = entries.iter().zip(first..).filter_map(|(entry, at)| entry.stamp(machine, at));
                stamps.for_each(finish);
            }
            EpochNodeBody::Inner(children) => {
                for (child, at) in children.iter().zip(0..) {
                    let Some(child) = child else { continue };
                    child.finish(machine, height - 1, first + (at << (WIDTH_BITS * height)), finish);
                }
            }
        }
        // Release: pairs with the acquire in `is_over`.
        self.over.store(1, Ordering::Release);
    }

    fn leaf_behind(&self, height: u32, first: u32, place: u32) -> Option<(u32, [EpochEntry; WIDTH])> {
        match &self.body {
            EpochNodeBody::Leaf(entries) => (first + WIDTH as u32 > place).then_some((first, *entries)),
            EpochNodeBody::Inner(children) => children.iter().zip(0..).find_map(|(child, at)| {
                let (from, to) = (at << (WIDTH_BITS * height), (at + 1) << (WIDTH_BITS * height));
                let child = child.as_ref().filter(|_| first + to > place)?;
                child.leaf_behind(height - 1, first + from, place)
            }),
        }
    }
}

impl Clone for EpochNode {
    /// For a change of the clone.
    fn clone(&self) -> Self {
        Self::new(self.weight, self.body.clone())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use core::cell::Cell;

    use super::*;

    thread_local! {
        /// The number of nodes that were compared on this thread.
        pub(super) static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    const MACHINE: u32 = 7;
    const MANY: u32 = 4000;

    fn point(place: u32, epoch: u64) -> Stamp {
        Stamp { stream: StreamId::new(MACHINE, place), epoch: Epoch(epoch) }
    }

    fn tree(epoch: impl Fn(u32) -> u64) -> EpochTree {
        let mut tree = EpochTree::of(MACHINE);
        (0..MANY).for_each(|place| tree.raise(point(place, epoch(place))));
        tree
    }

    fn known(tree: &EpochTree, place: u32) -> u64 {
        tree.known(StreamId::new(MACHINE, place)).0
    }

    /// The number of nodes that a join compares.
    fn compared(left: &mut EpochTree, right: &EpochTree) -> usize {
        let before = COMPARED.get();
        left.join(right);
        COMPARED.get() - before
    }

    fn finished(tree: &EpochTree) -> usize {
        let mut count = 0;
        tree.finish(&mut |_| count += 1);
        count
    }

    #[test]
    fn a_join_of_many_compares_few_and_knows_no_more_than_both() {
        let by_turns = |place: u32| u64::from(place % 7) + 1;
        let other_way = |place: u32| 8 - by_turns(place);
        let (mut left, right) = (tree(by_turns), tree(other_way));
        let compared = compared(&mut left, &right);
        // A literal and not `EFFORT`: a join that costs more fails here.
        assert!(compared <= 8, "{compared} nodes");
        for place in 0..MANY {
            let (one, other, both) = (by_turns(place), other_way(place), known(&left, place));
            assert!(both == one || both == other, "{both} of {place}, and not {one} or {other}");
            assert!(both >= one.max(other) || place >= 96, "{both} of {place}, and not {one} and {other}");
        }
    }

    #[test]
    fn a_tree_that_includes_the_other_is_taken_whole() {
        let (early, late) = (tree(|place| u64::from(place % 7) + 1), tree(|place| u64::from(place % 5) + 8));
        for (mut left, right) in [(early.clone(), &late), (late.clone(), &early)] {
            assert!(compared(&mut left, right) <= EFFORT);
            (0..MANY).for_each(|place| assert_eq!(known(&left, place), known(&late, place)));
        }
    }

    #[test]
    fn trees_of_different_heights_are_joined() {
        let mut low = EpochTree::of(MACHINE);
        low.raise(point(3, 9));
        let mut high = tree(|_| 5);
        let mut both = low.clone();
        both.join(&high);
        high.join(&low);
        for tree in [&both, &high] {
            (0..MANY).for_each(|place| assert_eq!(known(tree, place), if place == 3 { 9 } else { 5 }));
        }
    }

    #[test]
    fn shared_nodes_are_not_compared() {
        let mut left = tree(|_| 1);
        let mut right = left.clone();
        right.raise(point(1234, 9));
        left.raise(point(5, 3));
        let compared = compared(&mut left, &right);
        assert!(compared <= 5, "{compared} nodes: the root, and the two paths below it");
        assert_eq!([known(&left, 1234), known(&left, 5), known(&left, 6)], [9, 3, 1]);
    }

    #[test]
    fn shared_nodes_are_finished_once() {
        let one = tree(|_| 1);
        let mut other = one.clone();
        other.raise(point(1234, 9));
        assert_eq!(finished(&one), MANY as usize);
        assert_eq!(finished(&other), WIDTH, "the leaf that differs");
        assert_eq!((finished(&one), finished(&other)), (0, 0));
        assert!(other.is_over());
        other.raise(point(1234, 10));
        assert!(!other.is_over() && one.is_over());
    }

    #[test]
    fn points_that_are_over_are_left_out() {
        let (over, mut taker) = (tree(|_| 9), EpochTree::of(MACHINE));
        finished(&over);
        taker.raise(point(MANY, 1));
        taker.join(&over);
        assert_eq!((known(&taker, 0), known(&taker, MANY)), (0, 1));
    }

    #[test]
    fn of_the_streams_of_a_place_the_last_one_is_known() {
        let first = StreamId::new(MACHINE, 3);
        let second = first.successor().expect("there are more");
        let mut tree = EpochTree::of(MACHINE);
        tree.raise(Stamp { stream: second, epoch: Epoch(2) });
        tree.raise(Stamp { stream: first, epoch: Epoch(5) });
        assert_eq!((tree.known(first), tree.known(second)), (Epoch::NONE, Epoch(2)));
        tree.forget(Stamp { stream: first, epoch: Epoch(5) });
        assert_eq!(tree.known(second), Epoch(2));
    }

    #[test]
    fn a_stream_of_another_machine_is_not_known() {
        let foreign = Stamp { stream: StreamId::new(MACHINE + 1, 3), epoch: Epoch(1) };
        let mut tree = EpochTree::of(MACHINE);
        tree.raise(point(3, 4));
        tree.raise(foreign);
        tree.forget(Stamp { epoch: Epoch(9), ..foreign });
        assert_eq!((tree.known(foreign.stream), known(&tree, 3)), (Epoch::NONE, 4));
        let mut of_foreign = EpochTree::of(MACHINE + 1);
        of_foreign.join(&tree);
        assert_eq!(of_foreign.known(foreign.stream), Epoch::NONE);
    }

    #[test]
    fn an_epoch_that_is_too_large_is_known_up_to_the_largest() {
        let mut tree = EpochTree::of(MACHINE);
        tree.raise(point(3, u64::MAX));
        assert_eq!(known(&tree, 3), MOST_EPOCH);
        assert_eq!(known(&tree, 4), 0);
    }

    #[test]
    fn a_forgotten_point_leaves_nothing() {
        let mut tree = tree(|_| 1);
        (0..MANY).for_each(|place| tree.forget(point(place, 1)));
        assert_eq!(tree.root.weight, 0);
        assert!(tree.leaf_behind(0).is_none());
    }
}
