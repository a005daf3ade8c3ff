//! Merges memory of completed work, before a long block is cut from a much longer one.

use super::book::{Inner, Request, SuballocBook};
use super::serve::has_plenty;
use super::spill::{return_to_core, spill_large};
use crate::resource::DevicePtr;
use crate::suballoc::Reuse;
use crate::suballoc::core::Owned;

/// Only requests longer than this merge first, in units: 1 MiB. With 64 KiB the footprint is above that of RMM's pool
/// on as many of four hundred made-up workloads, to one in a hundred, and there are more queries of the driver.
const MERGED_UNITS: u32 = 4096;

/// With more caches of streams than this, merging is skipped, so that the cost of a request is bounded for any number of streams.
const MOST_SHARDS: usize = 16;

/// A stream is asked only if it has this part of the request free. A query is up to three calls of the driver, and less than that is
/// seldom the piece that was missing: over 400 made-up workloads the footprints are the same to a thousandth with it and without, at a
/// quarter they are 0.2 % higher on half of them.
const WORTH: u32 = 8;

impl SuballocBook {
    /// A block from the core, of the requester's own or unowned memory.
    ///
    /// If a long block would be cut from one that is more than a quarter longer: takes the long blocks out of all
    /// caches, and asks the driver which work is completed on all streams. Unowned memory is merged, and may hold a
    /// better fit.
    ///
    /// Else the free blocks of different streams stay unmerged until memory runs out, and long blocks are cut
    /// meanwhile. Where there is plenty of room, or only one stream, nothing is merged. No stream waits.
    pub(super) fn serve_merged(&self, request: &Request<'_>) -> Option<DevicePtr> {
        let mut inner = self.lock();
        if self.may_merge_for(request) && !inner.core.is_of_one_stream() {
            let owned = self.worth_a_query(&mut inner, request);
            if !owned.is_empty() {
                drop(inner);
                // An error of the driver is reported by the strategies that need its answer.
                let _ = self.poll_streams(&owned);
                inner = self.lock();
            }
        }
        self.serve_under(inner, request, &[])
    }

    fn may_merge_for(&self, request: &Request<'_>) -> bool {
        request.want.units() > MERGED_UNITS
            && request.is_long()
            && self.config.reuse != Reuse::Own
            && self.shards_made() <= MOST_SHARDS
    }

    /// The streams whose completed work may have what a request needs; their long blocks are in the core then. None where nothing is to
    /// be merged.
    fn worth_a_query(&self, inner: &mut Inner, request: &Request<'_>) -> Vec<Owned> {
        let owner = {
            let mut cache = self.cache(&mut inner.core, request.requester.id());
            if self.page_units > 0 {
                spill_large(&mut cache, &mut inner.core);
            }
            cache.owner()
        };
        let has_plenty = self.page_units == 0 && has_plenty(inner, owner, request);
        if has_plenty || !inner.core.would_cut(owner, request.want.units()) {
            return Vec::new();
        }
        for shard in self.shards() {
            let mut cache = shard.lock();
            let owner = cache.owner();
            cache.spill_long(|spilled| return_to_core(&mut inner.core, owner, spilled));
        }
        let least = u64::from(request.want.units() / WORTH);
        inner.core.owners().filter(|owned| owned.free_units >= least).collect()
    }
}
