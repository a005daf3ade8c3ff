//! `SuballocBook`: the state of a suballocator, and its locks.
//!
//! # The locks
//!
//! Each cache is behind a [`Token`], held for a few nanoseconds; the core is behind the one mutex. A thread with the
//! mutex may take tokens; a thread with a token takes no other lock. Blocks move between a cache and the core under
//! both locks, so a thread with the mutex and all tokens sees every block. Neither is held across a call to an
//! upstream, a driver or a user.

use core::sync::atomic::{AtomicBool, AtomicUsize};

use smallvec::SmallVec;

use super::config::EngineConfig;
use super::emptying::Emptying;
use super::events::event;
use super::graphs::Graphs;
use super::grow::Caller;
use super::largest::Largest;
use super::requester::Requester;
use super::sleeping::Sleepers;
use super::spill::spill_all;
use super::telling::Told;
use crate::device::Device;
use crate::driver::DriverResult;
use crate::nvtx;
use crate::resource::{DevicePtr, Figures, Layer, Layout};
use crate::stream::{Epoch, Places, Stamp, StreamId, ThreadToken};
use crate::suballoc::core::{Cache, Core, LONG_UNITS, Owner, UNIT, Want};
use crate::suballoc::debugger::{Kind, Listed, Record, Text};
use crate::suballoc::ledger::Ledger;
use crate::sync::{Apart, AtomicU64, Mutex, MutexGuard, Ordering, Token, TokenGuard};

/// Caches for the blocks of synchronous calls. Threads are spread over them; with four, sixteen threads seldom meet.
const HOST_CACHES: usize = if cfg!(loom) { 1 } else { 4 };

/// How far a requester comes after other streams. By stream and not by [`Owner`], because it is found without the
/// mutex: the place of an owner may be another stream's once the mutex is taken again.
pub(super) type Reach = SmallVec<[(StreamId, Epoch); 8]>;

/// The same for the core, by owner: valid while the mutex is held.
#[inline]
pub(super) fn of_owners(core: &Core, reach: &[(StreamId, Epoch)]) -> SmallVec<[(Owner, Epoch); 8]> {
    if reach.is_empty() {
        // Most requests: an iterator that yields nothing takes 70 instructions.
        return SmallVec::new();
    }
    reach.iter().filter_map(|&(stream, epoch)| Some((core.owner_of(stream)?, epoch))).collect()
}

/// The epoch for a block that was freed at that point; `None` if no work uses it any more.
pub(super) fn epoch_of(freed_at: Option<Stamp>) -> Epoch {
    freed_at.map_or(Epoch::NONE, Stamp::epoch)
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
    pub(super) largest: Largest,
    pub(super) emptying: Emptying,
    pub(super) steals: u64,
    /// The most units that were live when it grew.
    pub(super) peak_live: u64,
    /// Pages that were unmapped to be mapped elsewhere, and their units.
    pub(super) moves: u64,
    pub(super) moved: u64,
    pub(super) sleepers: Sleepers,
    pub(super) told: Told,
}

impl Inner {
    fn new(claim_units: u32, told: Told) -> Self {
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
            told,
        }
    }
}

/// What stays where it is while a suballocator is moved, so that a debugger finds it: one piece of the heap.
#[derive(Debug)]
struct Shown {
    record: Record,
    host: [CacheShard; HOST_CACHES],
    /// On cache lines of its own: it is written at every cache miss.
    inner: Apart<Mutex<Inner>>,
}

impl Shown {
    fn new(inner: Inner, record: Record) -> Box<Self> {
        let mut shown = Box::new(Self { record, host: Default::default(), inner: Apart(Mutex::new(inner)) });
        let Self { record, host, inner } = &mut *shown;
        inner.get_mut().core.show(record);
        host.iter().for_each(|shard| shard.lock().show(record));
        shown
    }
}

/// Counters outside of the locks.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) waits: AtomicU64,
    pub(super) events_recorded: AtomicU64,
    pub(super) upstream_calls: AtomicU64,
    /// Frees that were refused.
    pub(super) wrong_frees: AtomicU64,
    /// How often the mutex was taken. Not of `sync`, because no protocol depends on it: a hint of where a block is put.
    locks: AtomicUsize,
    /// The caches of streams that have been made.
    shards: AtomicUsize,
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
    /// The unit of the upstream's pages; 0 where it has none, or where they are not used.
    pub(super) page_units: u32,
    /// A page that moves stays mapped where it was, too.
    pub(super) has_aliases: bool,
    pub(super) config: EngineConfig,
    /// All of it sleeps. Not of `sync`, because no protocol depends on it.
    pub(super) sleeps: AtomicBool,
    pub(super) ledger: Option<Ledger>,
    /// Nobody has to know which blocks are out: there is no ledger, no tool, and no driver that asks. Read for every block; it changes with the first memory.
    is_plain: AtomicBool,
    /// Between the first address that it ever had of its upstream, and the end of the last: what is elsewhere is no block. Not of
    /// `sync`, because no protocol depends on it.
    addresses: [AtomicUsize; 2],
    /// Its stack is chosen to be announced.
    pub(super) is_chosen: AtomicBool,
    /// Apart from what is written often: its filter is read for every block.
    pub(super) graphs: Graphs,
    /// Dropped before what it leads to, which is all that follows.
    _listed: Listed,
    pub(super) shards: Places<Box<CacheShard>>,
    shown: Box<Shown>,
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
        mut config: EngineConfig,
        page_units: u32,
        has_aliases: bool,
        kind: Kind,
        text: Text,
    ) -> Self {
        let units = (config.maximum_bytes / Layout::MIN_ALIGN) as u64;
        // Pages are mapped whole.
        let maximum_units = units - units.checked_rem(page_units.into()).unwrap_or(0);
        let checked = config.checked.unwrap_or_else(|| device.machine().checks_frees());
        let record = Record::new(kind, text, device, maximum_units.saturating_mul(UNIT));
        let told = Told::new(config.segment_hooks.take());
        let shown = Shown::new(Inner::new(config.claim_units, told), record);
        Self {
            device: device.clone(),
            maximum_units,
            page_units,
            has_aliases,
            sleeps: AtomicBool::new(false),
            ledger: checked.then(Ledger::new),
            is_plain: AtomicBool::new(!checked),
            addresses: [AtomicUsize::new(usize::MAX), AtomicUsize::new(0)],
            is_chosen: AtomicBool::new(false),
            graphs: Graphs::new(config.watch_captures),
            shards: Places::default(),
            _listed: Listed::of(&shown.record),
            shown,
            counters: Apart::default(),
            config,
        }
    }

    /// Locks the core. Not in a forked child of the process that it was made in.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        let inner = self.shown.inner.lock();
        self.note_lock();
        inner
    }

    /// As [`lock`](Self::lock); `None` in a forked child of the process that it was made in.
    pub(super) fn lock_unless_forked(&self) -> Option<MutexGuard<'_, Inner>> {
        let inner = self.shown.inner.lock_unless_forked()?;
        self.note_lock();
        Some(inner)
    }

    /// Counts a lock of the mutex, which the caller holds.
    #[inline]
    fn note_lock(&self) {
        // Relaxed, and no exchange: only who holds the mutex writes it, and who reads it without the mutex takes it for a hint.
        self.counters.locks.store(self.locks() + 1, Ordering::Relaxed);
    }

    /// How often the mutex was taken: the core is what it was as long as this stays the same.
    #[inline]
    pub(super) fn locks(&self) -> usize {
        // Relaxed: as above.
        self.counters.locks.load(Ordering::Relaxed)
    }

    /// Returns `true` in a forked child of the process that it was made in: it serves no request there.
    pub(super) fn is_forked_child(&self) -> bool {
        self.shown.inner.is_forked_child()
    }

    pub(super) fn require_same_process(&self) -> DriverResult<()> {
        self.shown.inner.require_same_process()
    }

    /// Returns `true` if a block goes out, and comes back, without anybody having to know.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        // Relaxed: it changes before the first block goes out, and who has a block comes after that.
        self.is_plain.load(Ordering::Relaxed)
    }

    /// Returns `false` for an address at which no block can begin: not a multiple of the unit, or where it has never had memory.
    #[inline]
    pub(super) fn may_be_out(&self, block: DevicePtr) -> bool {
        // Relaxed: as above.
        let [first, end] = self.addresses.each_ref().map(|address| address.load(Ordering::Relaxed));
        let address = block.address() as usize;
        // One jump.
        address.is_multiple_of(Layout::MIN_ALIGN) & (address >= first) & (address < end)
    }

    /// A tool or the driver hears of the blocks, from the first one.
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
        if let Some((start, end)) = inner.core.addresses() {
            // Relaxed: it is written before a block of the segment goes out, and who has a block comes after that.
            self.addresses[0].fetch_min(start as usize, Ordering::Relaxed);
            self.addresses[1].fetch_max(end as usize, Ordering::Relaxed);
        }
        // Relaxed: as above; it is written under the mutex.
        self.counters.reserved_bytes.store(units as usize * Layout::MIN_ALIGN, Ordering::Relaxed);
    }

    /// The block that serves a layout; `None` for zero bytes, and for more than any block holds. Where the size class is longer
    /// than the maximum, the exact size is used, so that a request for the maximum can be served.
    #[inline]
    pub(super) fn want(&self, layout: Layout) -> Option<Want> {
        if let Some(units) = self.config.only_units {
            let fits = !layout.is_empty() && layout.bytes() <= units as usize * Layout::MIN_ALIGN;
            return fits.then_some(Want::only(units));
        }
        let want = Want::of(layout)?;
        if u64::from(want.units()) <= self.maximum_units {
            return Some(want);
        }
        u32::try_from(layout.rounded_bytes() / Layout::MIN_ALIGN).ok().map(Want::exactly)
    }

    /// The bytes of each block, where all are of one length.
    pub(super) fn only_bytes(&self) -> Option<usize> {
        self.config.only_units.map(|units| units as usize * Layout::MIN_ALIGN)
    }

    /// The cache of a stream, if it has one, or one for synchronous calls.
    #[inline]
    fn shard(&self, stream: Option<StreamId>) -> Option<&CacheShard> {
        match stream {
            Some(stream) => self.shards.get(stream.index()).map(|shard| &**shard),
            None => Some(self.host_shard()),
        }
    }

    /// The fast path of an allocation: a block from the requester's own cache.
    #[inline]
    pub(super) fn take(&self, want: Want, requester: Option<StreamId>) -> Option<DevicePtr> {
        let mut cache = self.shard(requester)?.try_lock_unless_forked()?;
        if requester.is_some_and(|stream| !cache.is_of(stream)) {
            return None;
        }
        cache.take(want).and_then(DevicePtr::new)
    }

    /// The fast path of a free: puts a block into the cache of the stream that it was freed on, at that point; `None` for a block
    /// that no work uses any more.
    #[inline]
    pub(super) fn put(&self, want: Want, block: DevicePtr, freed_at: Option<Stamp>) -> bool {
        let stream = freed_at.map(Stamp::stream);
        let Some(mut cache) = self.shard(stream).and_then(|shard| shard.try_lock_unless_forked()) else {
            return false;
        };
        if stream.is_some_and(|stream| !cache.is_of(stream)) {
            return false;
        }
        let (address, epoch) = (block.address(), epoch_of(freed_at));
        if self.is_cached(want) {
            cache.put(want, address, epoch)
        } else {
            // A count that is out of date keeps a block apart that the core would have merged.
            cache.put_in_place(want, address, epoch, self.locks())
        }
    }

    /// Over pages, blocks of more than 1 MiB merge at once, and are not cached but [in place](Cache::put_in_place): of a hundred made-up
    /// workloads 84 instead of 76 then hold no more than expandable segments do. With all above 64 KiB they are 88; but sixteen threads
    /// that free such blocks would take turns at the mutex, 3 million operations a second instead of 200 on an H200's host.
    #[inline]
    pub(super) fn is_cached(&self, want: Want) -> bool {
        self.page_units == 0 || want.stack().is_some()
    }

    #[inline]
    fn host_shard(&self) -> &CacheShard {
        &self.shown.host[ThreadToken::current().number() % HOST_CACHES]
    }

    /// The cache of `requester`, which is made if need be. If it still belongs to a stream that has ended, it is emptied and handed over first.
    #[inline]
    pub(super) fn cache(&self, core: &mut Core, requester: Option<StreamId>) -> TokenGuard<'_, Cache> {
        let Some(id) = requester else { return self.host_shard().lock() };
        if let Some(shard) = self.shards.get(id.index()) {
            let cache = shard.lock();
            if cache.is_of(id) {
                return cache;
            }
        }
        self.cache_of_new_stream(core, id)
    }

    #[cold]
    fn cache_of_new_stream(&self, core: &mut Core, id: StreamId) -> TokenGuard<'_, Cache> {
        let make = || {
            // Relaxed: only a measure of the work that a walk of them is.
            self.counters.shards.fetch_add(1, Ordering::Relaxed);
            Box::default()
        };
        let mut cache = self.shards.get_or_make(id.index(), make).lock();
        if !cache.is_of(id) {
            spill_all(&mut cache, core);
            if cache.owner() != Owner::UNOWNED {
                // Two streams have one place only if the first has ended, with all its work: its blocks are unowned.
                core.leave(cache.owner());
            }
            if cache.stream().is_none() {
                cache.show(&self.shown.record);
            }
            cache.hand_over(id, core.enter(id));
        }
        cache
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

    /// How many caches of streams there are. Takes no lock.
    pub(super) fn shards_made(&self) -> usize {
        // Relaxed: as in `cache`.
        self.counters.shards.load(Ordering::Relaxed)
    }

    /// The caches of streams, then those of synchronous calls.
    pub(super) fn shards(&self) -> impl Iterator<Item = &CacheShard> + Clone {
        self.shards.iter().map(|shard| &**shard).chain(&self.shown.host)
    }
}
