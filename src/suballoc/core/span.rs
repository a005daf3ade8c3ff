//! The fewest streams whose free memory makes one piece that is large enough.

use smallvec::SmallVec;

use super::gather::Limits;
use super::node::{BlockNode, Id};
use super::{Core, Owner};
use crate::stream::{Epoch, Stamp};

/// The streams to wait for, with their points: few, where few streams own the neighbours.
pub(crate) type Span = SmallVec<[Stamp; 4]>;

impl Core {
    /// Finds the piece of adjacent free blocks, of at least `units`, with the fewest blocks that `requester` may not
    /// take yet: those of other streams beyond `reach`. Returns the point of each of these streams that it must wait
    /// for; `None` if there is no such piece. O(free blocks), as [`gather`](Self::gather), which then makes one block
    /// of it.
    pub(crate) fn span_of(&self, units: u64, requester: Owner, reach: &[(Owner, Epoch)]) -> Option<Span> {
        let limits = Limits::of(self, requester, reach);
        let mut best: Option<(usize, Id, Id)> = None;
        let is_free = |node: &BlockNode| node.holder.is_of_free();
        let all = self.owners.iter().flat_map(|(_, place)| place.bins.iter(&self.nodes));
        for start in all.filter(|&id| !is_free(&self.nodes[self.nodes[id].before])) {
            // A window that grows at its end, and shrinks at its beginning while it stays large enough.
            let (mut first, mut sum, mut beyond) = (start, 0, 0);
            for last in self.chain(start).take_while(|&id| is_free(&self.nodes[id])) {
                let node = &self.nodes[last];
                sum += u64::from(node.units);
                beyond += usize::from(!limits.take(node));
                loop {
                    let node = &self.nodes[first];
                    if first == last || sum - u64::from(node.units) < units {
                        break;
                    }
                    sum -= u64::from(node.units);
                    beyond -= usize::from(!limits.take(node));
                    first = node.after;
                }
                if sum >= units && best.is_none_or(|(least, ..)| beyond < least) {
                    best = Some((beyond, first, last));
                }
            }
        }
        let (_, first, last) = best?;
        let mut span = Span::new();
        for id in self.chain(first) {
            let node = &self.nodes[id];
            if let Some(stream) = self.stream_of(node.holder).filter(|_| !limits.take(node)) {
                let epoch = Epoch(node.epoch);
                match span.iter_mut().find(|stamp| stamp.stream == stream) {
                    Some(stamp) => stamp.epoch = stamp.epoch.max(epoch),
                    None => span.push(Stamp { stream, epoch }),
                }
            }
            if id == last {
                break;
            }
        }
        Some(span)
    }
}
