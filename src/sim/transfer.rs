//! Work that moves bytes: copies, fills, and what managed memory is told of its place.

use super::allocation::AllocationKind;
use super::clock::LaneClock;
use super::hazard::AccessMode;
use super::kernel::Range;
use super::lane::Work;
use super::machine::SimMachine;
use super::memory::DEVICE_START;
use crate::driver::{Advice, Call, Code, DeviceAttribute, FillValue, Location, RawStream};

impl SimMachine {
    /// Queues a copy; both sides must be memory.
    pub(super) fn queue_copy(
        &mut self,
        call: Call,
        ordinal: u32,
        to: u64,
        from: u64,
        bytes: usize,
        stream: RawStream,
    ) -> Result<LaneClock, Code> {
        let stream = self.stream(ordinal, stream)?;
        let target = self.target(&stream)?;
        let bytes = bytes as u64;
        if bytes > 0 {
            let read = Range { address: from, bytes, mode: AccessMode::Read };
            let written = Range { address: to, bytes, mode: AccessMode::Write };
            let from = self.side(call, stream.lane, read)?;
            let to = self.side(call, stream.lane, written)?;
            self.put(target, Work::Copy { to, from, bytes }, call.symbol().into(), &[read, written]);
        }
        Ok(self.lanes.joined(stream.lane))
    }

    /// Queues a fill of `bytes`, which are `count` times the value.
    pub(super) fn queue_fill(
        &mut self,
        ordinal: u32,
        to: u64,
        value: FillValue,
        count: usize,
        bytes: u64,
        stream: RawStream,
    ) -> Result<(), Code> {
        const CALL: Call = Call::FillAsync;
        let stream = self.stream(ordinal, stream)?;
        let target = self.target(&stream)?;
        if !to.is_multiple_of(value.bytes() as u64) || i64::try_from(bytes).is_err() {
            return Err(Code::INVALID_VALUE);
        }
        if count > 0 {
            let written = Range { address: to, bytes, mode: AccessMode::Write };
            let to = self.side(CALL, stream.lane, written)?;
            let work = Work::Fill { to, value, count: count as u64 };
            self.put(target, work, CALL.symbol().into(), &[written]);
        }
        Ok(())
    }

    /// Queues a prefetch, which moves no bytes here: it is an access, and as wrong where the memory is gone.
    pub(super) fn queue_prefetch(
        &mut self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        to: Location,
        stream: RawStream,
    ) -> Result<(), Code> {
        const CALL: Call = Call::PrefetchAsync;
        let stream = self.stream(ordinal, stream)?;
        self.check_migratable(CALL, ordinal, address, bytes)?;
        self.check_location(to)?;
        let ranges = [Range { address, bytes: bytes as u64, mode: AccessMode::Touch }];
        let target = self.target(&stream)?;
        self.put(target, Work::Nothing, CALL.symbol().into(), &ranges);
        Ok(())
    }

    /// Takes advice, which changes nothing here.
    pub(super) fn take_advice(
        &self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        advice: Advice,
    ) -> Result<(), Code> {
        self.check_migratable(Call::Advise, ordinal, address, bytes)?;
        match advice {
            Advice::PreferredLocation(Some(location)) | Advice::AccessedBy(location, _) => {
                self.check_location(location)
            }
            Advice::ReadMostly(_) | Advice::PreferredLocation(None) => Ok(()),
        }
    }

    /// Managed memory, or ordinary memory on a device that can reach it. CUDA documents that a prefetch takes memory of a managed
    /// pool as well, and does not document that for advice.
    fn check_migratable(&self, call: Call, ordinal: u32, address: u64, bytes: usize) -> Result<(), Code> {
        let is_managed = self.process.allocations.containing(address).is_some_and(|(start, allocation)| {
            let kind = match allocation.kind {
                AllocationKind::Managed => true,
                AllocationKind::Pooled(pool) => {
                    call == Call::PrefetchAsync && self.process.pools.is_managed(pool)
                }
                _ => false,
            };
            kind && address.saturating_add(bytes as u64) <= start + allocation.bytes
        });
        let is_pageable = address < DEVICE_START
            && !self.process.memory.is_mapped(address)
            && self.has(ordinal, DeviceAttribute::PageableMemoryAccess).is_ok();
        if is_managed || is_pageable { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    fn check_location(&self, location: Location) -> Result<(), Code> {
        match location {
            Location::Device(ordinal) => {
                self.device(ordinal)?;
                self.has(ordinal, DeviceAttribute::ConcurrentManagedAccess).map_err(|_| Code::INVALID_DEVICE)
            }
            Location::Host | Location::HostNuma(_) => Ok(()),
        }
    }
}
