//! Unmaps memory of a range: first the pages leave the bins, then the caller unmaps them, then their addresses are
//! absent.

use super::node::Id;
use super::range::Extent;
use super::{Core, Owner, UNIT};

impl Core {
    /// Takes pages on which no live block lies, and whose work is completed, out of the core: whole extents within
    /// unowned free blocks, of `least` units at least if there are so many, and never of more than `most`. The shortest
    /// free blocks are looked at first, because the next long request of a program that repeats itself needs the longest ones, and of
    /// those of similar size the one that was free the longest; of a block the last pages are taken. O(pages taken, and unowned free
    /// blocks that are longer than a page).
    ///
    /// Each is to be [unmapped](Self::finish_unmapping) or [kept](Self::abandon_unmapping), or mapped elsewhere and
    /// [left](Self::leave_alias) where it is.
    pub(crate) fn take_pages(&mut self, least: u64, most: u64) -> Vec<Extent> {
        let found = self.movable(least, most);
        found.iter().for_each(|(id, extents)| self.take_extents(*id, extents));
        found.into_iter().flat_map(|(_, extents)| extents).collect()
    }

    /// Unowned free blocks with pages to take, and these pages: adjacent ones, the last one first. One walk, so that
    /// blocks without a whole page are looked at once for any number of pages.
    fn movable(&self, least: u64, most: u64) -> Vec<(Id, Vec<Extent>)> {
        let mut found = Vec::new();
        if self.ranges.page_units == 0 || least == 0 {
            return found;
        }
        let mut units = 0;
        for id in self.longer_than_a_page() {
            let node = &self.nodes[id];
            let mut extents = Vec::new();
            for extent in self.ranges.within(node.address, node.end()) {
                let more = units + u64::from(extent.units);
                if units >= least || more > most {
                    break;
                }
                units = more;
                extents.push(extent);
            }
            if !extents.is_empty() {
                found.push((id, extents));
            }
            if units >= least {
                break;
            }
        }
        found
    }

    /// Cuts adjacent extents, the last one first, out of a free block.
    pub(super) fn take_extents(&mut self, mut id: Id, extents: &[Extent]) {
        let (Some(last), Some(first)) = (extents.first(), extents.last()) else { return };
        self.detach(id);
        let front = ((first.address - self.nodes[id].address) / UNIT) as u32;
        if front > 0 {
            let behind = self.nodes.cut(id, front);
            self.attach(id);
            id = behind;
        }
        if self.nodes[id].end() > last.end() {
            let behind = self.nodes.cut(id, ((last.end() - first.address) / UNIT) as u32);
            self.attach(behind);
        }
        for extent in extents.iter().rev() {
            let behind = (self.nodes[id].units > extent.units).then(|| self.nodes.cut(id, extent.units));
            self.nodes[id].holder = Owner::MOVING;
            self.ranges.moving.insert(extent.address, id);
            self.ranges.remove(*extent);
            self.segments.lose(extent.units);
            id = behind.unwrap_or(id);
        }
    }

    /// The page is no longer mapped.
    pub(crate) fn finish_unmapping(&mut self, extent: Extent) {
        if let Some(id) = self.ranges.moving.remove(&extent.address) {
            self.join_absent(id);
        }
    }

    /// The page is mapped still: its memory is free again.
    pub(crate) fn abandon_unmapping(&mut self, extent: Extent) {
        if let Some(id) = self.ranges.moving.remove(&extent.address) {
            self.ranges.insert(extent);
            self.segments.gain(extent.units);
            self.join_unowned(id);
        }
    }
}
