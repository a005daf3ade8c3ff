//! How blocks go back: into their caches, and from the caches into the core.

use super::book::{Inner, Request, SuballocBook, epoch_of};
use super::misuse_kind;
use crate::error::MisuseKind;
use crate::resource::DevicePtr;
use crate::stream::{Stamp, StreamId};
use crate::suballoc::core::{Cache, Core, Inspected, Owner, Spilled, UNIT, Want};

/// The blocks that have come back from caches.
pub(super) struct Emptied {
    pub(super) blocks: usize,
    /// All caches are empty.
    pub(super) is_all: bool,
}

impl SuballocBook {
    /// The slow path of a free: a block that its cache did not take at once. If it is no block that is out, or none of that length, it
    /// is left alone, and what is wrong is returned. It is told from the core, and from the cache that it was freed to.
    pub(super) fn take_back(
        &self,
        want: Want,
        block: DevicePtr,
        freed_at: Option<Stamp>,
    ) -> Option<MisuseKind> {
        // In a forked child the parent's memory is leaked.
        let mut inner = self.lock_unless_forked()?;
        let (address, units) = (block.address(), want.units());
        let mut cache = self.cache(&mut inner.core, freed_at.map(Stamp::stream));
        if cache.holds(want, address) {
            return Some(MisuseKind::DoubleFree);
        }
        let is_live = if self.is_cached(want) || cache.was_cut_last(address) {
            let is_live = inner.core.units_out_at(address) == Some(units);
            if is_live {
                self.put_or_return(&mut inner, &mut cache, want, block, freed_at);
            }
            is_live
        } else {
            // Most blocks that no cache keeps. The core looks the address up once, and not before it frees the block as well.
            spill_large(&mut cache, &mut inner.core);
            inner.core.release_exactly(address, units, cache.owner(), epoch_of(freed_at)).is_ok()
        };
        // An answer may take a walk through a segment, and a token is held for less.
        drop(cache);
        (!is_live).then(|| kind_of_wrong_free(inner.core.inspect(address)))
    }

    /// Puts a freed block into the cache, after making room there if needed; else into the core.
    pub(super) fn put_or_take_back(
        &self,
        inner: &mut Inner,
        want: Want,
        block: DevicePtr,
        freed_at: Option<Stamp>,
    ) {
        let mut cache = self.cache(&mut inner.core, freed_at.map(Stamp::stream));
        self.put_or_return(inner, &mut cache, want, block, freed_at);
    }

    /// The same with the cache at hand.
    fn put_or_return(
        &self,
        inner: &mut Inner,
        cache: &mut Cache,
        want: Want,
        block: DevicePtr,
        freed_at: Option<Stamp>,
    ) {
        let (owner, epoch) = (cache.owner(), epoch_of(freed_at));
        if self.is_cached(want) {
            if cache.put(want, block.address(), epoch) {
                // The cache had room: only its token was taken.
                return;
            }
            cache.make_room(want, |spilled| return_to_core(&mut inner.core, owner, spilled));
            if cache.put(want, block.address(), epoch) {
                return;
            }
        } else if freed_at.is_some() {
            spill_large(cache, &mut inner.core);
            if cache.was_cut_last(block.address()) && inner.core.is_cut_in_place(block.address(), owner) {
                cache.note_in_place(want, block.address(), self.locks());
                if cache.put(want, block.address(), epoch) {
                    return;
                }
            }
        }
        return_to_core(&mut inner.core, owner, Spilled { address: block.address(), epoch });
    }

    /// Empties the cache of one requester. Returns the number of blocks.
    pub(super) fn spill_own(&self, requester: Option<StreamId>) -> usize {
        let mut inner = self.lock();
        let mut cache = self.cache(&mut inner.core, requester);
        spill_all(&mut cache, &mut inner.core)
    }

    /// Empties every cache. Returns the number of blocks.
    pub(super) fn spill(&self) -> usize {
        self.spill_locked(&mut self.lock())
    }

    /// As [`spill`](Self::spill), after the suballocator could not grow.
    pub(super) fn spill_where_none_grows(&self) -> usize {
        let mut inner = self.lock();
        inner.emptying.note_refusal();
        self.spill_locked(&mut inner)
    }

    /// Empties one cache after another, and releases the mutex in between. A block that moves from one cache to another
    /// meanwhile may be missed.
    pub(super) fn spill_in_turn(&self) {
        for shard in self.shards() {
            let mut inner = self.lock();
            spill_all(&mut shard.lock(), &mut inner.core);
        }
    }

    /// As [`spill`](Self::spill). All caches are locked at once: else a block may move from a later cache to one that
    /// has been emptied.
    pub(super) fn spill_locked(&self, inner: &mut Inner) -> usize {
        self.caches().iter_mut().map(|cache| spill_all(cache, &mut inner.core)).sum()
    }

    /// Empties caches for a request, before the suballocator grows: the requester's own, and the others that
    /// [`Emptying`] selects. A long request gets the long blocks of all caches, because a segment of memory costs more
    /// there than the time of a call.
    pub(super) fn spill_for(&self, request: &Request<'_>) -> Emptied {
        let (mut inner, own) = (self.lock(), request.requester.id());
        let inner = &mut *inner;
        if inner.emptying.is_for_all() {
            let (mut blocks, mut emptied) = (0, 0);
            for cache in &mut self.caches() {
                let (owner, is_own) = (cache.owner(), cache.stream() == own);
                let return_to_core = |spilled| return_to_core(&mut inner.core, owner, spilled);
                let gone =
                    if is_own { cache.spill(return_to_core) } else { cache.spill_for_other(return_to_core) };
                blocks += gone;
                emptied += usize::from(gone > 0 && !is_own);
            }
            inner.emptying.note_emptied(emptied);
            return Emptied { blocks, is_all: true };
        }
        let mut blocks = spill_all(&mut self.cache(&mut inner.core, own), &mut inner.core);
        if request.is_long() {
            for shard in self.shards() {
                let mut cache = shard.lock();
                let owner = cache.owner();
                blocks += cache.spill_long(|spilled| return_to_core(&mut inner.core, owner, spilled));
            }
        }
        let (first, looks) = inner.emptying.next_looks(self.shards().count(), inner.misses);
        for shard in self.shards().cycle().skip(first).take(looks) {
            let mut cache = shard.lock();
            if cache.is_idle() {
                blocks += spill_all(&mut cache, &mut inner.core);
            }
        }
        Emptied { blocks, is_all: false }
    }
}

pub(super) fn spill_all(cache: &mut Cache, core: &mut Core) -> usize {
    let owner = cache.owner();
    cache.spill(|spilled| return_to_core(core, owner, spilled))
}

/// As [`spill_all`], for the large blocks.
pub(super) fn spill_large(cache: &mut Cache, core: &mut Core) -> usize {
    let owner = cache.owner();
    cache.spill_large(|spilled| return_to_core(core, owner, spilled))
}

/// The kind of misuse of a free, from the core's answer: there is no block that is out, or one of another length.
fn kind_of_wrong_free(inspected: Inspected) -> MisuseKind {
    match inspected {
        Inspected::Out { units } => MisuseKind::WrongSize { allocated_bytes: units as usize * UNIT as usize },
        inspected => misuse_kind(inspected),
    }
}

/// Returns a cached block to the core. If a caller has freed an address that is no block of this core, it is ignored.
pub(super) fn return_to_core(core: &mut Core, owner: Owner, spilled: Spilled) {
    let known = core.release(spilled.address, owner, spilled.epoch);
    debug_assert!(known.is_ok(), "a block that the core does not know was freed: {spilled:?}");
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use core::cell::Cell;
    use std::rc::Rc;

    use super::*;
    use crate::source::Cuda;
    use crate::sync::when_it_waits;
    use crate::{DeviceVec, PoolConfig, ResourceExt, Sim};

    /// Else a block may move meanwhile from a later cache to one that has been emptied.
    #[test]
    fn no_cache_is_spilled_before_all_are_held() {
        let sim = Sim::new();
        let device = sim.device(0);
        let streams = [(); 2].map(|()| device.stream().expect("there are numbers left"));
        // The code in the middle of the spill must not borrow.
        let pool = Cuda::new(&device).pool(PoolConfig::default()).expect("a right configuration");
        let pool: &'static _ = Box::leak(Box::new(pool));
        let book: &'static SuballocBook = pool.find::<SuballocBook>().expect("a pool has one");
        for stream in &streams {
            drop(DeviceVec::<u8, _>::uninit_in(256, stream.as_ref(), pool).expect("there is room"));
        }
        let [first, second] = streams.each_ref().map(|stream| stream.id().index());
        assert!(first < second, "it is looked at first");
        let cache = |place| &**book.shards.get(place).expect("it was used");
        let (of_first, of_second) = (cache(first), cache(second).lock());
        let has_waited = Rc::new(Cell::new(false));
        when_it_waits({
            let has_waited = Rc::clone(&has_waited);
            move || {
                assert!(
                    of_first.try_lock().is_none(),
                    "the first one is let go of before the second one is held"
                );
                drop(of_second);
                has_waited.set(true);
            }
        });
        assert!(book.spill() >= 2);
        assert!(has_waited.get());
    }
}
