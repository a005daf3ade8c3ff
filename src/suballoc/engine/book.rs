//! `SuballocBook`: the state of a suballocator, and its locks.
//!
//! # The locks
//!
//! Each cache is behind a [`Token`], held for a few nanoseconds; the core is behind the one mutex. A thread with the
//! mutex may take tokens; a thread with a token takes no other lock. Blocks move between a cache and the core under
//! both locks, so a thread with the mutex and all tokens sees every block. Neither is held across a call to an
//! upstream, a driver or a user.

use core::ops::Deref;
use core::sync::atomic::{AtomicBool, AtomicUsize};

use smallvec::SmallVec;

use super::emptying::Emptying;
use super::events::event;
use super::graphs::Graphs;
use super::grow::Caller;
use super::largest::Largest;
use super::requester::Requester;
use super::sleeping::Sleepers;
use crate::device::Device;
use crate::driver::DriverResult;
use crate::nvtx;
use crate::resource::{DevicePtr, Figures, Layer, Layout};
use crate::stream::{Epoch, Places, StreamId, StreamRef, ThreadToken};
use crate::suballoc::PageBudget;
use crate::suballoc::core::{Cache, Core, LONG_UNITS, Owner, Spilled, UNIT, Want};
use crate::suballoc::ledger::Ledger;
use crate::suballoc::roll::{Kind, Listed, Record, Text};
use crate::sync::{Apart, AtomicU64, Mutex, Ordering, Token, TokenGuard};

/// Caches for the blocks of synchronous calls. Threads are spread over them; with four, sixteen threads seldom meet.
const HOST_CACHES: usize = if cfg!(loom) { 1 } else { 4 };

/// Merging is skipped while a free block fits this many times the largest recent request.
const PLENTY: u32 = 4;

/// How far a requester comes after other streams. By stream and not by [`Owner`], because it is found without the
/// mutex: the place of an owner may be another stream's once the mutex is taken again.
pub(super) type Reach = SmallVec<[(StreamId, Epoch); 8]>;

/// The same for the core, by owner: valid while the mutex is held.
pub(super) fn of_owners(core: &Core, reach: &[(StreamId, Epoch)]) -> SmallVec<[(Owner, Epoch); 8]> {
    reach.iter().filter_map(|&(stream, epoch)| Some((core.owner_of(stream)?, epoch))).collect()
}

/// A cache, of a stream or for synchronous calls. No two caches share a cache line.
pub(super) type CacheShard = Apart<Token<Cache>>;

/// The state under the mutex.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) core: Core,
    /// Units requested of the upstream and not answered yet.
    pub(super) pledged: u64,
    /// Upstream calls that have ended: for a segment, or with one.
    pub(super) answers: u64,
    /// Units on their way back to the upstream: still reserved there, but no longer in the core.
    pub(super) leaving: u64,
    /// Upstream calls that have begun: for a segment, or with one.
    pub(super) calls: u64,
    /// The threads that are in an upstream call. A request that such a thread makes meanwhile, from a handler further
    /// down, must not wait for the end of that call; a request to another suballocator may.
    pub(super) callers: SmallVec<[Caller; 4]>,
    pub(super) peak_reserved: u64,
    pub(super) misses: u64,
    /// The longest recent request.
    largest: Largest,
    pub(super) emptying: Emptying,
    pub(super) steals: u64,
    /// The most units that were live when it grew.
    pub(super) peak_live: u64,
    /// Pages that were unmapped to be mapped elsewhere, and their units.
    pub(super) moves: u64,
    pub(super) moved: u64,
    pub(super) sleepers: Sleepers,
}

impl Inner {
    fn new(claim_units: u32) -> Self {
        Self {
            core: if claim_units > 0 { Core::keeping_apart() } else { Core::new() },
            pledged: 0,
            answers: 0,
            leaving: 0,
            calls: 0,
            callers: SmallVec::new(),
            peak_reserved: 0,
            misses: 0,
            largest: Largest::default(),
            emptying: Emptying::default(),
            steals: 0,
            peak_live: 0,
            moves: 0,
            moved: 0,
            sleepers: Sleepers::default(),
        }
    }
}

/// What stays where it is while a suballocator is moved, so that a debugger finds it: one piece of the heap.
#[derive(Debug)]
pub(super) struct Desk {
    record: Record,
    host: [CacheShard; HOST_CACHES],
    /// On cache lines of its own: it is written at every cache miss.
    inner: Apart<Mutex<Inner>>,
}

impl Desk {
    fn new(inner: Inner, record: Record) -> Box<Self> {
        let mut desk = Box::new(Self { record, host: Default::default(), inner: Apart(Mutex::new(inner)) });
        let Self { record, host, inner } = &mut *desk;
        inner.get_mut().core.show(record);
        host.iter().for_each(|shard| shard.lock().show(record));
        desk
    }
}

impl Deref for Desk {
    type Target = Mutex<Inner>;

    #[inline]
    fn deref(&self) -> &Mutex<Inner> {
        &self.inner
    }
}

/// The blocks that have come back from caches.
pub(super) struct Emptied {
    pub(super) blocks: usize,
    /// All caches are empty.
    pub(super) is_all: bool,
}

/// Counters outside of the locks.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) waits: AtomicU64,
    pub(super) events_recorded: AtomicU64,
    pub(super) upstream_calls: AtomicU64,
    /// The reserved bytes of the core, for threads that must not take the mutex. Not of `sync`, because no protocol
    /// depends on it.
    reserved_bytes: AtomicUsize,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        // Relaxed: a figure for people.
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// The state of a suballocator, of one type for every upstream: found in a stack by [`find`](crate::ResourceExt::find).
///
/// `find::<Pool>()` finds a pool's, and `find::<SuballocBook>()` that of the outermost suballocator, of whatever kind.
///
/// ```
/// use alluvion::suballoc::SuballocBook;
/// use alluvion::{AnyResource, DeviceVec, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let erased = AnyResource::new(Cuda::new(&sim.device(0)).pool(PoolConfig::default())?);
/// let _numbers = DeviceVec::<f32, _>::zeroed_in(1000, &stream, erased.clone())?;
/// let book = erased.find::<SuballocBook>().expect("there is a pool in it");
/// assert_eq!((book.status().live_blocks, book.snapshot().segments.len()), (1, 1));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
pub struct SuballocBook {
    pub(super) device: Device,
    /// The most that it may reserve of its upstream.
    pub(super) maximum_units: u64,
    /// See [`EngineConfig`](super::EngineConfig).
    claim_units: u32,
    /// The unit of the upstream's pages; 0 where it has none, or where they are not used.
    pub(super) page_units: u32,
    pub(super) page_budget: Option<PageBudget>,
    /// All of it sleeps. Not of `sync`, because no protocol depends on it.
    pub(super) sleeps: AtomicBool,
    pub(super) ledger: Option<Ledger>,
    /// Nobody has to know which blocks are out: there is no ledger, and no tool. Read for every block; it changes with the first memory.
    is_plain: AtomicBool,
    /// Its stack is chosen to be announced.
    pub(super) is_chosen: AtomicBool,
    /// Apart from what is written often: its filter is read for every block.
    pub(super) graphs: Graphs,
    /// Dropped before what it leads to, which is all that follows.
    _listed: Listed,
    shards: Places<Box<CacheShard>>,
    pub(super) inner: Box<Desk>,
    pub(super) counters: Apart<Counters>,
}

/// A request of a requester.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'s> {
    pub(super) requester: Requester<'s>,
    pub(super) layout: Layout,
    pub(super) want: Want,
    pub(super) align_units: u32,
}

impl Request<'_> {
    /// Returns `true` if blocks of this length are worth merging: see [`LONG_UNITS`]. Where all blocks are of one size,
    /// none is.
    pub(super) fn is_long(&self) -> bool {
        self.want.units() > LONG_UNITS && !self.want.is_only()
    }

    /// The units that serve it wherever the free piece begins: its length, and the padding for its alignment.
    pub(super) fn need(&self) -> u64 {
        u64::from(self.want.units()) + u64::from(self.align_units) - 1
    }

    /// Emits an event: it was served with a block that another stream had freed. No lock is held.
    pub(super) fn emit_steal(&self) {
        event!(requester = ?self.requester.id(), bytes = self.layout.bytes(), "steal");
        nvtx::mark(c"steal", self.layout.bytes());
    }

    /// The same for a new segment of at most `room` units. Less padding may do, because most upstreams align segments
    /// well.
    pub(super) fn need_within(&self, room: u64) -> u64 {
        self.need().min(room.max(u64::from(self.want.units())))
    }
}

/// Every suballocator has a book of this type.
impl Layer for SuballocBook {
    type Book = Self;

    fn figures(book: &Self, to: &mut Figures<'_>) {
        book.status().figures(to);
    }
}

impl SuballocBook {
    pub(super) fn new(
        device: &Device,
        maximum_units: u64,
        claim_units: u32,
        checked: bool,
        kind: Kind,
        text: Text,
    ) -> Self {
        let record = Record::new(kind, text, device, maximum_units.saturating_mul(UNIT));
        let inner = Desk::new(Inner::new(claim_units), record);
        Self {
            device: device.clone(),
            maximum_units,
            claim_units,
            page_units: 0,
            page_budget: None,
            sleeps: AtomicBool::new(false),
            ledger: checked.then(Ledger::new),
            is_plain: AtomicBool::new(!checked),
            is_chosen: AtomicBool::new(false),
            graphs: Graphs::default(),
            shards: Places::default(),
            _listed: Listed::of(&inner.record),
            inner,
            counters: Apart::default(),
        }
    }

    /// Returns `true` in a forked child of the process that it was made in: it serves no request there.
    pub(super) fn is_of_parent(&self) -> bool {
        self.inner.is_of_parent()
    }

    /// # Errors
    ///
    /// That the driver is not initialised, in a forked child of the process that it was made in.
    pub(super) fn require_here(&self) -> DriverResult<()> {
        self.inner.require_here()
    }

    /// Returns `true` if a block goes out, and comes back, without anybody having to know.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        // Relaxed: it changes before the first block goes out, and who has a block comes after that.
        self.is_plain.load(Ordering::Relaxed)
    }

    /// A tool hears of the blocks, from the first one.
    pub(super) fn is_plain_no_more(&self) {
        // Relaxed: as above.
        self.is_plain.store(false, Ordering::Relaxed);
    }

    /// The bytes that it has reserved of its upstream. Takes no lock, so the figure may be a moment old.
    #[must_use]
    #[inline]
    pub fn reserved_bytes(&self) -> usize {
        // Relaxed: a figure for people.
        self.counters.reserved_bytes.load(Ordering::Relaxed)
    }

    /// Updates the figures after a segment has come or gone.
    pub(super) fn note_reserved(&self, inner: &mut Inner) {
        let units = inner.core.reserved_units();
        if units as usize * Layout::MIN_ALIGN > self.reserved_bytes() {
            inner.emptying.note_growth();
        }
        inner.peak_reserved = inner.peak_reserved.max(units);
        // Relaxed: as above; it is written under the mutex.
        self.counters.reserved_bytes.store(units as usize * Layout::MIN_ALIGN, Ordering::Relaxed);
    }

    /// The block that serves a layout. Where the size class is longer than the maximum, the exact size is used, so that
    /// a request for the maximum can be served.
    #[inline]
    pub(super) fn want(&self, layout: Layout) -> Option<Want> {
        let want = Want::of(layout)?;
        if u64::from(want.units()) <= self.maximum_units {
            return Some(want);
        }
        u32::try_from(layout.rounded_bytes() / Layout::MIN_ALIGN).ok().map(Want::exactly)
    }

    /// The fast path of an allocation: a block from the stream's own cache.
    #[inline]
    pub(super) fn take(&self, want: Want, stream: StreamRef<'_>) -> Option<DevicePtr> {
        let id = stream.id();
        let mut cache = self.shards.get(id.index())?.try_lock_here()?;
        if !cache.is_of(id) {
            return None;
        }
        cache.take(want).and_then(DevicePtr::new)
    }

    /// The fast path of a free: puts a block into the cache of the stream that it was freed on, at that epoch.
    #[inline]
    pub(super) fn put(&self, want: Want, block: DevicePtr, stream: StreamId, epoch: Epoch) -> bool {
        if !self.is_cached(want) {
            return false;
        }
        let Some(shard) = self.shards.get(stream.index()) else { return false };
        let Some(mut cache) = shard.try_lock_here() else { return false };
        cache.is_of(stream) && cache.put(want, block.address(), epoch)
    }

    /// As [`take`](Self::take), for a synchronous call.
    #[inline]
    pub(super) fn take_for_host(&self, want: Want) -> Option<DevicePtr> {
        DevicePtr::new(self.host_shard().try_lock_here()?.take(want)?)
    }

    /// As [`put`](Self::put), for a block that no work uses any more.
    #[inline]
    pub(super) fn put_for_host(&self, want: Want, block: DevicePtr) -> bool {
        if !self.is_cached(want) {
            return false;
        }
        let cache = self.host_shard().try_lock_here();
        cache.is_some_and(|mut cache| cache.put(want, block.address(), Epoch(0)))
    }

    /// Over pages, blocks of more than 1 MiB merge at once, and are never cached: of a hundred made-up workloads 84 instead
    /// of 76 then hold no more than expandable segments do. With all above 64 KiB they are 88; but sixteen threads that
    /// free such blocks would take turns at the mutex, 3 million operations a second instead of 200 on an H200's host.
    #[inline]
    fn is_cached(&self, want: Want) -> bool {
        self.page_units == 0 || want.stack().is_some()
    }

    #[inline]
    fn host_shard(&self) -> &CacheShard {
        &self.inner.host[ThreadToken::current().number() % HOST_CACHES]
    }

    /// The cache of `requester`. If it still belongs to a stream that has ended, it is emptied and handed over first.
    pub(super) fn cache(&self, core: &mut Core, requester: Option<StreamId>) -> TokenGuard<'_, Cache> {
        let Some(id) = requester else { return self.host_shard().lock() };
        let mut cache = self.shards.get_or_make(id.index(), Box::default).lock();
        if !cache.is_of(id) {
            spill_all(&mut cache, core);
            if cache.owner() != Owner::UNOWNED {
                // Two streams have one place only if the first has ended, with all its work: its blocks are unowned.
                core.leave(cache.owner());
            }
            if cache.stream().is_none() {
                cache.show(&self.inner.record);
            }
            cache.hand_over(id, core.enter(id));
        }
        cache
    }

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
        let mut inner = self.inner.lock();
        first(&mut inner);
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
        let mut inner = self.inner.lock();
        // With no reach, only the requester's own and unowned blocks are used: no block is stolen.
        self.serve_locked(&mut inner, request, &[]).ok_or_else(|| or(&mut inner))
    }

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
            if !has_plenty(inner, owner, request) {
                cache.spill_long(|spilled| return_to_core(&mut inner.core, owner, spilled));
            }
        }
        let reach = &of_owners(&inner.core, reach);
        let claim = self.claim_units;
        let address = match carve(inner, &mut cache, request, now, reach, claim) {
            Some(address) => address,
            // For a long request the long blocks of the cache are in the core already, and the short ones stay in the
            // cache.
            None if !request.is_long() && spill_all(&mut cache, &mut inner.core) > 0 => {
                carve(inner, &mut cache, request, now, reach, claim)?
            }
            None => return None,
        };
        inner.misses += 1;
        if cache.miss(request.want) {
            inner.emptying.note_return();
        }
        DevicePtr::new(address)
    }

    /// The slow path of a free: a block that its cache did not take at once.
    pub(super) fn take_back(&self, want: Want, block: DevicePtr, stream: Option<StreamId>, epoch: Epoch) {
        // In a forked child the parent's memory is leaked.
        if let Some(mut inner) = self.inner.lock_here() {
            self.put_or_take_back(&mut inner, want, block, stream, epoch);
        }
    }

    /// Puts a freed block into the cache, after making room there if needed; else into the core.
    pub(super) fn put_or_take_back(
        &self,
        inner: &mut Inner,
        want: Want,
        block: DevicePtr,
        stream: Option<StreamId>,
        epoch: Epoch,
    ) {
        let mut cache = self.cache(&mut inner.core, stream);
        let owner = cache.owner();
        if self.is_cached(want) {
            if cache.put(want, block.address(), epoch) {
                // The cache had room: only its token was taken.
                return;
            }
            cache.make_room(want, |spilled| return_to_core(&mut inner.core, owner, spilled));
            if cache.put(want, block.address(), epoch) {
                return;
            }
        }
        return_to_core(&mut inner.core, owner, Spilled { address: block.address(), epoch });
    }

    /// Empties the cache of one requester. Returns the number of blocks.
    pub(super) fn spill_own(&self, requester: Option<StreamId>) -> usize {
        let mut inner = self.inner.lock();
        let mut cache = self.cache(&mut inner.core, requester);
        spill_all(&mut cache, &mut inner.core)
    }

    /// Empties every cache. Returns the number of blocks.
    pub(super) fn spill(&self) -> usize {
        self.spill_locked(&mut self.inner.lock())
    }

    /// As [`spill`](Self::spill), after the suballocator could not grow.
    pub(super) fn spill_where_none_grows(&self) -> usize {
        let mut inner = self.inner.lock();
        inner.emptying.note_refusal();
        self.spill_locked(&mut inner)
    }

    /// Empties one cache after another, and releases the mutex in between. A block that moves from one cache to another
    /// meanwhile may be missed.
    pub(super) fn spill_in_turn(&self) {
        for shard in self.shards() {
            let mut inner = self.inner.lock();
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
        let (mut inner, own) = (self.inner.lock(), request.requester.id());
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

    /// The units that may still be reserved of the upstream.
    pub(super) fn room(&self, inner: &Inner) -> u64 {
        let taken = inner.core.reserved_units() + inner.pledged + inner.leaving;
        self.maximum_units.saturating_sub(taken)
    }

    /// Locks every cache. The caller has the mutex.
    pub(super) fn caches(&self) -> Vec<TokenGuard<'_, Cache>> {
        self.shards().map(|shard| shard.lock()).collect()
    }

    /// The caches of streams, then those of synchronous calls.
    pub(super) fn shards(&self) -> impl Iterator<Item = &CacheShard> + Clone {
        self.shards.iter().map(|shard| &**shard).chain(&self.inner.host)
    }
}

/// Returns `true` if a free block fits [`PLENTY`] times the longest recent request.
pub(super) fn has_plenty(inner: &Inner, owner: Owner, request: &Request<'_>) -> bool {
    let longest = inner.largest.longest().max(request.want.units());
    inner.core.has_whole(owner, longest.saturating_mul(PLENTY))
}

/// Takes a block out of the core. For a small request takes more blocks of that size, and puts them into the cache.
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

fn spill_all(cache: &mut Cache, core: &mut Core) -> usize {
    let owner = cache.owner();
    cache.spill(|spilled| return_to_core(core, owner, spilled))
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
