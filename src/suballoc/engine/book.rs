//! `SuballocBook`: all that a suballocator has, and who holds which part of it.
//!
//! # The locks
//!
//! A cache is behind a [`Token`], held for a few nanoseconds; the core is behind the one mutex. Who holds the mutex may
//! take tokens; who holds a token takes nothing. Blocks move between a cache and the core under both, so that with the
//! mutex and all tokens in hand every block is somewhere. Neither is held across a call to an upstream, a driver or a user.

use core::sync::atomic::AtomicUsize;

use smallvec::SmallVec;

use super::emptying::Emptying;
use super::events::event;
use super::grow::Caller;
use super::largest::Largest;
use super::requester::Requester;
use crate::device::Device;
use crate::driver::DriverResult;
use crate::resource::{DevicePtr, Figures, Layer, Layout};
use crate::stream::{Epoch, Places, StreamId, StreamRef, ThreadToken};
use crate::suballoc::core::{Cache, Core, LONG_UNITS, Owner, Spilled, Want};
use crate::suballoc::ledger::Ledger;
use crate::sync::{Apart, AtomicU64, Mutex, Ordering, Token, TokenGuard};

/// Caches for the host's blocks. Threads are spread over them; four keep sixteen threads from meeting often.
const HOST_CACHES: usize = if cfg!(loom) { 1 } else { 4 };

/// While there is a hole for so many of the longest blocks that were asked for of late, holes need not be mended.
const PLENTY: u32 = 4;

/// How far somebody comes after which streams. By number, because it is found out without the mutex: what is an owner then may
/// be another one's place when the mutex is taken again.
pub(super) type Reach = SmallVec<[(StreamId, Epoch); 8]>;

/// The same, for the core: while the mutex is held.
pub(super) fn of_owners(core: &Core, reach: &[(StreamId, Epoch)]) -> SmallVec<[(Owner, Epoch); 8]> {
    reach.iter().filter_map(|&(stream, epoch)| Some((core.owner_of(stream)?, epoch))).collect()
}

/// A cache, of a stream or of threads of the host. Two that work at once write no line that the other reads.
pub(super) type CacheShard = Apart<Token<Cache>>;

/// What is behind the mutex.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) core: Core,
    /// Units asked of the upstream and not answered yet.
    pub(super) pledged: u64,
    /// How often an answer came, or a segment had come back to the upstream.
    pub(super) answers: u64,
    /// Units on their way back to the upstream: still had of it, but carved no more.
    pub(super) leaving: u64,
    /// How many calls to the upstream have set out: for a segment, or with one.
    pub(super) calls: u64,
    /// The threads that are in one. What such a thread asks for meanwhile, through a handler further down, must not wait for
    /// its end; what it asks of another suballocator may.
    pub(super) callers: SmallVec<[Caller; 4]>,
    pub(super) peak_reserved: u64,
    pub(super) misses: u64,
    /// The longest block that anybody has asked for of late.
    largest: Largest,
    pub(super) emptying: Emptying,
    pub(super) steals: u64,
}

/// What has come back from caches.
pub(super) struct Emptied {
    pub(super) blocks: usize,
    /// There is nothing left in any.
    pub(super) is_all: bool,
}

/// What is counted outside of the locks.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) waits: AtomicU64,
    pub(super) events_recorded: AtomicU64,
    pub(super) upstream_calls: AtomicU64,
    /// What the core says is reserved, for who must not take the mutex. Not of the facade: no protocol rests on it.
    reserved_bytes: AtomicUsize,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: u64) {
        // Relaxed: a figure for people.
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// What a suballocator has, whatever its upstream: found in a stack by [`find`](crate::Resource::find).
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
    /// The most that it may have of its upstream.
    pub(super) maximum_units: u64,
    /// See [`EngineConfig`](super::EngineConfig).
    claim_units: u32,
    pub(super) ledger: Option<Ledger>,
    shards: Places<Box<CacheShard>>,
    host: Box<[CacheShard; HOST_CACHES]>,
    /// Apart from what is read for every block: it is written where a cache misses.
    pub(super) inner: Apart<Mutex<Inner>>,
    pub(super) counters: Apart<Counters>,
}

/// What is wanted, for whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'s> {
    pub(super) requester: Requester<'s>,
    pub(super) layout: Layout,
    pub(super) want: Want,
    pub(super) align_units: u32,
}

impl Request<'_> {
    /// Blocks as long as the one that it wants are worth merging: see [`LONG_UNITS`]. Where all are of one size, none is.
    pub(super) fn is_long(&self) -> bool {
        self.want.units() > LONG_UNITS && !self.want.is_only()
    }

    /// The units of free memory in one piece that surely serve it.
    pub(super) fn need(&self) -> u64 {
        u64::from(self.want.units()) + u64::from(self.align_units) - 1
    }

    /// It was served with what another stream had freed. No lock is held.
    pub(super) fn emit_steal(&self) {
        event!(requester = ?self.requester.id(), bytes = self.layout.bytes(), "steal");
    }

    /// The same of a new segment, where there is room for so many units: all of it, if that serves the request where the segment
    /// is aligned well. Most upstreams' are.
    pub(super) fn need_within(&self, room: u64) -> u64 {
        self.need().min(room.max(u64::from(self.want.units())))
    }
}

/// Any suballocator: what each keeps is one type.
impl Layer for SuballocBook {
    type Book = Self;

    fn figures(book: &Self, to: &mut Figures<'_>) {
        book.status().figures(to);
    }
}

impl SuballocBook {
    pub(super) fn new(device: &Device, maximum_units: u64, claim_units: u32, checked: bool) -> Self {
        Self {
            device: device.clone(),
            maximum_units,
            claim_units,
            ledger: checked.then(Ledger::new),
            shards: Places::default(),
            host: Box::default(),
            inner: Apart(Mutex::new(Inner {
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
            })),
            counters: Apart::default(),
        }
    }

    /// Returns `true` in a child of the process that it was made in: it serves nobody there.
    pub(super) fn is_of_parent(&self) -> bool {
        self.inner.is_of_parent()
    }

    /// # Errors
    ///
    /// That the driver is not initialised, in a child of the process that it was made in.
    pub(super) fn require_here(&self) -> DriverResult<()> {
        self.inner.require_here()
    }

    /// What it has of its upstream, in bytes: without a lock, as it was a moment ago.
    #[must_use]
    #[inline]
    pub fn reserved_bytes(&self) -> usize {
        // Relaxed: a figure for people.
        self.counters.reserved_bytes.load(Ordering::Relaxed)
    }

    /// A segment has come or gone.
    pub(super) fn note_reserved(&self, inner: &mut Inner) {
        let units = inner.core.reserved_units();
        if units as usize * Layout::MIN_ALIGN > self.reserved_bytes() {
            inner.emptying.note_growth();
        }
        inner.peak_reserved = inner.peak_reserved.max(units);
        // Relaxed: as above; those who write it have the mutex.
        self.counters.reserved_bytes.store(units as usize * Layout::MIN_ALIGN, Ordering::Relaxed);
    }

    /// What a layout wants of this book. A class that is longer than all that may ever be there is no use: then the exact
    /// size is wanted, so that a request for the maximum can be served.
    #[inline]
    pub(super) fn want(&self, layout: Layout) -> Option<Want> {
        let want = Want::of(layout)?;
        if u64::from(want.units()) <= self.maximum_units {
            return Some(want);
        }
        u32::try_from(layout.rounded_bytes() / Layout::MIN_ALIGN).ok().map(Want::exactly)
    }

    /// The fast path: a block from the stream's own cache.
    #[inline]
    pub(super) fn take(&self, want: Want, stream: StreamRef<'_>) -> Option<DevicePtr> {
        let id = stream.id();
        let mut cache = self.shards.get(id.index())?.try_lock_here()?;
        if !cache.is_of(id) {
            return None;
        }
        cache.take(want).and_then(DevicePtr::new)
    }

    /// The fast path back: a block into the cache of the stream that it was freed on, at that epoch.
    #[inline]
    pub(super) fn put(&self, want: Want, block: DevicePtr, stream: StreamId, epoch: Epoch) -> bool {
        let Some(shard) = self.shards.get(stream.index()) else { return false };
        let Some(mut cache) = shard.try_lock_here() else { return false };
        cache.is_of(stream) && cache.put(want, block.address(), epoch)
    }

    /// As [`take`](Self::take), for the host.
    #[inline]
    pub(super) fn take_for_host(&self, want: Want) -> Option<DevicePtr> {
        DevicePtr::new(self.host_shard().try_lock_here()?.take(want)?)
    }

    /// As [`put`](Self::put), for a block that nothing uses any more.
    #[inline]
    pub(super) fn put_for_host(&self, want: Want, block: DevicePtr) -> bool {
        let cache = self.host_shard().try_lock_here();
        cache.is_some_and(|mut cache| cache.put(want, block.address(), Epoch(0)))
    }

    #[inline]
    fn host_shard(&self) -> &CacheShard {
        &self.host[ThreadToken::current().number() % HOST_CACHES]
    }

    /// The cache of `requester`, which is handed over first if it is still that of a stream which is over.
    pub(super) fn cache(&self, core: &mut Core, requester: Option<StreamId>) -> TokenGuard<'_, Cache> {
        let Some(id) = requester else { return self.host_shard().lock() };
        let mut cache = self.shards.get_or_make(id.index(), Box::default).lock();
        if !cache.is_of(id) {
            spill_all(&mut cache, core);
            if cache.owner() != Owner::UNOWNED {
                // Two streams are at one place only if the first is over: nothing waits for its blocks any more.
                core.leave(cache.owner());
            }
            cache.hand_over(id, core.enter(id));
        }
        cache
    }

    /// A block from the core, with what is within `reach`; else, once the requester's own cache is spilled, with that too.
    pub(super) fn serve(&self, request: &Request<'_>, reach: &[(StreamId, Epoch)]) -> Option<DevicePtr> {
        self.serve_with(request, reach, |_| ())
    }

    /// As [`serve`](Self::serve), and first does something to the core, before anybody else can.
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

    /// As [`serve`](Self::serve); if there is none, does something else before anything comes.
    pub(super) fn serve_or<T>(
        &self,
        request: &Request<'_>,
        or: impl FnOnce(&mut Inner) -> T,
    ) -> Result<DevicePtr, T> {
        let mut inner = self.inner.lock();
        // Nothing is within reach but what is the requester's own and nobody's: this steals nothing.
        self.serve_locked(&mut inner, request, &[]).ok_or_else(|| or(&mut inner))
    }

    fn serve_locked(
        &self,
        inner: &mut Inner,
        request: &Request<'_>,
        reach: &[(StreamId, Epoch)],
    ) -> Option<DevicePtr> {
        let mut cache = self.cache(&mut inner.core, request.requester.id());
        // With the cache in hand, so that nothing in it or behind it is of a later epoch: another thread may free on this stream.
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
            // What is long is in the core already; for the sake of that, what is short stays where it is.
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

    /// A block comes back that its cache did not take at once.
    pub(super) fn take_back(&self, want: Want, block: DevicePtr, stream: Option<StreamId>, epoch: Epoch) {
        // What the parent of this process has is leaked here.
        if let Some(mut inner) = self.inner.lock_here() {
            self.put_or_take_back(&mut inner, want, block, stream, epoch);
        }
    }

    /// A block comes back: into the cache if that has room, or makes some.
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
        if cache.put(want, block.address(), epoch) {
            // It was only that somebody else had the token.
            return;
        }
        cache.make_room(want, |spilled| return_to_core(&mut inner.core, owner, spilled));
        if !cache.put(want, block.address(), epoch) {
            return_to_core(&mut inner.core, owner, Spilled { address: block.address(), epoch });
        }
    }

    /// Empties the cache of one requester. Returns how many blocks went.
    pub(super) fn spill_own(&self, requester: Option<StreamId>) -> usize {
        let mut inner = self.inner.lock();
        let mut cache = self.cache(&mut inner.core, requester);
        spill_all(&mut cache, &mut inner.core)
    }

    /// Empties every cache. Returns how many blocks went.
    pub(super) fn spill(&self) -> usize {
        self.spill_locked(&mut self.inner.lock())
    }

    /// As [`spill`](Self::spill), because the suballocator could not grow.
    pub(super) fn spill_where_none_grows(&self) -> usize {
        let mut inner = self.inner.lock();
        inner.emptying.note_refusal();
        self.spill_locked(&mut inner)
    }

    /// Empties one cache after another, and lets others in between. A block that goes from one to another meanwhile may stay.
    pub(super) fn spill_in_turn(&self) {
        for shard in self.shards() {
            let mut inner = self.inner.lock();
            spill_all(&mut shard.lock(), &mut inner.core);
        }
    }

    /// As [`spill`](Self::spill). All caches at once: else a block may go from one that is looked at later to one that has
    /// been looked at.
    pub(super) fn spill_locked(&self, inner: &mut Inner) -> usize {
        self.caches().iter_mut().map(|cache| spill_all(cache, &mut inner.core)).sum()
    }

    /// Empties caches for the sake of a request, before the suballocator grows: that of the requester, and those of others that
    /// [`Emptying`] names. A request for a long block gets the long blocks of all, because there the memory of a segment counts
    /// for more than the time of a call.
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

    /// The units that may still be had of the upstream.
    pub(super) fn room(&self, inner: &Inner) -> u64 {
        let taken = inner.core.reserved_units() + inner.pledged + inner.leaving;
        self.maximum_units.saturating_sub(taken)
    }

    /// Locks every cache. The caller has the mutex.
    pub(super) fn caches(&self) -> Vec<TokenGuard<'_, Cache>> {
        self.shards().map(|shard| shard.lock()).collect()
    }

    /// Those of the streams, and those of the host.
    pub(super) fn shards(&self) -> impl Iterator<Item = &CacheShard> + Clone {
        self.shards.iter().map(|shard| &**shard).chain(&*self.host)
    }
}

/// Returns `true` if there is a hole for [`PLENTY`] of the longest blocks that were asked for of late.
pub(super) fn has_plenty(inner: &Inner, owner: Owner, request: &Request<'_>) -> bool {
    let longest = inner.largest.longest().max(request.want.units());
    inner.core.has_whole(owner, longest.saturating_mul(PLENTY))
}

/// Takes a block out of the core, and for a small one some more, which go to the cache.
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
            // Last in, first out: the lowest address goes next.
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

/// A small block came from what is nobody's: makes more of that the stream's own.
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

/// What a cache holds began as a block of this core, unless somebody has freed what was not his: that is kept out.
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
    use crate::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim};

    /// Else a block may go, meanwhile, from a cache that is looked at later to one that has been looked at.
    #[test]
    fn no_cache_is_spilled_before_all_are_held() {
        let sim = Sim::new();
        let device = sim.device(0);
        let streams = [(); 2].map(|()| device.stream().expect("there are numbers left"));
        // What is done in the middle of the spill must not borrow.
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
