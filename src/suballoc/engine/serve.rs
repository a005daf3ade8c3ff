//! How the core serves a request, under the mutex: with a block, and with more of its size for the cache.

use smallvec::SmallVec;

use super::book::{Inner, Request, SuballocBook, of_owners};
use super::spill::{return_to_core, spill_all, spill_large};
use crate::resource::DevicePtr;
use crate::stream::{Epoch, StreamId};
use crate::suballoc::core::{Cache, Owner, Spilled};
use crate::sync::MutexGuard;

/// Merging is skipped while a free block fits this many times the largest recent request.
const PLENTY: u32 = 4;

impl SuballocBook {
    /// A block from the core, blocks within `reach` included; if there is none, once more after the requester's own
    /// cache is emptied.
    pub(super) fn serve(&self, request: &Request<'_>, reach: &[(StreamId, Epoch)]) -> Option<DevicePtr> {
        self.serve_with(request, reach, |_| ())
    }

    /// As [`serve`](Self::serve), after calling `first` under the same lock.
    pub(super) fn serve_with(
        &self,
        request: &Request<'_>,
        reach: &[(StreamId, Epoch)],
        first: impl FnOnce(&mut Inner),
    ) -> Option<DevicePtr> {
        let mut inner = self.lock();
        first(&mut inner);
        self.serve_under(inner, request, reach)
    }

    /// As [`serve`](Self::serve), under this lock, which is released.
    pub(super) fn serve_under(
        &self,
        mut inner: MutexGuard<'_, Inner>,
        request: &Request<'_>,
        reach: &[(StreamId, Epoch)],
    ) -> Option<DevicePtr> {
        let steals = inner.steals;
        let served = self.serve_locked(&mut inner, request, reach);
        let is_stolen = inner.steals != steals;
        drop(inner);
        if is_stolen {
            request.emit_steal();
        }
        served
    }

    /// As [`serve`](Self::serve); if there is no block, calls `or` under the same lock.
    pub(super) fn serve_or<T>(
        &self,
        request: &Request<'_>,
        or: impl FnOnce(&mut Inner) -> T,
    ) -> Result<DevicePtr, T> {
        let mut inner = self.lock();
        // With no reach, only the requester's own and unowned blocks are used: no block is stolen.
        self.serve_locked(&mut inner, request, &[]).ok_or_else(|| or(&mut inner))
    }

    #[inline]
    fn serve_locked(
        &self,
        inner: &mut Inner,
        request: &Request<'_>,
        reach: &[(StreamId, Epoch)],
    ) -> Option<DevicePtr> {
        let mut cache = self.cache(&mut inner.core, request.requester.id());
        // Read while the cache is locked, so that no block in the cache or the core has a later epoch: another thread
        // may free on this stream.
        let now = request.requester.now();
        if request.is_long() {
            inner.largest.note(request.want.units());
            let owner = cache.owner();
            if self.page_units > 0 {
                spill_large(&mut cache, &mut inner.core);
            }
            if cache.has_long() && !has_plenty(inner, owner, request) {
                cache.spill_long(|spilled| return_to_core(&mut inner.core, owner, spilled));
            }
        }
        let reach = &of_owners(&inner.core, reach);
        let claim = self.config.claim_units;
        let address = match carve(inner, &mut cache, request, now, reach, claim) {
            Some(address) => address,
            // For a long request the long blocks of the cache are in the core already, and the short ones stay in the
            // cache.
            None if !request.is_long() && spill_all(&mut cache, &mut inner.core) > 0 => {
                carve(inner, &mut cache, request, now, reach, claim)?
            }
            None => return None,
        };
        if self.page_units > 0 && request.is_long() {
            cache.note_cut(address);
        }
        inner.misses += 1;
        if cache.miss(request.want) {
            inner.emptying.note_return();
        }
        DevicePtr::new(address)
    }
}

/// Returns `true` if a free block fits [`PLENTY`] times the longest recent request.
pub(super) fn has_plenty(inner: &Inner, owner: Owner, request: &Request<'_>) -> bool {
    let longest = inner.largest.longest().max(request.want.units());
    inner.core.has_whole(owner, longest.saturating_mul(PLENTY))
}

/// Takes a block out of the core. For a small request takes more blocks of that size, and puts them into the cache.
#[inline]
fn carve(
    inner: &mut Inner,
    cache: &mut Cache,
    request: &Request<'_>,
    now: Epoch,
    reach: &[(Owner, Epoch)],
    claim: u32,
) -> Option<u64> {
    let (owner, units) = (cache.owner(), request.want.units());
    let count = if request.align_units == 1 { cache.run(request.want) } else { 1 };
    if count > 1 {
        let mut run = SmallVec::new();
        if let Some(from) = inner.core.allocate_run(owner, units, count, &mut run) {
            claim_more(inner, owner, from, units, claim, now);
            // Last in, first out: the lowest address is taken next.
            for &address in run[1..].iter().rev() {
                if !cache.put(request.want, address, now) {
                    return_to_core(&mut inner.core, owner, Spilled { address, epoch: now });
                }
            }
            return Some(run[0]);
        }
    }
    let taken = inner.core.allocate(owner, units, request.align_units, reach)?;
    inner.steals += u64::from(taken.from != owner && taken.from != Owner::UNOWNED);
    claim_more(inner, owner, taken.from, units, claim, now);
    Some(taken.address)
}

/// After a small block was taken from unowned memory: reserves more of it for the stream.
fn claim_more(inner: &mut Inner, owner: Owner, from: Owner, units: u32, claim: u32, now: Epoch) {
    if units >= claim || from != Owner::UNOWNED || owner == Owner::UNOWNED {
        return;
    }
    if let Some(claimed) = inner.core.allocate(Owner::UNOWNED, claim, 1, &[]) {
        let known = inner.core.release(claimed.address, owner, now);
        debug_assert!(known.is_ok());
    }
}
