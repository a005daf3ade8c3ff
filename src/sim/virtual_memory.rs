//! Virtual memory: addresses without bytes, bytes without addresses, and mappings between them.

use std::collections::{BTreeMap, HashMap};
#[cfg(unix)]
use std::io::Write;

use smallvec::SmallVec;

use super::allocation::{AllocationKind, Freed};
use super::hazard::{AccessMode, HazardKind};
use super::machine::SimMachine;
use super::memory::{BackingId, Rights, SimMapping};
use crate::driver::{Call, Code, ExportedMemory, HandleType, Location, MapAccess, RawMemory};

/// The unit of reservations and mappings, as on an H200.
pub(super) const GRANULARITY: u64 = 2 << 20;

/// Reserved addresses.
#[derive(Clone, Copy, Debug)]
struct AddressReservation {
    ordinal: u32,
    bytes: u64,
    align: u64,
}

/// Physical memory.
#[derive(Clone, Copy, Debug)]
struct Physical {
    ordinal: u32,
    bytes: u64,
    backing: BackingId,
    handle_types: HandleType,
    mappings: usize,
    released: bool,
}

/// Reservations and physical memory of the machine.
#[derive(Debug, Default)]
pub(super) struct VirtualMemory {
    reservations: BTreeMap<u64, AddressReservation>,
    physical: HashMap<u64, Physical>,
    by_backing: HashMap<BackingId, u64>,
    handles: u64,
}

impl VirtualMemory {
    pub(super) fn reservations(&self) -> impl Iterator<Item = (u64, u64)> {
        self.reservations.iter().map(|(&address, reservation)| (address, reservation.bytes))
    }

    /// Handles of physical memory that were not released, and their bytes.
    pub(super) fn handles(&self) -> impl Iterator<Item = (u64, u64)> {
        let held = self.physical.iter().filter(|(_, physical)| !physical.released);
        held.map(|(&handle, physical)| (handle, physical.bytes))
    }

    pub(super) fn bytes_of(&self, memory: RawMemory) -> u64 {
        self.physical.get(&memory.0).map_or(0, |physical| physical.bytes)
    }

    /// The number of mappings.
    pub(super) fn mappings(&self) -> usize {
        self.physical.values().map(|physical| physical.mappings).sum()
    }

    /// The number of the physical memory behind a mapping.
    pub(super) fn handle_of(&self, backing: BackingId) -> Option<u64> {
        self.by_backing.get(&backing).copied()
    }

    /// The device of the physical memory behind a mapping.
    pub(super) fn ordinal_of(&self, backing: BackingId) -> Option<u32> {
        self.physical.get(&self.handle_of(backing)?).map(|physical| physical.ordinal)
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
        let mapped =
            self.virtual_memory.reservations().flat_map(|(at, bytes)| self.memory.mappings_in(at, bytes));
        mapped.filter_map(|(at, mapping)| {
            Some((self.virtual_memory.handle_of(mapping.backing)?, at, mapping.bytes))
        })
    }

    pub(super) fn virtual_reserve(&mut self, ordinal: u32, bytes: usize, align: usize) -> Result<u64, Code> {
        let (bytes, align) = (bytes as u64, align as u64);
        if bytes == 0 || !is_whole(bytes) || (align != 0 && !align.is_power_of_two()) {
            return Err(Code::INVALID_VALUE);
        }
        let align = align.max(GRANULARITY);
        let address = self.memory.take_addresses(bytes, align).ok_or(Code::OUT_OF_MEMORY)?;
        self.virtual_memory.reservations.insert(address, AddressReservation { ordinal, bytes, align });
        Ok(address)
    }

    pub(super) fn virtual_free(&mut self, ordinal: u32, address: u64, bytes: usize) -> Result<(), Code> {
        let bytes = bytes as u64;
        let Some(&reservation) = self.virtual_memory.reservations.get(&address) else {
            let words = format!("no reservation starts at {address:#x}");
            return Err(self.refuse(HazardKind::InvalidFree, words, Code::INVALID_VALUE));
        };
        if reservation.bytes != bytes || reservation.ordinal != ordinal {
            let words =
                format!("the reservation at {address:#x} has {} bytes, not {bytes}", reservation.bytes);
            return Err(self.refuse(HazardKind::InvalidFree, words, Code::INVALID_VALUE));
        }
        if self.memory.mappings_in(address, bytes).next().is_some() {
            let words = format!("the reservation at {address:#x} was freed with memory mapped in it");
            return Err(self.refuse(HazardKind::FreeInUse, words, Code::INVALID_VALUE));
        }
        self.virtual_memory.reservations.remove(&address);
        self.memory.free_addresses(address, bytes, reservation.align);
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
        let backing = self.memory.add_device_backing();
        self.virtual_memory.handles += 1;
        let handle = self.virtual_memory.handles;
        let physical = Physical { ordinal, bytes, backing, handle_types, mappings: 0, released: false };
        self.virtual_memory.physical.insert(handle, physical);
        self.virtual_memory.by_backing.insert(backing, handle);
        Ok(RawMemory(handle))
    }

    /// Fails unless the memory was created to be exported in this way.
    pub(super) fn check_exportable(
        &self,
        ordinal: u32,
        memory: RawMemory,
        handle_type: HandleType,
    ) -> Result<(), Code> {
        let known = self.virtual_memory.physical.get(&memory.0);
        let known = known.filter(|physical| physical.ordinal == ordinal && !physical.released);
        let may = known.is_some_and(|physical| physical.handle_types.contains(handle_type));
        if may { Ok(()) } else { Err(Code::INVALID_VALUE) }
    }

    pub(super) fn memory_release(&mut self, ordinal: u32, memory: RawMemory) -> Result<(), Code> {
        self.physical(ordinal, memory)?;
        if let Some(physical) = self.virtual_memory.physical.get_mut(&memory.0) {
            physical.released = true;
        }
        self.drop_physical_if_over(memory.0);
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
            && self.virtual_memory.reservation_of(ordinal, address, bytes).is_some()
            && self.memory.mappings_in(address, bytes).next().is_none();
        if !fits {
            return Err(Code::INVALID_VALUE);
        }
        self.allocations.forget_freed(address, bytes);
        let rights = Rights::Virtual(SmallVec::new());
        self.memory.map(address, SimMapping { bytes, backing: physical.backing, rights });
        if let Some(physical) = self.virtual_memory.physical.get_mut(&memory.0) {
            physical.mappings += 1;
        }
        Ok(())
    }

    pub(super) fn memory_unmap(&mut self, ordinal: u32, address: u64, bytes: usize) -> Result<(), Code> {
        let (starts, _) = self.mappings_inside(ordinal, address, bytes as u64)?;
        self.charge_more_handles(Call::MemoryUnmap, starts.len());
        self.watch_host_free(Call::MemoryUnmap, address, bytes as u64);
        for start in starts {
            let Some(mapping) = self.memory.unmap(start) else { continue };
            let Some(&handle) = self.virtual_memory.by_backing.get(&mapping.backing) else { continue };
            if let Some(physical) = self.virtual_memory.physical.get_mut(&handle) {
                physical.mappings -= 1;
            }
            self.drop_physical_if_over(handle);
            let freed = self.by_host(Call::MemoryUnmap, start, mapping.bytes, AccessMode::Free);
            self.allocations
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
        let starts = self.whole_mappings(ordinal, address, bytes as u64)?;
        self.charge_more_handles(Call::MemorySetAccess, starts.len());
        for start in starts {
            if let Some(SimMapping { rights: Rights::Virtual(rights), .. }) = self.memory.mapping_mut(start) {
                rights.retain(|entry| entry.0 != accessor);
                rights.push((accessor, access));
            }
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
        if bytes == 0 || self.virtual_memory.reservation_of(ordinal, address, bytes).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        let (mut starts, mut mapped) = (Vec::new(), 0);
        for (start, mapping) in self.memory.mappings_in(address, bytes) {
            if start < address || start + mapping.bytes > address + bytes {
                return Err(Code::INVALID_VALUE);
            }
            starts.push(start);
            mapped += mapping.bytes;
        }
        Ok((starts, mapped))
    }

    fn physical(&mut self, ordinal: u32, memory: RawMemory) -> Result<Physical, Code> {
        match self.virtual_memory.physical.get(&memory.0) {
            Some(physical) if !physical.released && physical.ordinal == ordinal => Ok(*physical),
            _ => {
                let words = format!("{memory:?} is no physical memory of gpu {ordinal}, or was released");
                Err(self.refuse(HazardKind::StaleHandle, words, Code::INVALID_VALUE))
            }
        }
    }

    /// Physical memory returns to its device when no handle and no mapping holds it.
    fn drop_physical_if_over(&mut self, handle: u64) {
        let Some(physical) = self.virtual_memory.physical.get(&handle).copied() else { return };
        if physical.released && physical.mappings == 0 {
            self.virtual_memory.physical.remove(&handle);
            self.virtual_memory.by_backing.remove(&physical.backing);
            self.memory.remove_backing(physical.backing);
            self.watch.forget(physical.backing);
            self.free_device_bytes(physical.ordinal, physical.bytes);
        }
    }
}

/// CUDA's code for an error of the operating system.
const OPERATING_SYSTEM: Code = Code(304);

/// A handle that contains the number of the memory: no other process can share this machine. The descriptor is one end of a pipe
/// that holds the number.
pub(super) fn exported(memory: RawMemory, handle_type: HandleType) -> Result<ExportedMemory, Code> {
    match handle_type {
        #[cfg(unix)]
        HandleType::POSIX_FILE_DESCRIPTOR => {
            let (reader, mut writer) = std::io::pipe().map_err(|_| OPERATING_SYSTEM)?;
            writer.write_all(&memory.0.to_le_bytes()).map_err(|_| OPERATING_SYSTEM)?;
            Ok(ExportedMemory::FileDescriptor(reader.into()))
        }
        HandleType::FABRIC => {
            let mut handle = Box::new([0; 64]);
            handle[..8].copy_from_slice(&memory.0.to_le_bytes());
            Ok(ExportedMemory::Fabric(handle))
        }
        _ => Err(Code::INVALID_VALUE),
    }
}
