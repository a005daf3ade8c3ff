//! Blocks that sleep: they keep their addresses, and the pages under them are given back.
//!
//! A block that sleeps is out still, and no free. A page is *given up* if nothing but sleeping blocks and unowned free
//! memory lies on it; that free memory becomes *hollow*: nodes that lie on one page each, are in no bin, and merge with
//! nothing. When the last sleeping block leaves a page that is given up, its addresses are absent like any others.

use super::node::Id;
use super::range::Extent;
use super::{Core, Owner, UNIT};

/// A page that is given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp {
    pub(super) units: u32,
    /// It is being unmapped or mapped: its addresses do not become absent meanwhile.
    pub(super) is_busy: bool,
    /// Nothing could be mapped at its addresses: they do not become absent either.
    pub(super) is_lost: bool,
}

/// The state of a sleeping block that is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreedAsleep {
    /// It has all of its memory still: it is out, and to be freed like any other.
    Mapped,
    /// It is gone.
    Gone,
}

impl Core {
    /// Every block that is out and awake: its address and its units, in the order of addresses.
    pub(crate) fn awake(&self) -> Vec<(u64, u32)> {
        let all = self.segments.iter().flat_map(|(_, first)| self.chain(first));
        let nodes = all.map(|id| &self.nodes[id]).filter(|node| node.holder == Owner::OUT);
        nodes.map(|node| (node.address, node.units)).collect()
    }

    /// Puts a block to sleep that is out and awake. Returns its units; `None` if no such block begins there.
    pub(crate) fn fall_asleep(&mut self, address: u64) -> Option<u32> {
        let id = self.index.find(&self.nodes, address)?;
        let node = &mut self.nodes[id];
        if node.holder != Owner::OUT {
            return None;
        }
        node.holder = Owner::ASLEEP;
        Some(node.units)
    }

    /// Wakes a sleeping block. All of its pages are mapped.
    pub(crate) fn awaken(&mut self, address: u64) {
        if let Some(id) = self.index.find(&self.nodes, address) {
            debug_assert_eq!(self.nodes[id].holder, Owner::ASLEEP);
            self.nodes[id].holder = Owner::OUT;
        }
    }

    /// Gives up every page with a part of these sleeping blocks, in the order of their addresses, on which nobody else
    /// lies. Each is to be unmapped, and then [given up for good](Self::finish_giving_up) or [mapped](Self::regain) again.
    pub(crate) fn give_up_pages(&mut self, blocks: impl Iterator<Item = u64>) -> Vec<Extent> {
        let mut given_up: Vec<Extent> = Vec::new();
        let mut seen_to = 0;
        for address in blocks {
            let Some(id) = self.index.find(&self.nodes, address) else { continue };
            let node = &self.nodes[id];
            if node.holder != Owner::ASLEEP {
                continue;
            }
            for extent in self.ranges.touching(node.address.max(seen_to), node.end()) {
                seen_to = extent.end();
                if self.is_at_rest(id, extent) {
                    self.give_up(id, extent);
                    given_up.push(extent);
                }
            }
        }
        given_up
    }

    /// Returns `true` if nothing but sleeping blocks and unowned free memory lies on a page, of which a part is `id`, a sleeping
    /// block. Goes both ways at once: where the blocks of a page fall asleep one by one, in the order of their addresses or against
    /// it, the next one is awake, and ends the search.
    fn is_at_rest(&self, id: Id, extent: Extent) -> bool {
        let rests = |id: Id| matches!(self.nodes[id].holder, Owner::ASLEEP | Owner::UNOWNED);
        let (mut first, mut last) = (id, id);
        loop {
            let (begins, ends) =
                (self.nodes[first].address <= extent.address, self.nodes[last].end() >= extent.end());
            if begins && ends {
                return true;
            }
            if !begins {
                first = self.nodes[first].before;
            }
            if !ends {
                last = self.nodes[last].after;
            }
            // Beyond the ends of a range there is a node that is out.
            if !(rests(first) && rests(last)) {
                return false;
            }
        }
    }

    /// The node at an address, which lies in `id` or before it.
    fn first_on(&self, mut id: Id, address: u64) -> Id {
        while self.nodes[id].address > address {
            id = self.nodes[id].before;
        }
        id
    }

    fn give_up(&mut self, id: Id, extent: Extent) {
        let mut id = self.first_on(id, extent.address);
        loop {
            if self.nodes[id].holder == Owner::UNOWNED {
                id = self.hollow_out(id, extent);
            }
            if self.nodes[id].end() >= extent.end() {
                break;
            }
            id = self.nodes[id].after;
        }
        self.ranges.remove(extent);
        self.segments.lose(extent.units);
        self.ranges
            .given_up
            .insert(extent.address, GivenUp { units: extent.units, is_busy: true, is_lost: false });
    }

    /// Makes the part of a free node that lies on a page hollow. Returns its node.
    fn hollow_out(&mut self, mut id: Id, extent: Extent) -> Id {
        self.detach(id);
        let address = self.nodes[id].address;
        if address < extent.address {
            let behind = self.nodes.cut(id, ((extent.address - address) / UNIT) as u32);
            self.attach(id);
            id = behind;
        }
        let node = &self.nodes[id];
        if node.end() > extent.end() {
            let behind = self.nodes.cut(id, ((extent.end() - node.address) / UNIT) as u32);
            self.attach(behind);
        }
        self.make_hollow(id);
        id
    }

    fn make_hollow(&mut self, id: Id) {
        self.nodes[id].holder = Owner::HOLLOW;
        self.ranges.hollow.insert(self.nodes[id].address, id);
    }

    /// The pages that these sleeping blocks need: the address and the units of each. They stay given up until each is
    /// [mapped](Self::regain) or [given up for good](Self::finish_giving_up).
    pub(crate) fn pages_to_regain(&mut self, blocks: impl Iterator<Item = u64>) -> Vec<(u64, u32)> {
        let mut missing: Vec<(u64, u32)> = Vec::new();
        for address in blocks {
            let Some(id) = self.index.find(&self.nodes, address) else { continue };
            let node = &self.nodes[id];
            for (address, units) in self.ranges.given_up_within(node.address, node.end()) {
                if let Some(page) = self.ranges.given_up.get_mut(&address).filter(|page| !page.is_busy) {
                    page.is_busy = true;
                    missing.push((address, units));
                }
            }
        }
        missing
    }

    /// A page that was given up is mapped: its hollow memory is free.
    pub(crate) fn regain(&mut self, extent: Extent) {
        let known = self.ranges.given_up.remove(&extent.address);
        debug_assert_eq!(known.map(|page| page.units), Some(extent.units));
        self.ranges.insert(extent);
        self.segments.gain(extent.units);
        let hollow: Vec<(u64, Id)> =
            self.ranges.hollow.range(extent.address..extent.end()).map(|(&at, &id)| (at, id)).collect();
        for (address, id) in hollow {
            self.ranges.hollow.remove(&address);
            self.join_unowned(id);
        }
    }

    /// A page that was given up is not mapped.
    pub(crate) fn finish_giving_up(&mut self, address: u64) {
        if let Some(page) = self.ranges.given_up.get_mut(&address) {
            page.is_busy = false;
            self.sweep(address);
        }
    }

    /// Nothing can be mapped where that page was given up. The blocks that sleep there cannot wake, unless a later attempt
    /// succeeds; once they are gone, its addresses are never chosen again.
    pub(crate) fn lose_given_up(&mut self, address: u64) {
        if let Some(page) = self.ranges.given_up.get_mut(&address) {
            page.is_lost = true;
        }
    }

    /// Makes a page absent that is given up, if no block sleeps on it any more.
    fn sweep(&mut self, address: u64) {
        let Some(&GivenUp { units, is_busy: false, is_lost }) = self.ranges.given_up.get(&address) else {
            return;
        };
        let end = address + u64::from(units) * UNIT;
        let (mut at, mut pieces) = (address, Vec::new());
        while at < end {
            // Hollow nodes do not cross the borders of a page.
            let Some(&id) = self.ranges.hollow.get(&at) else { return };
            pieces.push(id);
            at = self.nodes[id].end();
        }
        let Some((&first, rest)) = pieces.split_first() else { return };
        self.ranges.given_up.remove(&address);
        self.ranges.hollow.remove(&address);
        for &id in rest {
            self.ranges.hollow.remove(&self.nodes[id].address);
            self.nodes.join(first, id);
        }
        if is_lost { self.lose(first) } else { self.join_absent(first) }
    }

    /// Frees a sleeping block, whose work is over if a page of it is given up. `None` if no sleeping block begins there.
    pub(crate) fn free_asleep(&mut self, address: u64) -> Option<FreedAsleep> {
        let id = self.index.find(&self.nodes, address)?;
        let node = self.nodes[id];
        if node.holder != Owner::ASLEEP {
            return None;
        }
        let pages = self.ranges.given_up_within(node.address, node.end());
        if pages.is_empty() {
            self.nodes[id].holder = Owner::OUT;
            return Some(FreedAsleep::Mapped);
        }
        self.index.remove(&self.nodes, address);
        self.released += 1;
        // In pieces: what lies on each page that is given up, and what lies between them.
        let mut id = id;
        for &(from, units) in &pages {
            let to = from + u64::from(units) * UNIT;
            if self.nodes[id].address < from {
                let behind = self.cut_at(id, from);
                self.join_unowned(id);
                id = behind;
            }
            let behind = (self.nodes[id].end() > to).then(|| self.cut_at(id, to));
            self.make_hollow(id);
            match behind {
                Some(behind) => id = behind,
                None => break,
            }
        }
        if self.nodes[id].holder == Owner::ASLEEP {
            self.join_unowned(id);
        }
        for (page, _) in pages {
            self.sweep(page);
        }
        Some(FreedAsleep::Gone)
    }

    fn cut_at(&mut self, id: Id, address: u64) -> Id {
        let units = ((address - self.nodes[id].address) / UNIT) as u32;
        self.nodes.cut(id, units)
    }
}
