//! Memory pools: allocation in the order of streams.
//!
//! A pool holds segments of device memory and carves blocks out of them. A free block keeps the clock of its free. That and the
//! pool's reuse attributes decide which stream may take it, and when:
//!
//! 1. the stream that freed it, at once;
//! 2. with `ReuseFollowEventDependencies`, a stream that has waited for the free;
//! 3. with `ReuseAllowOpportunistic`, any stream once the free has run;
//! 4. when the pool cannot grow, with `ReuseAllowInternalDependencies`, any stream, which is then made to wait;
//! 5. when nothing else is left, any stream, after the host has waited for the pending frees.

#![expect(unsafe_code, reason = "frees memory of the host when a pool of managed memory shrinks")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::allocation::{Allocation, AllocationKind};
use super::clock::{LaneClock, LaneId};
use super::hazard::{AccessMode, Hazard, HazardKind};
use super::host_bytes::HostBytes;
use super::kernel::Range;
use super::lane::Work;
use super::machine::SimMachine;
use super::memory::{Backing, Rights, SimMapping};
use crate::driver::{Call, Code, PoolAttribute, PoolKind, PoolProperties, RawPool};

/// Blocks are multiples of this, aligned to it.
const UNIT: u64 = 512;

/// A pool grows by at least this many bytes, as on an H200, if the device has them.
const SEGMENT: u64 = 32 << 20;

/// The unit of growth.
const SEGMENT_UNIT: u64 = 2 << 20;

/// Handles of pools start here.
const FIRST_HANDLE: u64 = 0x9001_0000;

/// A free block.
#[derive(Clone, Debug, Default)]
struct FreeBlock {
    bytes: u64,
    /// The frees of its parts, as far as the host has not seen them done.
    frees: LaneClock,
    /// The operations that those frees were ordered after, including the frees.
    after: LaneClock,
}

/// A pool.
#[derive(Debug)]
struct SimPool {
    ordinal: u32,
    kind: PoolKind,
    max_bytes: u64,
    release_threshold: u64,
    follow_events: bool,
    opportunistic: bool,
    internal: bool,
    segments: BTreeMap<u64, u64>,
    free: BTreeMap<u64, FreeBlock>,
    reserved: u64,
    reserved_high: u64,
    used: u64,
    used_high: u64,
    /// The handle is destroyed; the pool is removed when its last block is freed.
    destroyed: bool,
}

/// Every pool of the machine.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pools: HashMap<u64, SimPool>,
    defaults: HashMap<(u32, PoolKind), u64>,
    handles: u64,
}

/// Which free blocks a search may return.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockSearch {
    /// Blocks that need no wait.
    Free,
    /// Blocks that the stream must be made to wait for.
    Waiting,
}

impl Pools {
    pub(super) fn add_defaults(&mut self, ordinal: u32) {
        for kind in [PoolKind::Device, PoolKind::Managed] {
            let handle = self.add(ordinal, kind, 0);
            self.defaults.insert((ordinal, kind), handle);
        }
    }

    pub(super) fn default_of(&self, ordinal: u32, kind: PoolKind) -> Option<RawPool> {
        self.defaults.get(&(ordinal, kind)).map(|&handle| RawPool(handle))
    }

    /// Pools that the program made and did not destroy.
    pub(super) fn live(&self) -> usize {
        self.pools.len() - self.defaults.len() - self.pools.values().filter(|pool| pool.destroyed).count()
    }

    /// Handles of pools that the program made and did not destroy.
    pub(super) fn iter_live(&self) -> impl Iterator<Item = RawPool> {
        let made = self.pools.iter().filter(|&(handle, pool)| !pool.destroyed && !self.is_default(*handle));
        made.map(|(&handle, _)| RawPool(handle))
    }

    /// Returns `true` if the pool serves managed memory.
    pub(super) fn is_managed(&self, handle: u64) -> bool {
        self.pools.get(&handle).is_some_and(|pool| pool.kind == PoolKind::Managed)
    }

    fn is_default(&self, handle: u64) -> bool {
        self.defaults.values().any(|&default| default == handle)
    }

    fn add(&mut self, ordinal: u32, kind: PoolKind, max_bytes: u64) -> u64 {
        self.handles += 1;
        let handle = FIRST_HANDLE + self.handles * 0x10;
        let pool = SimPool {
            ordinal,
            kind,
            max_bytes: if max_bytes == 0 { u64::MAX } else { max_bytes },
            release_threshold: 0,
            follow_events: true,
            opportunistic: true,
            internal: true,
            segments: BTreeMap::new(),
            free: BTreeMap::new(),
            reserved: 0,
            reserved_high: 0,
            used: 0,
            used_high: 0,
            destroyed: false,
        };
        self.pools.insert(handle, pool);
        handle
    }
}

impl SimPool {
    /// Returns `true` if the whole segment is free.
    fn is_free(&self, start: u64, bytes: u64) -> bool {
        let parts = self.free.range(start..start + bytes);
        parts.map(|(_, block)| block.bytes).sum::<u64>() == bytes
    }

    /// Joins free blocks that touch, are in one segment, and that `may_join` lets join.
    fn coalesce(&mut self, may_join: impl Fn(&FreeBlock, &FreeBlock) -> bool) {
        let mut joined: BTreeMap<u64, FreeBlock> = BTreeMap::new();
        for (start, block) in core::mem::take(&mut self.free) {
            match joined.last_entry() {
                Some(mut last)
                    if last.key() + last.get().bytes == start
                        && !self.segments.contains_key(&start)
                        && may_join(last.get(), &block) =>
                {
                    let last = last.get_mut();
                    last.bytes += block.bytes;
                    last.frees.join(&block.frees);
                    last.after.join(&block.after);
                }
                _ => {
                    joined.insert(start, block);
                }
            }
        }
        self.free = joined;
    }
}

impl SimMachine {
    fn pool(&mut self, ordinal: u32, raw: RawPool) -> Result<&mut SimPool, Code> {
        let is_live =
            self.pools.pools.get(&raw.0).is_some_and(|pool| !pool.destroyed && pool.ordinal == ordinal);
        if !is_live {
            let words = format!("{raw:?} is no pool of gpu {ordinal}, or was destroyed before it was used");
            return Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_VALUE));
        }
        self.pools.pools.get_mut(&raw.0).ok_or(Code::INVALID_VALUE)
    }

    pub(super) fn pool_create(&mut self, ordinal: u32, properties: PoolProperties) -> RawPool {
        RawPool(self.pools.add(ordinal, PoolKind::Device, properties.max_bytes))
    }

    pub(super) fn pool_destroy(&mut self, ordinal: u32, raw: RawPool) -> Result<(), Code> {
        if self.pools.is_default(raw.0) {
            return Err(Code::INVALID_VALUE);
        }
        self.pool(ordinal, raw)?;
        self.settle(raw.0);
        let pool = self.pool(ordinal, raw)?;
        let waited_for = pool.free.values().all(|block| block.frees == LaneClock::default());
        if pool.used > 0 || !waited_for {
            // Driver 580 may crash here, whatever its manual says.
            let what =
                if pool.used > 0 { "with memory out" } else { "before its frees have been waited for" };
            self.report(Hazard::rule(HazardKind::FreeInUse, format!("{raw:?} is destroyed {what}")));
        }
        let pool = self.pool(ordinal, raw)?;
        pool.destroyed = true;
        pool.release_threshold = 0;
        self.release(raw.0, 0);
        Ok(())
    }

    pub(super) fn pool_trim(&mut self, ordinal: u32, raw: RawPool, keep_bytes: usize) -> Result<(), Code> {
        self.pool(ordinal, raw)?;
        self.release(raw.0, keep_bytes as u64);
        Ok(())
    }

    pub(super) fn pool_attribute(
        &mut self,
        ordinal: u32,
        raw: RawPool,
        attribute: PoolAttribute,
    ) -> Result<u64, Code> {
        let pool = self.pool(ordinal, raw)?;
        Ok(match attribute {
            PoolAttribute::ReuseFollowEventDependencies => pool.follow_events.into(),
            PoolAttribute::ReuseAllowOpportunistic => pool.opportunistic.into(),
            PoolAttribute::ReuseAllowInternalDependencies => pool.internal.into(),
            PoolAttribute::ReleaseThreshold => pool.release_threshold,
            PoolAttribute::ReservedCurrent => pool.reserved,
            PoolAttribute::ReservedHigh => pool.reserved_high,
            PoolAttribute::UsedCurrent => pool.used,
            PoolAttribute::UsedHigh => pool.used_high,
        })
    }

    pub(super) fn pool_set_attribute(
        &mut self,
        ordinal: u32,
        raw: RawPool,
        attribute: PoolAttribute,
        value: u64,
    ) -> Result<(), Code> {
        let pool = self.pool(ordinal, raw)?;
        match (attribute, value) {
            (PoolAttribute::ReuseFollowEventDependencies, 0 | 1) => pool.follow_events = value == 1,
            (PoolAttribute::ReuseAllowOpportunistic, 0 | 1) => pool.opportunistic = value == 1,
            (PoolAttribute::ReuseAllowInternalDependencies, 0 | 1) => pool.internal = value == 1,
            (PoolAttribute::ReleaseThreshold, _) => pool.release_threshold = value,
            // A mark that is reset starts again at the current value.
            (PoolAttribute::ReservedHigh, 0) => pool.reserved_high = pool.reserved,
            (PoolAttribute::UsedHigh, 0) => pool.used_high = pool.used,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    /// Takes a block for a stream, or fails with `OUT_OF_MEMORY`; the caller may then wait for
    /// [`Self::pending_frees`].
    pub(super) fn allocate_async(
        &mut self,
        ordinal: u32,
        asked: u64,
        raw: RawPool,
        lane: LaneId,
    ) -> Result<u64, Code> {
        self.pool(ordinal, raw)?;
        if asked == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let bytes = asked.checked_next_multiple_of(UNIT).ok_or(Code::OUT_OF_MEMORY)?;
        let found = self
            .find_free(raw.0, bytes, lane, BlockSearch::Free)
            .or_else(|| {
                self.settle(raw.0);
                self.find_free(raw.0, bytes, lane, BlockSearch::Free)
            })
            .or_else(|| self.grow(raw.0, bytes))
            .or_else(|| self.find_free(raw.0, bytes, lane, BlockSearch::Waiting));
        let address = found.ok_or(Code::OUT_OF_MEMORY)?;
        self.carve(raw.0, address, bytes, lane);
        self.forget_past(address, bytes);
        let name: Arc<str> = Call::AllocateAsync.symbol().into();
        let point = self.submit(lane, Work::Allocate { address, bytes }, Arc::clone(&name), &[]);
        let range = Range { address, bytes: asked, mode: AccessMode::Allocate };
        let made = self.by_lane(lane, name, range, point);
        let kind = AllocationKind::Pooled(raw.0);
        self.allocations.add(address, Allocation { kind, ordinal, bytes: asked, made });
        Ok(address)
    }

    pub(super) fn free_async(&mut self, ordinal: u32, address: u64, lane: LaneId) -> Result<(), Code> {
        let kind = self.check_free(ordinal, address, Call::FreeAsync)?;
        let (asked, point) = self.end_allocation(lane, address);
        let AllocationKind::Pooled(handle) = kind else { return Ok(()) };
        let bytes = asked.next_multiple_of(UNIT);
        let after = self.lanes.get(lane).map_or_else(|| LaneClock::of(point), |lane| lane.clock.clone());
        if let Some(pool) = self.pools.pools.get_mut(&handle) {
            pool.used -= bytes;
            pool.free.insert(address, FreeBlock { bytes, frees: LaneClock::of(point), after });
            if pool.destroyed {
                self.release(handle, 0);
            }
        }
        Ok(())
    }

    /// The frees that must run before any stream can take all free memory of the pool.
    pub(super) fn pending_frees(&self, raw: RawPool) -> LaneClock {
        let mut clock = LaneClock::default();
        for block in self.pools.pools.get(&raw.0).into_iter().flat_map(|pool| pool.free.values()) {
            clock.join(&block.frees);
        }
        clock
    }

    /// At a synchronisation, pools shrink to their release threshold.
    pub(super) fn release_over_threshold(&mut self, ordinal: u32) {
        let of_device = self.pools.pools.iter().filter(|(_, pool)| pool.ordinal == ordinal);
        let thresholds: Vec<(u64, u64)> = of_device
            .filter(|(_, pool)| pool.reserved > pool.release_threshold)
            .map(|(&handle, pool)| (handle, pool.release_threshold))
            .collect();
        for (handle, keep) in thresholds {
            self.release(handle, keep);
        }
    }

    /// Drops frees that the host has seen done, and joins blocks that any stream may take, or that were freed together.
    fn settle(&mut self, handle: u64) {
        let Some(pool) = self.pools.pools.get_mut(&handle) else { return };
        for block in pool.free.values_mut() {
            self.lanes.prune(&mut block.frees);
            self.lanes.prune(&mut block.after);
        }
        let opportunistic = pool.opportunistic;
        let lanes = &self.lanes;
        let is_open = |block: &FreeBlock| {
            block.frees == LaneClock::default() || (opportunistic && lanes.completed(&block.frees))
        };
        pool.coalesce(|left, right| (is_open(left) && is_open(right)) || left.frees == right.frees);
    }

    /// The free block to cut from: one of the stream's own if there is one, the smallest that is large enough.
    fn find_free(&mut self, handle: u64, bytes: u64, lane: LaneId, reach: BlockSearch) -> Option<u64> {
        let clock = self.lanes.joined(lane);
        let pool = self.pools.pools.get_mut(&handle)?;
        if reach == BlockSearch::Waiting && pool.internal {
            pool.coalesce(|_, _| true);
        }
        let is_own = |block: &FreeBlock| block.frees.get(lane) > 0;
        let may_take = |block: &FreeBlock| {
            block.frees.points().all(|point| {
                point.lane == lane
                    || self.lanes.is_observed(point)
                    || (pool.follow_events && self.lanes.covers(&clock, point))
                    || (pool.opportunistic && self.lanes.has_run(point))
                    || (reach == BlockSearch::Waiting && pool.internal)
            })
        };
        let fits = pool.free.iter().filter(|(_, block)| block.bytes >= bytes && may_take(block));
        fits.min_by_key(|(_, block)| (!is_own(block), block.bytes)).map(|(&address, _)| address)
    }

    /// Cuts a block off a free one. The stream then comes after the frees of that block.
    fn carve(&mut self, handle: u64, address: u64, bytes: u64, lane: LaneId) {
        let Some(pool) = self.pools.pools.get_mut(&handle) else { return };
        let Some(block) = pool.free.remove(&address) else { return };
        if block.bytes > bytes {
            let rest = FreeBlock { bytes: block.bytes - bytes, ..block.clone() };
            pool.free.insert(address + bytes, rest);
        }
        pool.used += bytes;
        pool.used_high = pool.used_high.max(pool.used);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.clock.join(&block.after);
        }
    }

    /// Adds a segment that holds `bytes`, and returns where it starts.
    fn grow(&mut self, handle: u64, bytes: u64) -> Option<u64> {
        let exact = bytes.checked_next_multiple_of(SEGMENT_UNIT)?;
        self.add_segment(handle, exact.max(SEGMENT)).or_else(|| self.add_segment(handle, exact))
    }

    fn add_segment(&mut self, handle: u64, bytes: u64) -> Option<u64> {
        let pool = self.pools.pools.get(&handle)?;
        let (ordinal, kind) = (pool.ordinal, pool.kind);
        if pool.reserved.checked_add(bytes)? > pool.max_bytes {
            return None;
        }
        let address = match kind {
            PoolKind::Device => {
                self.take_bytes(ordinal, bytes).ok()?;
                match self.add_device_mapping(ordinal, bytes, SEGMENT_UNIT) {
                    Some((address, _)) => address,
                    None => {
                        self.free_device_bytes(ordinal, bytes);
                        return None;
                    }
                }
            }
            PoolKind::Managed => {
                let held = self.pinned_bytes.checked_add(bytes)?;
                if held > self.config.pinned_bytes as u64 {
                    return None;
                }
                let block = HostBytes::allocate(usize::try_from(bytes).ok()?)?;
                self.pinned_bytes = held;
                let address = block.address();
                let backing = self.memory.add_host_backing(block);
                self.memory.map(address, SimMapping { bytes, backing, rights: Rights::Everyone });
                address
            }
        };
        let pool = self.pools.pools.get_mut(&handle)?;
        pool.segments.insert(address, bytes);
        pool.reserved += bytes;
        pool.reserved_high = pool.reserved_high.max(pool.reserved);
        pool.free.insert(address, FreeBlock { bytes, ..FreeBlock::default() });
        Some(address)
    }

    /// Releases segments that are entirely free and have no work left, until at most `keep_bytes` are held.
    fn release(&mut self, handle: u64, keep_bytes: u64) {
        let Some(pool) = self.pools.pools.get(&handle) else { return };
        let mut held = pool.reserved;
        let mut gone = Vec::new();
        for (&start, &bytes) in pool.segments.iter().rev() {
            let mut parts = pool.free.range(start..start + bytes);
            let is_idle =
                pool.is_free(start, bytes) && parts.all(|(_, block)| self.lanes.completed(&block.frees));
            if held > keep_bytes && is_idle {
                held -= bytes;
                gone.push(start);
            }
        }
        for start in gone {
            self.remove_segment(handle, start);
        }
        if self.pools.pools.get(&handle).is_some_and(|pool| pool.destroyed && pool.reserved == 0) {
            self.pools.pools.remove(&handle);
        }
    }

    fn remove_segment(&mut self, handle: u64, start: u64) {
        let Some(pool) = self.pools.pools.get_mut(&handle) else { return };
        let Some(bytes) = pool.segments.remove(&start) else { return };
        pool.free.retain(|&at, _| !(start..start + bytes).contains(&at));
        pool.reserved -= bytes;
        let ordinal = pool.ordinal;
        let Some(mapping) = self.memory.unmap(start) else { return };
        self.watch.forget(mapping.backing);
        match self.memory.remove_backing(mapping.backing) {
            Some(Backing::Host(block)) => {
                self.pinned_bytes -= bytes;
                // SAFETY: nobody uses the block any more: every part of it was given back (`Driver::free_async`),
                // and the work that those frees were ordered after has run (`release`).
                unsafe { block.free() };
            }
            _ => {
                self.memory.free_addresses(start, bytes, SEGMENT_UNIT);
                self.free_device_bytes(ordinal, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::clock::Point;
    use super::*;

    fn pool() -> SimPool {
        let mut pools = Pools::default();
        let handle = pools.add(0, PoolKind::Device, 0);
        let mut pool = pools.pools.remove(&handle).unwrap();
        pool.segments = BTreeMap::from([(0, 4096), (4096, 4096)]);
        pool
    }

    fn block(bytes: u64, freed: Option<u64>) -> FreeBlock {
        let frees =
            freed.map(|sequence| LaneClock::of(Point { lane: LaneId(1), sequence })).unwrap_or_default();
        FreeBlock { bytes, after: frees.clone(), frees }
    }

    fn starts(pool: &SimPool) -> Vec<(u64, u64)> {
        pool.free.iter().map(|(&start, block)| (start, block.bytes)).collect()
    }

    #[test]
    fn blocks_join_within_a_segment_and_keep_all_that_they_came_after() {
        let mut pool = pool();
        for (start, freed) in [(0, Some(3)), (1024, None), (2048, Some(5)), (3072, None), (4096, None)] {
            pool.free.insert(start, block(1024, freed));
        }
        pool.coalesce(|_, _| true);
        assert_eq!(starts(&pool), [(0, 4096), (4096, 1024)]);
        assert_eq!(pool.free[&0].frees.get(LaneId(1)), 5);
        assert!(pool.is_free(0, 4096) && !pool.is_free(4096, 4096));
    }

    #[test]
    fn blocks_that_differ_in_their_frees_stay_apart_unless_told() {
        let mut pool = pool();
        for (start, freed) in [(0, Some(3)), (1024, Some(3)), (2048, Some(5)), (3072, None)] {
            pool.free.insert(start, block(1024, freed));
        }
        pool.coalesce(|left, right| left.frees == right.frees);
        assert_eq!(starts(&pool), [(0, 2048), (2048, 1024), (3072, 1024)]);
    }
}
