//! Virtual memory: addresses without bytes, bytes without addresses, and mappings between them.

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use super::allocation::{AllocationKind, Freed};
use super::backing::BackingId;
use super::hazard::{AccessMode, HazardKind};
use super::lent::LentThing;
use super::machine::SimMachine;
use super::memory::{Rights, SimMapping};
use crate::driver::{Call, Code, ExportedMemory, HandleType, Location, MapAccess, MemoryKind, RawMemory};

/// The unit of reservations and mappings, as on an H200.
pub(super) const GRANULARITY: u64 = 2 << 20;

/// The page of a host.
const HOST_PAGE: u64 = 4096;

/// Reserved addresses.
#[derive(Clone, Copy, Debug)]
struct AddressReservation {
    ordinal: u32,
    bytes: u64,
    align: u64,
}

/// A handle of physical memory, of this process or imported.
#[derive(Clone, Copy, Debug)]
struct PhysicalHandle {
    /// The device that it is used for. The memory may be another one's.
    ordinal: u32,
    bytes: u64,
    backing: BackingId,
    /// What it can be exported as; nothing if it was imported.
    handle_types: HandleType,
}

/// What keeps physical memory in this process.
#[derive(Clone, Copy, Debug)]
struct PhysicalUse {
    /// The first handle, which names it.
    first: u64,
    handles: usize,
    mappings: usize,
}

/// Reservations and physical memory of the machine.
#[derive(Debug, Default)]
pub(super) struct VirtualMemory {
    reservations: BTreeMap<u64, AddressReservation>,
    held: HashMap<u64, PhysicalHandle>,
    used: HashMap<BackingId, PhysicalUse>,
    handles: u64,
    /// Handles of memory that is gone: the last one is the next to be handed out, as CUDA hands out nearly every other one at once.
    spare: Vec<u64>,
}

impl VirtualMemory {
    pub(super) fn reservations(&self) -> impl Iterator<Item = (u64, u64)> {
        self.reservations.iter().map(|(&address, reservation)| (address, reservation.bytes))
    }

    /// Handles of physical memory that were not released, and their bytes.
    pub(super) fn handles(&self) -> impl Iterator<Item = (u64, u64)> {
        self.held.iter().map(|(&handle, held)| (handle, held.bytes))
    }

    pub(super) fn bytes_of(&self, memory: RawMemory) -> u64 {
        self.held.get(&memory.0).map_or(0, |held| held.bytes)
    }

    /// The number of mappings.
    pub(super) fn mappings(&self) -> usize {
        self.used.values().map(|used| used.mappings).sum()
    }

    /// The number of the physical memory behind a mapping.
    pub(super) fn handle_of(&self, backing: BackingId) -> Option<u64> {
        self.used.get(&backing).map(|used| used.first)
    }

    /// Adds a handle. Returns `true` if it is the first one of its memory.
    fn add(&mut self, held: PhysicalHandle) -> (RawMemory, bool) {
        let handle = self.spare.pop().unwrap_or_else(|| {
            self.handles += 1;
            self.handles
        });
        self.held.insert(handle, held);
        let used =
            self.used.entry(held.backing).or_insert(PhysicalUse { first: handle, handles: 0, mappings: 0 });
        used.handles += 1;
        (RawMemory(handle), used.first == handle)
    }

    fn reservation_of(&self, ordinal: u32, address: u64, bytes: u64) -> Option<(u64, AddressReservation)> {
        let (&start, &reservation) = self.reservations.range(..=address).next_back()?;
        let end = address.checked_add(bytes)?;
        (end <= start + reservation.bytes && reservation.ordinal == ordinal).then_some((start, reservation))
    }
}

fn is_whole(value: u64) -> bool {
    value.is_multiple_of(GRANULARITY)
}

impl SimMachine {
    /// The mappings of physical memory: the handle, its address and its bytes.
    pub(super) fn virtual_mappings(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let mapped = self
            .process
            .virtual_memory
            .reservations()
            .flat_map(|(at, bytes)| self.process.memory.mappings_in(at, bytes));
        mapped.filter_map(|(at, mapping)| {
            Some((self.process.virtual_memory.handle_of(mapping.backing)?, at, mapping.bytes))
        })
    }

    pub(super) fn virtual_reserve(&mut self, ordinal: u32, bytes: usize, align: usize) -> Result<u64, Code> {
        let (bytes, align) = (bytes as u64, align as u64);
        if bytes == 0 || !is_whole(bytes) || (align != 0 && !align.is_power_of_two()) {
            return Err(Code::INVALID_VALUE);
        }
        let align = align.max(GRANULARITY);
        let address = self.addresses.take(bytes, align).ok_or(Code::OUT_OF_MEMORY)?;
        self.process
            .virtual_memory
            .reservations
            .insert(address, AddressReservation { ordinal, bytes, align });
        Ok(address)
    }

    pub(super) fn virtual_free(&mut self, ordinal: u32, address: u64, bytes: usize) -> Result<(), Code> {
        let bytes = bytes as u64;
        let Some(&reservation) = self.process.virtual_memory.reservations.get(&address) else {
            let words = format!("no reservation starts at {address:#x}");
            return Err(self.refuse(HazardKind::InvalidFree, words, Code::INVALID_VALUE));
        };
        if reservation.bytes != bytes || reservation.ordinal != ordinal {
            let words =
                format!("the reservation at {address:#x} has {} bytes, not {bytes}", reservation.bytes);
            return Err(self.refuse(HazardKind::InvalidFree, words, Code::INVALID_VALUE));
        }
        if self.process.memory.mappings_in(address, bytes).next().is_some() {
            let words = format!("the reservation at {address:#x} was freed with memory mapped in it");
            return Err(self.refuse(HazardKind::FreeInUse, words, Code::INVALID_VALUE));
        }
        self.process.virtual_memory.reservations.remove(&address);
        self.process.blocks.forget(address, bytes);
        self.addresses.free(address, bytes, reservation.align);
        Ok(())
    }

    pub(super) fn memory_create(
        &mut self,
        ordinal: u32,
        bytes: usize,
        handle_types: HandleType,
    ) -> Result<RawMemory, Code> {
        let bytes = bytes as u64;
        if bytes == 0 || !is_whole(bytes) {
            return Err(Code::INVALID_VALUE);
        }
        self.take_bytes(ordinal, bytes)?;
        let backing = self.backings.add_device(ordinal, bytes);
        let held = PhysicalHandle { ordinal, bytes, backing, handle_types };
        Ok(self.process.virtual_memory.add(held).0)
    }

    /// Exports memory, if it was created to be exported in this way.
    pub(super) fn memory_export(
        &mut self,
        ordinal: u32,
        memory: RawMemory,
        handle_type: HandleType,
    ) -> Result<ExportedMemory, Code> {
        let known = self.process.virtual_memory.held.get(&memory.0).filter(|held| held.ordinal == ordinal);
        let known =
            known.filter(|held| held.handle_types.contains(handle_type)).ok_or(Code::INVALID_VALUE)?;
        self.lend(LentThing::Memory(known.backing), handle_type)
    }

    /// A descriptor of whole pages of the host, within one allocation or one mapping.
    pub(super) fn dma_buf(&mut self, ordinal: u32, address: u64, bytes: u64) -> Result<ExportedMemory, Code> {
        let is_whole = bytes > 0 && address.is_multiple_of(HOST_PAGE) && bytes.is_multiple_of(HOST_PAGE);
        let pieces = self.process.memory.mapped_pieces(address, bytes);
        let (Some((info, range)), [piece], true) = (self.memory_around(address), &pieces[..], is_whole)
        else {
            return Err(Code::INVALID_VALUE);
        };
        let is_within = address + bytes <= range.start + range.bytes as u64;
        if info.kind != MemoryKind::Device || info.ordinal != Some(ordinal) || !is_within {
            return Err(Code::INVALID_VALUE);
        }
        self.lend(LentThing::DmaBuf(piece.backing), HandleType::POSIX_FILE_DESCRIPTOR)
    }

    pub(super) fn memory_import(
        &mut self,
        ordinal: u32,
        exported: &ExportedMemory,
    ) -> Result<RawMemory, Code> {
        let LentThing::Memory(backing) = self.borrowed(exported)? else { return Err(Code::NOT_SUPPORTED) };
        let (home, bytes) = self.backings.home(backing).ok_or(Code::INVALID_VALUE)?;
        self.check_reachable(ordinal, home)?;
        let held = PhysicalHandle { ordinal, bytes, backing, handle_types: HandleType::NONE };
        let (memory, is_first) = self.process.virtual_memory.add(held);
        if is_first {
            self.backings.hold(backing);
        }
        Ok(memory)
    }

    pub(super) fn memory_release(&mut self, ordinal: u32, memory: RawMemory) -> Result<(), Code> {
        let backing = self.physical(ordinal, memory)?.backing;
        self.process.virtual_memory.held.remove(&memory.0);
        let mut is_gone = false;
        self.use_physical(backing, |used| {
            used.handles -= 1;
            is_gone = used.handles + used.mappings == 0;
        });
        if is_gone {
            self.process.virtual_memory.spare.push(memory.0);
        }
        Ok(())
    }

    pub(super) fn memory_map(
        &mut self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        memory: RawMemory,
    ) -> Result<(), Code> {
        let physical = self.physical(ordinal, memory)?;
        let bytes = bytes as u64;
        let fits = bytes == physical.bytes
            && is_whole(address)
            && self.process.virtual_memory.reservation_of(ordinal, address, bytes).is_some()
            && self.process.memory.mappings_in(address, bytes).next().is_none();
        if !fits {
            return Err(Code::INVALID_VALUE);
        }
        self.process.allocations.forget_freed(address, bytes);
        let rights = Rights::Virtual(SmallVec::new());
        self.process.memory.map(address, SimMapping { bytes, backing: physical.backing, offset: 0, rights });
        self.use_physical(physical.backing, |used| used.mappings += 1);
        Ok(())
    }

    pub(super) fn memory_unmap(&mut self, ordinal: u32, address: u64, bytes: usize) -> Result<(), Code> {
        let (starts, _) = self.mappings_inside(ordinal, address, bytes as u64)?;
        self.charge_more_handles(Call::MemoryUnmap, starts.len());
        self.watch_host_free(Call::MemoryUnmap, address, bytes as u64);
        for start in starts {
            let Some(mapping) = self.process.memory.unmap(start) else { continue };
            self.use_physical(mapping.backing, |used| used.mappings -= 1);
            let freed = self.by_host(Call::MemoryUnmap, start, mapping.bytes, AccessMode::Free);
            self.process
                .allocations
                .add_freed(start, Freed { kind: AllocationKind::Mapped, bytes: mapping.bytes, freed });
        }
        Ok(())
    }

    pub(super) fn memory_set_access(
        &mut self,
        ordinal: u32,
        address: u64,
        bytes: usize,
        accessor: Location,
        access: MapAccess,
    ) -> Result<(), Code> {
        let Location::Device(accessor) = accessor else { return Err(Code::INVALID_VALUE) };
        self.device(accessor)?;
        let mapped = self.process.memory.mapped_pieces(address, bytes as u64);
        let homes = mapped.iter().filter_map(|piece| self.backings.home(piece.backing));
        for (home, _) in homes {
            if home != accessor && !self.config.reaches(accessor, home) {
                return Err(Code::INVALID_DEVICE);
            }
        }
        let starts = self.whole_mappings(ordinal, address, bytes as u64)?;
        for start in &starts {
            let home = self.process.memory.mappings_in(*start, 1).next();
            let home = home.and_then(|(_, mapping)| self.backings.home(mapping.backing));
            if let Some((home, _)) = home
                && home != accessor
                && !self.config.reaches(accessor, home)
            {
                return Err(Code::INVALID_DEVICE);
            }
        }
        self.charge_more_handles(Call::MemorySetAccess, starts.len());
        for start in starts {
            self.process.memory.set_access(start, 1, accessor, access);
        }
        Ok(())
    }

    /// The starts of the mappings that the range is made of, if it is made of whole mappings of one reservation.
    fn whole_mappings(&self, ordinal: u32, address: u64, bytes: u64) -> Result<Vec<u64>, Code> {
        let (starts, mapped) = self.mappings_inside(ordinal, address, bytes)?;
        if mapped == bytes { Ok(starts) } else { Err(Code::INVALID_VALUE) }
    }

    /// The starts of the mappings in the range, and their bytes, unless the range cuts one. Gaps are no error: unmapping an
    /// unmapped range succeeds on an H200 with driver 580.
    fn mappings_inside(&self, ordinal: u32, address: u64, bytes: u64) -> Result<(Vec<u64>, u64), Code> {
        if bytes == 0 || self.process.virtual_memory.reservation_of(ordinal, address, bytes).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        let (mut starts, mut mapped) = (Vec::new(), 0);
        for (start, mapping) in self.process.memory.mappings_in(address, bytes) {
            if start < address || start + mapping.bytes > address + bytes {
                return Err(Code::INVALID_VALUE);
            }
            starts.push(start);
            mapped += mapping.bytes;
        }
        Ok((starts, mapped))
    }

    fn physical(&mut self, ordinal: u32, memory: RawMemory) -> Result<PhysicalHandle, Code> {
        match self.process.virtual_memory.held.get(&memory.0) {
            Some(held) if held.ordinal == ordinal => Ok(*held),
            _ => {
                let words = format!("{memory:?} is no physical memory of gpu {ordinal}, or was released");
                Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_VALUE))
            }
        }
    }

    /// Changes what keeps physical memory in this process. Without a handle and a mapping, the process lets go of it.
    fn use_physical(&mut self, backing: BackingId, change: impl FnOnce(&mut PhysicalUse)) {
        let Some(used) = self.process.virtual_memory.used.get_mut(&backing) else { return };
        change(used);
        if used.handles == 0 && used.mappings == 0 {
            self.process.virtual_memory.used.remove(&backing);
            self.let_go(backing);
        }
    }

    /// Handles, mappings and reservations of the process in front are gone, by its end.
    pub(super) fn end_virtual_memory(&mut self) {
        let VirtualMemory { reservations, used, .. } = core::mem::take(&mut self.process.virtual_memory);
        for (address, reservation) in reservations {
            self.addresses.free(address, reservation.bytes, reservation.align);
        }
        for backing in used.into_keys() {
            self.let_go(backing);
        }
    }
}
