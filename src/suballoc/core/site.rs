//! `Site`: where a range grows for a request.

use super::gather::Limits;
use super::node::Id;
use super::{Core, Owner, UNIT};

/// How many absent nodes are looked at for one request. A search of this many takes less than mapping one page, which
/// is 46 µs on an H200; programs have a few dozen.
const LOOKS: usize = 256;

/// How many nodes of a run are looked at on each side of an absent one.
const SIDE: usize = 32;

/// The addresses that a block gets when the pages that miss there are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) address: u64,
    pub(crate) units: u32,
    /// The units of the pages to map.
    pub(crate) missing: u64,
    /// The node that the address lies in.
    pub(super) first: Id,
}

/// A run of adjacent nodes that are absent, or that the requester may take.
type Run = Vec<(Id, u64, u64, bool)>;

impl Core {
    /// The site with the fewest missing pages; of several, the one in the shortest run, at the lowest address. It may
    /// use the requester's own blocks, unowned ones and those within reach. `None` if no run of addresses is so long.
    pub(super) fn site_within(&self, units: u32, align_units: u32, limits: &Limits) -> Option<Site> {
        let mut best: Option<((u64, u64, u64), Site)> = None;
        let mut seen_to = 0;
        let all = self.ranges.absent_in(self.ranges.zone_for(units));
        let last = self.ranges.absent_in(self.ranges.zone_for(units)).next_back();
        for (address, id) in all.take(LOOKS).chain(last) {
            if address < seen_to {
                continue;
            }
            let run = self.run_around(id, limits);
            let (Some(start), Some(end)) =
                (run.first().map(|piece| piece.1), run.last().map(|piece| piece.2))
            else {
                continue;
            };
            seen_to = end;
            for site in self.sites_in(&run, start, end, units, align_units) {
                let key = (site.missing, end - start, site.address);
                if best.is_none_or(|(least, _)| key < least) {
                    best = Some((key, site));
                }
            }
        }
        best.map(|(_, site)| site)
    }

    /// The nodes around an absent one, in the order of their addresses, without the last page of the range.
    fn run_around(&self, id: Id, limits: &Limits) -> Run {
        let is_of_run = |id: &Id| {
            let node = &self.nodes[*id];
            node.holder == Owner::ABSENT || limits.take(node)
        };
        let before = core::iter::successors(Some(self.nodes[id].before), |&id| Some(self.nodes[id].before));
        let mut run: Vec<Id> = before.take_while(is_of_run).take(SIDE).collect();
        run.reverse();
        run.extend(self.chain(id).take_while(is_of_run).take(SIDE));
        let piece = |id: Id| {
            let node = &self.nodes[id];
            let guard = if node.after == super::node::NONE { self.page_bytes() } else { 0 };
            (id, node.address, node.end() - guard, node.holder == Owner::ABSENT)
        };
        run.into_iter().map(piece).filter(|(_, from, to, _)| from < to).collect()
    }

    /// The sites of a run: each begins where a node begins, or ends where one ends.
    fn sites_in(
        &self,
        run: &Run,
        start: u64,
        end: u64,
        units: u32,
        align_units: u32,
    ) -> impl Iterator<Item = Site> {
        let bytes = u64::from(units) * UNIT;
        let align = u64::from(align_units) * UNIT;
        let begins = run.iter().filter_map(move |piece| piece.1.checked_next_multiple_of(align));
        let ends = run.iter().filter_map(move |piece| Some(piece.2.checked_sub(bytes)? / align * align));
        let fits = move |from: &u64| *from >= start && from.checked_add(bytes).is_some_and(|to| to <= end);
        begins.chain(ends).filter(fits).filter_map(move |address| {
            let first = run.iter().find(|piece| piece.1 <= address && address < piece.2)?.0;
            Some(Site { address, units, missing: self.missing_in(run, address, address + bytes), first })
        })
    }

    /// The units of the pages that miss between two addresses of a run.
    fn missing_in(&self, run: &Run, from: u64, to: u64) -> u64 {
        let page = self.page_bytes();
        let absent = run.iter().filter(|piece| piece.3 && piece.1 < to && from < piece.2);
        let missing = absent.map(|&(_, start, end, _)| {
            let first = start.max(from / page * page);
            let last = end.min(to.next_multiple_of(page));
            last - first
        });
        missing.sum::<u64>() / UNIT
    }

    fn page_bytes(&self) -> u64 {
        u64::from(self.ranges.page_units) * UNIT
    }
}
