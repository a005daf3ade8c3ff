//! Memory pools: allocation in the order of streams.
//!
//! The rule was found by a probe on an H200 with driver 580.159.04, which noted each address that the driver's pool gave to the seven
//! traces of `tests/traces` and to generated programs. This rule gives the same address in all but 11 of 314,552
//! cases, and holds the same memory on each trace. The manual says nothing of it but the order of reuse (2, 4, 6) and of release.
//!
//! A pool has one range of addresses, and pages of 32 MiB come under it where they are needed. A request, in units of 512 bytes, is
//! served from the first of these that has room, by the smallest range in it that is large enough, the oldest of several:
//!
//! 1. what the stream itself has freed;
//! 2. what belongs to no stream and has memory;
//! 3. what another stream has freed, stream by stream: with `ReuseFollowEventDependencies`, where the stream has waited for the free;
//!    with `ReuseAllowOpportunistic`, where the free has run;
//! 4. all that is over, of all streams, made one with its neighbours. Ranges without memory count too;
//! 5. addresses behind all others;
//! 6. with `ReuseAllowInternalDependencies`, when there is no memory for 4 and 5: what any stream has freed. The stream is made to
//!    wait;
//! 7. in a pool without a limit: the same, after the host has waited for the pending frees.
//!
//! 4 and 5 may need memory: pages that nothing lies in are moved there before new ones are made. So a free range costs nothing as
//! long as it spans pages, and the pool grows by what pages hold in part.
//!
//! At a synchronisation, what the host has now seen freed belongs to no stream any more. Pages that nothing lies in go, down to the
//! threshold or below. A trim never goes below what it is told to keep.
//!
//! A limit counts whole pages. A request that it refuses is refused at once, whatever is pending. Used are the bytes that were asked
//! for.
//!
//! Not measured: pools of managed memory, which have pieces of host memory of their own instead of pages here; small devices, whose
//! pages are smaller here; what a device without memory left does, where 7 is what this crate assumes.

#![expect(unsafe_code, reason = "frees memory of the host when a pool of managed memory shrinks")]

use std::collections::HashMap;
use std::sync::Arc;

use super::allocation::{Allocation, AllocationKind};
use super::clock::{LaneClock, LaneId};
use super::hazard::{AccessMode, Hazard, HazardKind};
use super::host_bytes::HostBytes;
use super::kernel::Range;
use super::lane::Work;
use super::lent::PoolSource;
use super::machine::SimMachine;
use super::memory::{AccessList, Rights, SimMapping, set_access};
use super::pool_space::PoolSpace;
use crate::driver::{Call, Code, HandleType, MapAccess, PoolAttribute, PoolKind, PoolProperties, RawPool};

/// Blocks are multiples of this, aligned to it.
const UNIT: u64 = 512;

/// The unit in which a pool of a large device grows and shrinks.
const PAGE: u64 = 32 << 20;

/// The same on the smallest device.
const SMALLEST_PAGE: u64 = 2 << 20;

/// A pool of managed memory takes a page of the device itself when it grows, for what says where its pages are.
const ROOM_TO_GROW: u64 = 2 << 20;

/// A device has at least this many pages. It matters for devices of less than 256 MiB, which no hardware has.
const PAGES: u64 = 8;

/// A pool has this many times the device's memory in addresses.
const ADDRESSES: u64 = 16;

/// Handles of pools start here.
const FIRST_HANDLE: u64 = 0x9001_0000;

/// The access of a pool that nobody has changed.
fn own_access(home: u32) -> AccessList {
    AccessList::from_slice(&[(home, MapAccess::ReadWrite)])
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
    /// The device whose memory it is. An imported pool may be used for another one.
    home: u32,
    /// The devices whose kernels may use its memory.
    access: AccessList,
    /// What it can be exported as.
    handle_types: HandleType,
    /// The pool of another process that it stands for, and that blocks are imported from.
    source: Option<PoolSource>,
    space: PoolSpace,
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

impl Pools {
    pub(super) fn add_defaults(&mut self, ordinal: u32, device_bytes: u64) {
        for kind in [PoolKind::Device, PoolKind::Managed] {
            let handle = self.add(ordinal, kind, 0, device_bytes);
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

    /// Returns `true` if other processes may import blocks of the pool.
    pub(super) fn lends(&self, handle: u64) -> bool {
        self.pools.get(&handle).is_some_and(|pool| pool.handle_types != HandleType::NONE)
    }

    /// The pool of another process that one stands for.
    pub(super) fn source_of(&self, handle: u64) -> Option<PoolSource> {
        self.pools.get(&handle)?.source
    }

    /// The bytes of the host that pools of managed memory hold.
    pub(super) fn host_bytes(&self) -> u64 {
        let managed = self.pools.values().filter(|pool| pool.kind == PoolKind::Managed);
        managed.map(|pool| pool.reserved).sum()
    }

    /// The addresses that pools have: where they start, how many they are, and how they are aligned.
    pub(super) fn address_ranges(&self) -> Vec<(u64, u64, u64)> {
        let reserved = self.pools.values().filter(|pool| pool.space.is_reserved());
        reserved.map(|pool| (pool.space.start, pool.space.reserved_bytes(), pool.space.page_bytes)).collect()
    }

    fn is_default(&self, handle: u64) -> bool {
        self.defaults.values().any(|&default| default == handle)
    }

    fn add(&mut self, ordinal: u32, kind: PoolKind, max_bytes: u64, device_bytes: u64) -> u64 {
        self.handles += 1;
        let handle = FIRST_HANDLE + self.handles * 0x10;
        let page_bytes = match device_bytes / PAGES {
            share if share < SMALLEST_PAGE => SMALLEST_PAGE,
            share => PAGE.min(1 << share.ilog2()),
        };
        let limit = max_bytes.checked_next_multiple_of(page_bytes).filter(|&limit| limit > 0);
        let pool = SimPool {
            ordinal,
            kind,
            max_bytes: limit.unwrap_or(u64::MAX),
            release_threshold: 0,
            follow_events: true,
            opportunistic: true,
            internal: true,
            home: ordinal,
            access: own_access(ordinal),
            handle_types: HandleType::NONE,
            source: None,
            space: PoolSpace::new(page_bytes),
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

impl SimMachine {
    fn pool(&mut self, ordinal: u32, raw: RawPool) -> Result<&mut SimPool, Code> {
        let is_live = self
            .process
            .pools
            .pools
            .get(&raw.0)
            .is_some_and(|pool| !pool.destroyed && pool.ordinal == ordinal);
        if !is_live {
            let words = format!("{raw:?} is no pool of gpu {ordinal}, or was destroyed before it was used");
            return Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_VALUE));
        }
        self.process.pools.pools.get_mut(&raw.0).ok_or(Code::INVALID_VALUE)
    }

    pub(super) fn pool_create(&mut self, ordinal: u32, properties: PoolProperties) -> RawPool {
        let device_bytes = self.device(ordinal).map_or(0, |device| device.total_bytes);
        let PoolProperties { max_bytes, handle_types, .. } = properties;
        let handle = self.process.pools.add(ordinal, PoolKind::Device, max_bytes, device_bytes);
        if let Some(pool) = self.process.pools.pools.get_mut(&handle) {
            pool.handle_types = handle_types;
        }
        RawPool(handle)
    }

    /// A pool that stands for one of another process.
    pub(super) fn add_imported_pool(&mut self, ordinal: u32, source: PoolSource, home: u32) -> RawPool {
        let handle = self.process.pools.add(ordinal, PoolKind::Device, 0, 0);
        if let Some(pool) = self.process.pools.pools.get_mut(&handle) {
            // Another device of the importer has access where the importer says so.
            (pool.source, pool.home, pool.access) = (Some(source), home, own_access(home));
        }
        RawPool(handle)
    }

    /// What a pool can be exported as.
    pub(super) fn pool_exports(&mut self, ordinal: u32, raw: RawPool) -> Result<HandleType, Code> {
        Ok(self.pool(ordinal, raw)?.handle_types)
    }

    /// The pool that one stands for, and the devices that may use its memory.
    pub(super) fn imported_pool(
        &mut self,
        ordinal: u32,
        raw: RawPool,
    ) -> Result<(Option<PoolSource>, AccessList), Code> {
        let pool = self.pool(ordinal, raw)?;
        Ok((pool.source, pool.access.clone()))
    }

    /// A block of an imported pool is out.
    pub(super) fn add_to_pool(&mut self, raw: RawPool, bytes: u64) {
        if let Some(pool) = self.process.pools.pools.get_mut(&raw.0) {
            pool.used += bytes;
            pool.used_high = pool.used_high.max(pool.used);
        }
    }

    pub(super) fn pool_set_access(
        &mut self,
        ordinal: u32,
        raw: RawPool,
        accessor: u32,
        access: MapAccess,
    ) -> Result<(), Code> {
        let home = self.pool(ordinal, raw)?.home;
        self.device(accessor)?;
        // The codes of an H200.
        let is_own = accessor == home;
        match access {
            MapAccess::Read => return Err(Code::NOT_SUPPORTED),
            MapAccess::None if is_own => return Err(Code::INVALID_DEVICE),
            MapAccess::None | MapAccess::ReadWrite => {}
        }
        if !is_own && !self.config.reaches(accessor, home) {
            return Err(Code::INVALID_DEVICE);
        }
        let pool = self.pool(ordinal, raw)?;
        set_access(&mut pool.access, accessor, access);
        let pages: Vec<u64> = pool.space.pages().collect();
        let blocks = self.process.opened.blocks.of(&self.process.allocations, raw);
        let places = pages.into_iter().map(|page| (page, 1)).chain(blocks);
        for (address, bytes) in places.collect::<Vec<_>>() {
            self.process.memory.set_access(address, bytes, accessor, access);
        }
        Ok(())
    }

    pub(super) fn pool_destroy(&mut self, ordinal: u32, raw: RawPool) -> Result<(), Code> {
        if self.process.pools.is_default(raw.0) {
            return Err(Code::INVALID_VALUE);
        }
        self.pool(ordinal, raw)?;
        let is_settled = self.pending_frees(raw) == LaneClock::default();
        let pool = self.pool(ordinal, raw)?;
        // A pool that holds nothing waits for nothing.
        let waited_for = is_settled || pool.reserved == 0;
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

    /// Releases pages that are not in use, as long as `keep_bytes` stay.
    pub(super) fn pool_trim(&mut self, ordinal: u32, raw: RawPool, keep_bytes: usize) -> Result<(), Code> {
        let pool = self.pool(ordinal, raw)?;
        if pool.source.is_some() {
            return Err(Code::INVALID_VALUE);
        }
        let page_bytes = pool.space.page_bytes;
        self.release(raw.0, (keep_bytes as u64).saturating_add(page_bytes - 1));
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
        // Blocks of a pool of another process are imported.
        if self.pool(ordinal, raw)?.source.is_some() || asked == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let bytes = asked.checked_next_multiple_of(UNIT).ok_or(Code::OUT_OF_MEMORY)?;
        let (address, after) = self.take(raw.0, bytes, lane).ok_or(Code::OUT_OF_MEMORY)?;
        let pool = self.pool(ordinal, raw)?;
        pool.used += asked;
        pool.used_high = pool.used_high.max(pool.used);
        if let Some(lane) = self.lanes.get_mut(lane) {
            lane.clock.join(&after);
        }
        self.forget_past(address, bytes);
        let name: Arc<str> = Call::AllocateAsync.symbol().into();
        let point = self.submit(lane, Work::Allocate { address, bytes }, Arc::clone(&name), &[]);
        let range = Range { address, bytes: asked, mode: AccessMode::Allocate };
        let made = self.by_lane(lane, name, range, point);
        let kind = AllocationKind::Pooled(raw.0);
        self.process.allocations.add(address, Allocation { kind, ordinal, bytes: asked, made });
        Ok(address)
    }

    pub(super) fn free_async(&mut self, ordinal: u32, address: u64, lane: LaneId) -> Result<(), Code> {
        let kind = self.check_free(ordinal, address, Call::FreeAsync)?;
        let (asked, point) = self.end_allocation(lane, address);
        let AllocationKind::Pooled(handle) = kind else { return Ok(()) };
        let bytes = asked.next_multiple_of(UNIT);
        let after = self.lanes.get(lane).map_or_else(|| LaneClock::of(point), |lane| lane.clock.clone());
        let is_import = self.give_back_import(address, &after);
        if let Some(pool) = self.process.pools.pools.get_mut(&handle) {
            pool.used -= asked;
            if is_import {
                return Ok(());
            }
            pool.space.free(lane, address, bytes, point.sequence, after);
            if pool.destroyed {
                self.release(handle, 0);
            }
        }
        Ok(())
    }

    /// Returns `true` if a request that found no memory may be tried again once the pending frees have run: hardware refuses at once
    /// where the limit of the pool stands in the way.
    pub(super) fn may_wait(&self, raw: RawPool) -> bool {
        self.process.pools.pools.get(&raw.0).is_some_and(|pool| pool.max_bytes == u64::MAX)
    }

    /// The operations that must run before any stream can take all free memory of the pool.
    pub(super) fn pending_frees(&self, raw: RawPool) -> LaneClock {
        let pool = self.process.pools.pools.get(&raw.0);
        let mut clock = pool.map(|pool| pool.space.before_all()).unwrap_or_default();
        self.lanes.prune(&mut clock);
        clock
    }

    /// At a synchronisation, any stream may have what the host has seen freed, and pools shrink to their release threshold.
    pub(super) fn release_over_threshold(&mut self, ordinal: u32) {
        let Self { lanes, process, .. } = &mut *self;
        let mut over = Vec::new();
        for (&handle, pool) in process.pools.pools.iter_mut().filter(|(_, pool)| pool.ordinal == ordinal) {
            pool.space.gather(|lane| lanes.observed_until(lane), |clock| lanes.prune(clock));
            if pool.reserved > pool.release_threshold {
                over.push((handle, pool.release_threshold));
            }
        }
        for (handle, keep) in over {
            self.release_shared(handle, keep);
        }
    }

    /// Takes a range for a stream, which must come after the operations that are returned with it.
    fn take(&mut self, handle: u64, bytes: u64, lane: LaneId) -> Option<(u64, LaneClock)> {
        let clock = self.lanes.joined(lane);
        let Self { lanes, process, .. } = &mut *self;
        let pool = process.pools.pools.get_mut(&handle)?;
        let done = |other| match pool.opportunistic {
            true => lanes.run_until(other),
            false => lanes.observed_until(other),
        };
        let reach = |other| {
            let followed = if pool.follow_events { clock.get(other) } else { 0 };
            done(other).max(lanes.observed_until(other)).max(followed)
        };
        if let Some(taken) = pool.space.take_free(lane, bytes, reach) {
            return Some(taken);
        }
        pool.space.gather(done, |clock| lanes.prune(clock));
        let internal = pool.internal;
        let holes = [pool.space.best_hole(bytes), pool.space.best_backed(bytes)];
        let at = match holes[0] {
            Some(_) => holes.into_iter().flatten().find(|&at| self.back(handle, at, bytes)),
            None => self.grow(handle, bytes),
        };
        let at = at.or_else(|| {
            let all = self.process.pools.pools.get(&handle).filter(|_| internal)?.space.best_of_all(bytes);
            let at = all.into_iter().find(|&at| self.back(handle, at, bytes))?;
            self.process.pools.pools.get_mut(&handle)?.space.pull(at, bytes);
            Some(at)
        })?;
        Some((at, self.process.pools.pools.get_mut(&handle)?.space.claim(at, bytes)))
    }

    /// Returns where `bytes` bytes start that lie behind all others.
    fn grow(&mut self, handle: u64, bytes: u64) -> Option<u64> {
        let pool = self.process.pools.pools.get_mut(&handle)?;
        if pool.kind == PoolKind::Managed {
            return self.add_managed(handle, bytes);
        }
        if !pool.space.is_reserved() {
            let device_bytes = self.devices.get(pool.ordinal as usize)?.total_bytes;
            let page_bytes = pool.space.page_bytes;
            let reserved = device_bytes.saturating_mul(ADDRESSES).checked_next_multiple_of(page_bytes)?;
            pool.space.reserve(self.addresses.take(reserved, page_bytes)?, reserved);
        }
        let at = pool.space.behind(bytes)?;
        self.back(handle, at, bytes).then_some(at)
    }

    /// Sees to it that a range has memory; changes nothing if there is not enough.
    fn back(&mut self, handle: u64, address: u64, bytes: u64) -> bool {
        let Some(pool) = self.process.pools.pools.get_mut(&handle) else { return false };
        let (ordinal, page_bytes) = (pool.ordinal, pool.space.page_bytes);
        let missing: Vec<u64> = pool.space.missing(address, bytes).collect();
        let spare: Vec<(u64, u64)> = pool.space.spare(address..address + bytes).take(missing.len()).collect();
        let (max_bytes, list) = (pool.max_bytes, pool.access.clone());
        let more = (missing.len() - spare.len()) as u64 * page_bytes;
        let Some(held) = pool.reserved.checked_add(more).filter(|&held| held <= max_bytes) else {
            return false;
        };
        // A page that another process still has mapped stays with it.
        let movable = spare.iter().filter(|&&(page, _)| self.is_held_alone(page)).count();
        if self.take_bytes(ordinal, (missing.len() - movable) as u64 * page_bytes).is_err() {
            return false;
        }
        for (page, _) in spare {
            self.remove_page(handle, page);
        }
        // What has just come free by that.
        let _ = self.take_bytes(ordinal, movable as u64 * page_bytes);
        let Some(pool) = self.process.pools.pools.get_mut(&handle) else { return false };
        for page in missing {
            let backing = self.backings.add_device(ordinal, page_bytes);
            let rights = Rights::Pool(list.clone());
            self.process.memory.map(page, SimMapping { bytes: page_bytes, backing, offset: 0, rights });
            pool.space.add_page(page);
        }
        pool.reserved = held;
        pool.reserved_high = pool.reserved_high.max(held);
        true
    }

    /// Adds memory of the host, whose addresses are the host's, and returns where it starts.
    fn add_managed(&mut self, handle: u64, bytes: u64) -> Option<u64> {
        let pool = self.process.pools.pools.get_mut(&handle)?;
        let bytes = bytes.checked_next_multiple_of(pool.space.page_bytes)?;
        let held = self.pinned_bytes.checked_add(bytes)?;
        let reserved = pool.reserved.checked_add(bytes)?;
        if held > self.config.pinned_bytes as u64 || reserved > pool.max_bytes {
            return None;
        }
        let ordinal = pool.ordinal;
        if self.devices.get(ordinal as usize).is_some_and(|device| device.free_bytes < ROOM_TO_GROW) {
            let words =
                "a pool of managed memory grows while its device has no room; driver 580 ends the process";
            self.report(Hazard::rule(HazardKind::Undefined, words.to_owned()));
            return None;
        }
        let pool = self.process.pools.pools.get_mut(&handle)?;
        let block = HostBytes::allocate(usize::try_from(bytes).ok()?)?;
        self.pinned_bytes = held;
        let address = block.address();
        let backing = self.backings.add_host(block);
        let rights = Rights::Everyone;
        self.process.memory.map(address, SimMapping { bytes, backing, offset: 0, rights });
        pool.space.add_block(address, bytes);
        pool.reserved = reserved;
        pool.reserved_high = pool.reserved_high.max(reserved);
        Some(address)
    }

    /// Releases pages that nothing lies in, as far as their frees have run, until at most `keep_bytes` are held.
    fn release(&mut self, handle: u64, keep_bytes: u64) {
        let Self { lanes, process, .. } = &mut *self;
        let Some(pool) = process.pools.pools.get_mut(&handle) else { return };
        pool.space.gather(|lane| lanes.run_until(lane), |clock| lanes.prune(clock));
        self.release_shared(handle, keep_bytes);
    }

    /// The same of what belongs to no stream.
    fn release_shared(&mut self, handle: u64, keep_bytes: u64) {
        let Self { lanes, process, .. } = &mut *self;
        let Some(pool) = process.pools.pools.get_mut(&handle) else { return };
        let idle: Vec<(u64, u64)> = pool.space.idle(|clock| lanes.completed(clock)).collect();
        for (page, bytes) in idle {
            let Some(pool) = self.process.pools.pools.get_mut(&handle) else { return };
            if pool.reserved <= keep_bytes {
                break;
            }
            pool.reserved -= bytes;
            if pool.kind == PoolKind::Managed {
                self.pinned_bytes -= bytes;
            }
            self.remove_page(handle, page);
        }
        let is_over = |pool: &SimPool| pool.destroyed && pool.reserved == 0;
        if self.process.pools.pools.get(&handle).is_some_and(is_over)
            && let Some(SimPool { space, .. }) = self.process.pools.pools.remove(&handle)
            && space.is_reserved()
        {
            self.addresses.free(space.start, space.reserved_bytes(), space.page_bytes);
        }
    }

    /// Returns `true` if no other process holds the memory of a page.
    fn is_held_alone(&self, page: u64) -> bool {
        let mapping = self.process.memory.mappings_in(page, 1).next();
        mapping.is_some_and(|(_, mapping)| self.backings.holders(mapping.backing) == 1)
    }

    /// Takes the memory from under a page that nothing lies in.
    fn remove_page(&mut self, handle: u64, page: u64) {
        if let Some(pool) = self.process.pools.pools.get_mut(&handle) {
            pool.space.remove_page(page);
        }
        let Some(mapping) = self.process.memory.unmap(page) else { return };
        if let Some(block) = self.let_go(mapping.backing) {
            // SAFETY: nobody uses the block any more: every part of it was given back (`Driver::free_async`), and the
            // work that those frees were ordered after has run (`PoolSpace::idle`).
            unsafe { block.free() };
        }
    }
}
