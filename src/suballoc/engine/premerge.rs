//! Mending holes: before a long block is cut from a much longer one, what is over is merged.

use super::book::{Request, SuballocBook, has_plenty, return_to_core};
use crate::suballoc::core::Owned;

/// Holes are mended for longer blocks than this, in units: 1 MiB. With 64 KiB the footprint of four hundred made-up workloads is
/// above that of RMM's pool on as many, to one in a hundred, and the driver is asked more often.
const MERGED_UNITS: u32 = 4096;

/// The most caches that are looked at, the host's among them: so that a request costs a constant, however many streams there
/// are.
const MOST_SHARDS: usize = 20;

impl SuballocBook {
    /// If a long block would be cut from one that is more than a quarter longer: takes the long blocks out of all caches, and
    /// asks the driver what is over on all streams. What is then nobody's is merged, and a better fit may be among it.
    ///
    /// Else what the streams have freed on their own lies apart until memory runs out, and long blocks are cut meanwhile. Where
    /// there is plenty of room, or one stream alone, nothing is done. Nothing waits.
    pub(super) fn premerge(&self, request: &Request<'_>) {
        if request.want.units() <= MERGED_UNITS || !request.is_long() {
            return;
        }
        let owned: Vec<Owned> = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            if inner.core.is_of_one_stream() || self.shards().nth(MOST_SHARDS).is_some() {
                return;
            }
            let owner = self.cache(&mut inner.core, request.requester.id()).owner();
            if has_plenty(inner, owner, request) || !inner.core.would_cut(owner, request.want.units()) {
                return;
            }
            for cache in &mut self.caches() {
                let owner = cache.owner();
                cache.spill_long(|spilled| return_to_core(&mut inner.core, owner, spilled));
            }
            inner.core.owners().collect()
        };
        // What keeps the driver from answering is told by the strategies that cannot do without.
        let _ = self.poll_streams(&owned);
    }
}
