//! Maps memory into a range: first the nodes of the site leave the bins, then the caller maps pages, then the block is
//! out, or everything is as before.

use smallvec::SmallVec;

use super::bins::Zone;
use super::gather::Limits;
use super::node::{BlockNode, Id};
use super::range::Extent;
use super::site::Site;
use super::{Core, Owner, UNIT};
use crate::stream::{Epoch, StreamId};

/// A node of a site, as it was.
#[derive(Clone, Copy, Debug)]
enum Piece {
    Free { units: u32, stream: Option<StreamId>, epoch: u64 },
    Absent { units: u32 },
}

/// A part of a site that could not be mapped.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// As it was.
    Was(Piece),
    /// Mapped, and free.
    Mapped,
    /// Nothing can be mapped there.
    Lost,
}

/// A site that no search finds while its pages are being mapped.
#[derive(Debug)]
#[must_use = "the nodes of the site are in no bin until it is finished or abandoned"]
pub(crate) struct Growing {
    pub(crate) site: Site,
    /// The address of the node.
    start: u64,
    pieces: SmallVec<[Piece; 4]>,
    /// Where pages are to be mapped, and for how many units.
    pub(crate) gaps: SmallVec<[(u64, u32); 4]>,
}

impl Growing {
    /// The units of all gaps.
    pub(crate) fn gap_units(&self) -> u64 {
        self.gaps.iter().map(|&(_, units)| u64::from(units)).sum()
    }
}

impl Core {
    /// The best site for a block of `requester`, which may use its own blocks, unowned ones and those within `reach`.
    /// O(1): a bounded number of nodes is looked at. `None` if the ranges are too short.
    pub(crate) fn site(
        &self,
        requester: Owner,
        units: u32,
        align_units: u32,
        reach: &[(Owner, Epoch)],
    ) -> Option<Site> {
        self.site_within(units, align_units, &Limits::of(self, requester, reach))
    }

    /// Takes the nodes of a site, which [`site`](Self::site) has found under the same lock, out of their bins. Maps up
    /// to `spare` units more behind the site, where these are absent: whole pages.
    pub(crate) fn begin_growth(&mut self, site: Site, spare: u64) -> Growing {
        self.regrown += 1;
        let page = u64::from(self.ranges.page_units) * UNIT;
        let end = site.address + u64::from(site.units) * UNIT;
        let mut id = site.first;
        self.detach(id);
        let BlockNode { address, holder, .. } = self.nodes[id];
        let front = if holder == Owner::ABSENT {
            site.address / page * page - address
        } else {
            site.address - address
        };
        if front > 0 {
            let behind = self.nodes.cut(id, (front / UNIT) as u32);
            self.attach(id);
            id = behind;
        }
        let head = id;
        let start = self.nodes[head].address;
        let mut growing = Growing { site, start, pieces: SmallVec::new(), gaps: SmallVec::new() };
        loop {
            let node = self.nodes[id];
            let is_absent = node.holder == Owner::ABSENT;
            // The last page of a range is its guard: it stays absent.
            let most = if node.after == super::node::NONE { node.end() - page } else { node.end() };
            let stop = match is_absent {
                true => (end.next_multiple_of(page) + spare * UNIT).min(most),
                false => end,
            };
            let is_last = node.end() >= end;
            if is_last && stop < node.end() {
                let behind = self.nodes.cut(id, ((stop - node.address) / UNIT) as u32);
                self.attach(behind);
            }
            let BlockNode { address, units, epoch, .. } = self.nodes[id];
            growing.pieces.push(if is_absent {
                growing.gaps.push((address, units));
                Piece::Absent { units }
            } else {
                Piece::Free { units, stream: self.stream_of(node.holder), epoch }
            });
            if id != head {
                self.nodes.join(head, id);
            }
            if is_last {
                break;
            }
            id = self.nodes[head].after;
            self.detach(id);
        }
        self.nodes[head].holder = Owner::MOVING;
        self.ranges.moving.insert(start, head);
        growing
    }

    /// The pages are mapped: the block is out. What was mapped beside it is free; where there is one stream, of
    /// `requester` at `epoch`, else of no owner. Returns the block's address.
    pub(crate) fn finish_growth(
        &mut self,
        growing: &Growing,
        mapped: &[Extent],
        requester: Owner,
        epoch: Epoch,
    ) -> u64 {
        self.note_mapped(mapped);
        let Site { address, units, .. } = growing.site;
        let Some(mut id) = self.ranges.moving.remove(&growing.start) else { return address };
        let mut beside: SmallVec<[Id; 2]> = SmallVec::new();
        let front = ((address - growing.start) / UNIT) as u32;
        if front > 0 {
            let behind = self.nodes.cut(id, front);
            beside.push(id);
            id = behind;
        }
        if self.nodes[id].units > units {
            beside.push(self.nodes.cut(id, units));
        }
        self.nodes[id].holder = Owner::OUT;
        self.index.insert(address, id);
        for id in beside {
            if self.owners.is_sole() && !self.apart && requester != Owner::UNOWNED {
                self.free_units += u64::from(self.nodes[id].units);
                self.join(id, requester, epoch.0, true);
            } else {
                self.join_unowned(id);
            }
        }
        address
    }

    /// The pages could not be mapped, but for these: every node is as it was, what was mapped is free, and addresses that are
    /// lost are never chosen again. Neither reaches out of the gaps.
    pub(crate) fn abandon_growth(&mut self, growing: &Growing, mapped: &[Extent], lost: &[Extent]) {
        self.regrown += 1;
        self.note_mapped(mapped);
        let Some(mut id) = self.ranges.moving.remove(&growing.start) else { return };
        let known = mapped.iter().map(|extent| (*extent, Part::Mapped));
        let mut known: Vec<(Extent, Part)> =
            known.chain(lost.iter().map(|extent| (*extent, Part::Lost))).collect();
        known.sort_unstable_by_key(|(extent, _)| extent.address);
        let mut parts: Vec<(u32, Part)> = Vec::new();
        let mut at = growing.start;
        for &piece in &growing.pieces {
            match piece {
                Piece::Free { units, .. } => {
                    parts.push((units, Part::Was(piece)));
                    at += u64::from(units) * UNIT;
                }
                Piece::Absent { units } => {
                    let end = at + u64::from(units) * UNIT;
                    while at < end {
                        let (next, part) = match known.get(known.partition_point(|(of, _)| of.address < at)) {
                            Some((extent, part)) if extent.address == at => (extent.end(), Some(*part)),
                            Some((extent, _)) => (extent.address.min(end), None),
                            None => (end, None),
                        };
                        let units = ((next - at) / UNIT) as u32;
                        parts.push((units, part.unwrap_or(Part::Was(Piece::Absent { units }))));
                        at = next;
                    }
                }
            }
        }
        let mut ids: Vec<(Id, Part)> = Vec::with_capacity(parts.len());
        for (units, part) in parts {
            let behind = (self.nodes[id].units > units).then(|| self.nodes.cut(id, units));
            ids.push((id, part));
            id = behind.unwrap_or(id);
        }
        for (id, part) in ids {
            match part {
                Part::Was(Piece::Absent { .. }) => self.join_absent(id),
                Part::Was(Piece::Free { units, stream: Some(stream), epoch }) => {
                    match self.owner_of(stream) {
                        Some(owner) => {
                            self.free_units += u64::from(units);
                            self.mixed = true;
                            self.join(id, owner, epoch, false);
                        }
                        // The stream has left, with all its work.
                        None => self.join_unowned(id),
                    }
                }
                Part::Was(Piece::Free { stream: None, .. }) | Part::Mapped => self.join_unowned(id),
                Part::Lost => self.lose(id),
            }
        }
    }

    /// Maps memory at the beginning of the last range, for no request.
    pub(crate) fn begin_initial(&mut self, units: u32) -> Option<Growing> {
        let (address, first) = self.ranges.absent_in(Zone::SECOND).next_back()?;
        let missing = u64::from(units).next_multiple_of(u64::from(self.ranges.page_units));
        let site = Site { address, units, missing, first };
        let room = u64::from(self.nodes[first].units) - u64::from(self.ranges.page_units);
        (missing <= room).then(|| self.begin_growth(site, 0))
    }

    fn note_mapped(&mut self, mapped: &[Extent]) {
        for &extent in mapped {
            self.ranges.insert(extent);
            self.segments.gain(extent.units);
        }
    }
}
