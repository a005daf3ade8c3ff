//! Figures, snapshots, and reports of running out of memory.

use std::time::SystemTime;

use super::Engine;
use super::book::{Inner, Request, SuballocBook, of_owners};
use super::requester::Requester;
use super::slow_path::Attempt;
use crate::driver::MemoryInfo;
use crate::error::{Cause, Error, OutOfMemory};
use crate::resource::{DevicePtr, Layout, Resource};
use crate::stream::{Stamp, StreamId, StreamRef};
use crate::suballoc::core::{Cache, Owner, SeenState, Want};
use crate::suballoc::{BlockState, BlockView, SegmentView, Snapshot, Status};
use crate::sync::Ordering;
use crate::tag::Tag;

fn segments(stretches: &[(u64, u64)]) -> Vec<SegmentView> {
    let segment =
        |&(address, units)| Some(SegmentView { address: DevicePtr::new(address)?, bytes: bytes(units) });
    stretches.iter().filter_map(segment).collect()
}

fn bytes(units: u64) -> usize {
    units as usize * Layout::MIN_ALIGN
}

/// The figures of one cache.
struct CacheSeen {
    units: u64,
    blocks: usize,
    /// The stream, and the newest epoch of its blocks here; `None` for an empty cache.
    newest: Option<Stamp>,
    hits: u64,
    metadata_bytes: usize,
}

impl CacheSeen {
    /// Looks at each of its blocks: about a thousand at most.
    fn of(cache: &Cache) -> Self {
        let point = |stream| Some(Stamp { stream, epoch: cache.newest()? });
        Self {
            units: cache.units(),
            blocks: cache.blocks().count(),
            newest: cache.stream().and_then(point),
            hits: cache.hits(),
            metadata_bytes: cache.metadata_bytes(),
        }
    }
}

/// The newest free of each stream, and its free units: once for the core, and once for each cache.
fn freed(inner: &Inner, caches: &[CacheSeen]) -> Vec<(Stamp, u64)> {
    let in_core = inner.core.owners().map(|owned| (owned.latest(), owned.free_units));
    let cached = caches.iter().filter_map(|cache| Some((cache.newest?, cache.units)));
    in_core.chain(cached).collect()
}

/// The sums over core and caches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    pub(super) live_bytes: usize,
    pub(super) reserved_bytes: usize,
}

impl SuballocBook {
    pub(super) fn totals(&self) -> Totals {
        let inner = self.lock();
        let cached = self.look_at_caches(|cache| cache.units()).sum::<u64>().min(inner.core.out_units());
        Totals {
            live_bytes: bytes(inner.core.out_units() - cached),
            reserved_bytes: bytes(inner.core.reserved_units()),
        }
    }

    /// Looks at one cache after the other, with its token. The caller has the mutex, so no block enters or leaves the
    /// core meanwhile; but streams take blocks out of one cache, and put blocks into another.
    fn look_at_caches<T>(&self, look: impl Fn(&Cache) -> T) -> impl Iterator<Item = T> {
        self.shards().map(move |shard| look(&shard.lock()))
    }

    /// The figures of the suballocator.
    ///
    /// [`Status`] says which figures are exact and which are a moment old. A stream waits while its own cache is read,
    /// about a thousand blocks at most. A thread that needs the shared core waits for a few steps for each stream, for
    /// any number of free blocks.
    #[must_use]
    pub fn status(&self) -> Status {
        let (status, freed) = {
            let Some(inner) = self.lock_unless_forked() else { return Status::default() };
            let caches: Vec<_> = self.look_at_caches(CacheSeen::of).collect();
            (self.status_locked(&inner, &caches), freed(&inner, &caches))
        };
        self.with_pending(Status { graph_bytes: self.graphs.bytes(), ..status }, &freed)
    }

    /// All figures but the pending bytes.
    fn status_locked(&self, inner: &Inner, caches: &[CacheSeen]) -> Status {
        let core = &inner.core;
        // A block that was seen in two caches is counted as out once.
        let cached = caches.iter().map(|cache| cache.units).sum::<u64>().min(core.out_units());
        let awake = core.out_blocks() - inner.sleepers.blocks();
        let cached_blocks = caches.iter().map(|cache| cache.blocks).sum::<usize>().min(awake);
        // Relaxed: figures for people.
        let load = |counter: &crate::sync::AtomicU64| counter.load(Ordering::Relaxed);
        Status {
            live_bytes: bytes(core.out_units() - cached),
            live_blocks: awake - cached_blocks,
            free_bytes: bytes(core.free_units()),
            cached_bytes: bytes(cached),
            pending_bytes: 0,
            graph_bytes: 0,
            asleep_bytes: bytes(inner.sleepers.units()),
            reserved_bytes: bytes(core.reserved_units()),
            peak_reserved_bytes: bytes(inner.peak_reserved),
            largest_free_bytes: bytes(u64::from(core.largest_free())),
            metadata_bytes: core.metadata_bytes()
                + caches.iter().map(|cache| cache.metadata_bytes).sum::<usize>(),
            hits: caches.iter().map(|cache| cache.hits).sum(),
            misses: inner.misses,
            steals: inner.steals,
            pages: core.extents(),
            moves: inner.moves,
            moved_bytes: inner.moved * Layout::MIN_ALIGN as u64,
            waits: load(&self.counters.waits),
            events_recorded: load(&self.counters.events_recorded),
            wrong_frees: load(&self.counters.wrong_frees),
            upstream_calls: load(&self.counters.upstream_calls),
        }
    }

    /// Adds the pending bytes. The caller has none of the locks.
    fn with_pending(&self, status: Status, freed: &[(Stamp, u64)]) -> Status {
        let machine = self.device.machine();
        let is_pending = |newest: &Stamp| machine.done_up_to(newest.stream) < newest.epoch;
        let units = freed.iter().filter(|(newest, _)| is_pending(newest)).map(|(_, units)| units).sum();
        let most = status.cached_bytes + status.free_bytes;
        Status { pending_bytes: bytes(units).min(most), ..status }
    }

    /// The memory that it has of its upstream, at one moment and in the order of addresses: the segments of a
    /// [`snapshot`](Self::snapshot), without a look at the blocks.
    ///
    /// ```
    /// use alluvion::suballoc::SuballocBook;
    /// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(4 << 20))?;
    /// let book = pool.find::<SuballocBook>().expect("it is a pool");
    /// assert_eq!(book.segments().iter().map(|segment| segment.bytes).sum::<usize>(), book.reserved_bytes());
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn segments(&self) -> Vec<SegmentView> {
        let stretches = self.lock_unless_forked().map(|inner| inner.core.stretches()).unwrap_or_default();
        segments(&stretches)
    }

    /// Every block at one moment.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let Some(inner) = self.lock_unless_forked() else {
            let (time, device, status) = (SystemTime::now(), self.device.clone(), Status::default());
            return Snapshot { time, device, status, segments: Vec::new(), blocks: Vec::new() };
        };
        let (mut cached, mut caches) = (Vec::<(u64, Option<StreamId>)>::new(), Vec::new());
        for (seen, blocks) in self.look_at_caches(|cache| {
            let blocks: Vec<_> = cache.blocks().map(|block| (block.address, cache.stream())).collect();
            (CacheSeen::of(cache), blocks)
        }) {
            caches.push(seen);
            cached.extend(blocks);
        }
        let stretches = inner.core.stretches();
        let seen: Vec<_> = inner.core.blocks().collect();
        let (status, freed) = (self.status_locked(&inner, &caches), freed(&inner, &caches));
        drop(inner);
        let time = SystemTime::now();
        cached.sort_unstable_by_key(|(address, _)| *address);
        let state = |address: u64, state: SeenState| match state {
            SeenState::Free(None) => BlockState::Free,
            SeenState::Free(Some((stream, epoch))) => BlockState::Pending(Stamp { stream, epoch }),
            SeenState::Out => match cached.binary_search_by_key(&address, |(address, _)| *address) {
                Ok(at) => BlockState::Cached(cached[at].1),
                Err(_) => BlockState::Live,
            },
        };
        Snapshot {
            time,
            device: self.device.clone(),
            status: self.with_pending(status, &freed),
            segments: segments(&stretches),
            blocks: seen
                .iter()
                .filter_map(|block| {
                    let address = DevicePtr::new(block.address)?;
                    let state = state(block.address, block.state);
                    // The core is not locked, so a block may have been freed meanwhile: it has no tag then.
                    let tag = match (&self.ledger, state) {
                        (Some(ledger), BlockState::Live) => ledger.tag(address),
                        _ => Tag::NONE,
                    };
                    Some(BlockView { address, bytes: bytes(u64::from(block.units)), state, tag })
                })
                .collect(),
        }
    }

    /// The largest block that `requester` could get now, without growth and without waiting.
    fn largest(&self, requester: Requester<'_>) -> usize {
        let reach = self.others(requester).reach;
        let inner = self.lock();
        // The query does not enter the stream: without a cache it would never leave the core.
        let owner = requester.id().and_then(|id| inner.core.owner_of(id)).unwrap_or(Owner::UNOWNED);
        let reach = of_owners(&inner.core, &reach);
        let units = inner.core.largest(owner, &reach);
        // Where the size class is above the maximum, the exact size is served: see `want`.
        let most = Want::of_units(units).filter(|want| u64::from(want.units()) > self.maximum_units);
        bytes(u64::from(most.map_or(Want::most_within(units), |_| units)))
    }
}

impl<U: Resource> Engine<U> {
    pub(in crate::suballoc) fn status(&self) -> Status {
        self.book.status()
    }

    pub(in crate::suballoc) fn snapshot(&self) -> Snapshot {
        self.book.snapshot()
    }

    pub(in crate::suballoc) fn largest_bytes(&self, stream: StreamRef<'_>) -> usize {
        if self.book.device.require(stream.device()).is_err() {
            return 0;
        }
        self.largest(Requester::Stream(stream))
    }

    /// The largest request that `requester` could have served now, without growth and without waiting.
    fn largest(&self, requester: Requester<'_>) -> usize {
        let bytes = self.book.largest(requester);
        self.book.only_bytes().map_or(bytes, |only| if bytes < only { 0 } else { only })
    }

    /// The memory of the upstream, and the free memory here.
    pub(in crate::suballoc) fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.book.require_same_process()?;
        let under = self.upstream.memory_info()?;
        let totals = self.book.totals();
        let free_bytes = under.free_bytes.saturating_add(totals.reserved_bytes - totals.live_bytes);
        let room = bytes(self.book.maximum_units).saturating_sub(totals.live_bytes);
        Ok(MemoryInfo { free_bytes: free_bytes.min(room).min(under.total_bytes), ..under })
    }

    pub(super) fn report(&self, request: &Request<'_>, attempt: &Attempt) -> OutOfMemory {
        let is_frozen = self.book.is_frozen();
        let report = OutOfMemory {
            attempt: attempt.attempt,
            maximum_bytes: self.maximum_bytes(),
            upstream_memory: if is_frozen { None } else { self.upstream.memory_info().ok() },
            upstream_error: attempt.refused.clone(),
            ..self.figures(request.layout, request.requester)
        };
        let report = report.explained();
        if is_frozen { OutOfMemory { cause: Cause::Frozen, ..report } } else { report }
    }

    /// The most that it may reserve of its upstream, if there is a limit.
    pub(super) fn maximum_bytes(&self) -> Option<usize> {
        let maximum = self.book.maximum_units;
        (maximum < (usize::MAX / Layout::MIN_ALIGN) as u64).then(|| bytes(maximum))
    }

    /// The figures of this suballocator in a report.
    pub(super) fn figures(&self, layout: Layout, requester: Requester<'_>) -> OutOfMemory {
        let status = self.book.status();
        OutOfMemory {
            device: Some(self.book.device.ordinal()),
            align: layout.align(),
            stream: requester.id(),
            live_bytes: status.live_bytes,
            free_bytes: status.free_bytes + status.cached_bytes - status.pending_bytes,
            pending_bytes: status.pending_bytes,
            reserved_bytes: status.reserved_bytes,
            largest_bytes: self.largest(requester),
            is_of_suballocator: true,
            ..OutOfMemory::new(self.book.config.name, layout.bytes())
        }
    }
}

#[cfg(all(test, feature = "sim", not(loom)))]
mod tests {
    use super::*;
    use crate::source::Mapped;
    use crate::{DeviceVec, PoolConfig, ResourceExt, Sim, SleepConfig};

    /// A block that goes from one cache to another while these are looked at is seen in both.
    #[test]
    fn a_block_that_is_seen_twice_beside_one_that_sleeps_is_no_negative_block() {
        let sim = Sim::new();
        let (device, stream) = (sim.device(0), sim.device(0).stream().expect("there are numbers left"));
        let pool = Mapped::new(&device).and_then(|mapped| mapped.pool(PoolConfig::default()));
        let pool = pool.expect("the device maps pages");
        let vector = |bytes| DeviceVec::<u8, _>::uninit_in(bytes, &stream, &pool).expect("there is room");
        let asleep = [2 << 20, 2 << 20]
            .map(|bytes| vector(bytes).sleep(SleepConfig::default()).expect("nothing forbids it"));
        drop(vector(1000));
        let book = pool.find::<SuballocBook>().expect("a pool has one");
        let seen = || CacheSeen::of(&book.shards.get(stream.id().index()).expect("it was used").lock());
        let twice = [seen(), seen()];
        assert!(twice.iter().all(|cache| cache.blocks == 1));
        let status = book.status_locked(&book.lock(), &twice);
        assert_eq!((status.live_blocks, status.asleep_bytes), (0, 4 << 20));
        drop(asleep);
    }
}
