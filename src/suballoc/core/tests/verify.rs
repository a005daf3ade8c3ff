//! Every invariant of the core, checked the slow way.

use std::collections::{BTreeSet, HashMap};

use crate::suballoc::core::bins::End;
use crate::suballoc::core::node::{BlockNode, Id, NONE};
use crate::suballoc::core::{Core, Owner, UNIT};

impl Core {
    /// Panics unless the chains of all segments, the bins of all owners, the index and the sums agree.
    pub(super) fn verify(&self) {
        let mut binned = self.verify_bins();
        let (mut used, mut free_units, mut out) = (0, 0, 0);
        let (mut absent, mut moving, mut hollow) = (0, 0, 0);
        let mut whole = BTreeSet::new();
        let mut end_of_last = 0;
        for (segment, first) in self.segments.iter() {
            assert!(segment.address >= end_of_last, "segments overlap at {:#x}", segment.address);
            end_of_last = segment.address + u64::from(segment.units) * UNIT;
            let (mut address, mut before) = (segment.address, NONE);
            let mut id = first;
            if self.nodes[first].is_whole() && self.nodes[first].holder == Owner::UNOWNED {
                whole.insert((segment.units, segment.address));
            }
            while id != NONE {
                let node = self.nodes[id];
                assert_eq!((node.address, node.before), (address, before), "block {id} in its chain");
                assert!(node.units > 0, "block {id} is empty");
                if matches!(node.holder, Owner::OUT | Owner::ASLEEP) {
                    assert_eq!(
                        self.index.find(&self.nodes, address),
                        Some(id),
                        "block {id} is out and indexed"
                    );
                    out += 1;
                } else if node.holder == Owner::ABSENT {
                    self.verify_absent(id, &node);
                    absent += 1;
                } else if node.holder == Owner::HOLLOW {
                    assert_eq!(self.ranges.hollow.get(&address), Some(&id), "block {id} is hollow");
                    let pages = self.ranges.given_up_within(address, node.end());
                    assert_eq!(pages.len(), 1, "block {id} is hollow on one page");
                    let (page, units) = pages[0];
                    let page_end = page + u64::from(units) * UNIT;
                    assert!(page <= address && node.end() <= page_end, "block {id} is within its page");
                    hollow += 1;
                } else if node.holder == Owner::MOVING {
                    assert_eq!(self.ranges.moving.get(&address), Some(&id), "block {id} is moving");
                    moving += 1;
                } else {
                    self.verify_free(id, &node);
                    assert!(binned.remove(&id).is_some(), "free block {id} is in a bin");
                    free_units += u64::from(node.units);
                }
                used += 1;
                (address, before, id) = (node.end(), id, node.after);
            }
            assert_eq!(address, end_of_last, "the blocks tile the segment at {:#x}", segment.address);
        }
        assert!(binned.is_empty(), "blocks in bins but in no segment: {binned:?}");
        assert_eq!(self.index.len(), out, "blocks that are out");
        assert_eq!(self.index.recount(), out, "entries of the index");
        assert_eq!(self.nodes.in_use(), used, "nodes");
        assert_eq!(self.free_units, free_units, "free units");
        assert_eq!(*self.segments.whole(), whole, "segments that may be given back");
        assert_eq!(
            (self.ranges.absent.len(), self.ranges.moving.len()),
            (absent, moving),
            "absent and moving nodes"
        );
        assert_eq!(self.ranges.hollow.len(), hollow, "hollow nodes");
        for (&address, page) in &self.ranges.given_up {
            let end = address + u64::from(page.units) * UNIT;
            assert!(self.ranges.touching(address, end).is_empty(), "nothing is mapped at {address:#x}");
        }
        self.ranges.aliases.verify();
        for (alias, is_held) in self.ranges.aliases.all() {
            let table = if is_held { &self.ranges.moving } else { &self.ranges.absent };
            let mut at = alias.address;
            while at < alias.end() {
                let around = table.range(..=at).next_back().map(|(_, id)| self.nodes[*id].end());
                at = around
                    .filter(|end| *end > at)
                    .unwrap_or_else(|| panic!("{alias:?} at {at:#x}: {is_held}"));
            }
        }
        let whole = self.segments.iter().filter(|(segment, _)| !self.ranges.has(segment.address));
        let units = whole.map(|(segment, _)| u64::from(segment.units)).sum::<u64>();
        let mapped = self.ranges.within(0, u64::MAX).map(|extent| u64::from(extent.units)).sum::<u64>();
        assert_eq!(self.segments.units(), units + mapped);
    }

    fn verify_absent(&self, id: Id, node: &BlockNode) {
        assert_eq!(self.ranges.absent.get(&node.address), Some(&id), "absent node {id} in its table");
        assert!(node.units.is_multiple_of(self.ranges.page_units), "absent node {id} has whole pages");
        assert_eq!(self.ranges.within(node.address, node.end()).count(), 0, "nothing is mapped in node {id}");
        assert_ne!(self.nodes[node.after].holder, Owner::ABSENT, "absent neighbours of {id}");
    }

    fn verify_free(&self, id: Id, node: &BlockNode) {
        let place = self.owners.place(node.holder);
        if node.holder == Owner::UNOWNED {
            assert_eq!(node.epoch, 0, "nobody's block {id} has no epoch");
        } else {
            assert!(place.stream.is_some(), "block {id} of a stream that has left");
            assert!((place.oldest..=place.newest).contains(&node.epoch), "epoch of block {id}");
        }
        if node.after != NONE {
            assert_ne!(
                self.nodes[node.after].holder, node.holder,
                "neighbours {id} and {} of one owner",
                node.after
            );
        }
    }

    /// Returns all blocks that are in a bin.
    fn verify_bins(&self) -> HashMap<Id, Owner> {
        let mut all = HashMap::new();
        for (owner, place) in self.owners.iter() {
            let mut units = 0;
            place.bins.verify();
            for bin in place.bins.used() {
                let mut prev = NONE;
                for id in place.bins.list(&self.nodes, bin, End::Front) {
                    let node = &self.nodes[id];
                    assert_eq!(
                        (node.holder, node.prev, self.ranges.zone(node.address).bin(node.units)),
                        (owner, prev, bin),
                        "block {id} in its bin"
                    );
                    assert!(all.insert(id, owner).is_none(), "block {id} is in one bin");
                    units += u64::from(node.units);
                    prev = id;
                }
                assert_eq!(place.bins.first(bin, End::Back), prev, "the last block of {bin:?}");
            }
            assert_eq!(place.free_units, units, "free units of {owner:?}");
        }
        all
    }
}
