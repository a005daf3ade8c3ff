//! Merges memory of completed work, before a long block is cut from a much longer one.

use super::book::{Request, SuballocBook};
use super::serve::has_plenty;
use super::spill::{return_to_core, spill_large};
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
    /// If a long block would be cut from one that is more than a quarter longer: takes the long blocks out of all
    /// caches, and asks the driver which work is completed on all streams. Unowned memory is merged, and may hold a
    /// better fit.
    ///
    /// Else the free blocks of different streams stay unmerged until memory runs out, and long blocks are cut
    /// meanwhile. Where there is plenty of room, or only one stream, nothing is done. No stream waits.
    pub(super) fn premerge(&self, request: &Request<'_>) {
        if request.want.units() <= MERGED_UNITS || !request.is_long() {
            return;
        }
        let owned: Vec<Owned> = {
            let mut inner = self.lock();
            let inner = &mut *inner;
            if inner.core.is_of_one_stream() || self.shards_made() > MOST_SHARDS {
                return;
            }
            let owner = {
                let mut cache = self.cache(&mut inner.core, request.requester.id());
                if self.page_units > 0 {
                    spill_large(&mut cache, &mut inner.core);
                }
                cache.owner()
            };
            let has_plenty = self.page_units == 0 && has_plenty(inner, owner, request);
            if has_plenty || !inner.core.would_cut(owner, request.want.units()) {
                return;
            }
            for cache in &mut self.caches() {
                let owner = cache.owner();
                cache.spill_long(|spilled| return_to_core(&mut inner.core, owner, spilled));
            }
            let worth_a_query = u64::from(request.want.units() / WORTH);
            inner.core.owners().filter(|owned| owned.free_units >= worth_a_query).collect()
        };
        // An error of the driver is reported by the strategies that need its answer.
        let _ = self.poll_streams(&owned);
    }
}
