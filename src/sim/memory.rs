//! `AddressSpace`: the bytes behind each address, and the allowed accesses.

use std::collections::{BTreeMap, HashMap};

use smallvec::SmallVec;

use super::device_bytes::{DeviceBytes, mix};
use super::host_bytes::HostBytes;
use crate::driver::MapAccess;

/// Addresses of devices start here. No process has memory there: user space ends at 2^47, or at 2^56 for mappings at a requested
/// address. So a host that dereferences a device address by mistake faults.
pub(super) const DEVICE_START: u64 = 1 << 48;

/// Addresses of devices end here, as they do on hardware with 49 bits of them.
pub(super) const DEVICE_END: u64 = 1 << 49;

/// The unmapped bytes before the next range, so that an access past the end faults.
const GUARD: u64 = 4096;

/// The number of a backing: bytes without an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BackingId(u64);

/// The bytes of a backing.
#[derive(Debug)]
pub(super) enum Backing {
    Device(DeviceBytes),
    Host(HostBytes),
}

/// The accessors that may use a mapping.
#[derive(Debug)]
pub(super) enum Rights {
    /// Kernels of one device; copies of any.
    Device(u32),
    /// All: memory of the host.
    Everyone,
    /// Those set by `memory_set_access`.
    Virtual(SmallVec<[(u32, MapAccess); 2]>),
}

/// The origin of an access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accessor {
    /// A kernel of a device.
    Kernel(u32),
    /// A copy engine, which reaches every device of the machine.
    CopyEngine,
}

impl Rights {
    pub(super) fn allow(&self, accessor: Accessor, write: bool) -> bool {
        let enough =
            |access: MapAccess| access == MapAccess::ReadWrite || (access == MapAccess::Read && !write);
        match (self, accessor) {
            (Self::Everyone, _) | (Self::Device(_), Accessor::CopyEngine) => true,
            (Self::Device(owner), Accessor::Kernel(ordinal)) => *owner == ordinal,
            (Self::Virtual(access), Accessor::Kernel(ordinal)) => {
                access.iter().any(|&(who, access)| who == ordinal && enough(access))
            }
            (Self::Virtual(access), Accessor::CopyEngine) => access.iter().any(|&(_, access)| enough(access)),
        }
    }
}

/// A range of addresses with a backing.
#[derive(Debug)]
pub(super) struct SimMapping {
    pub(super) bytes: u64,
    pub(super) backing: BackingId,
    pub(super) rights: Rights,
}

/// A part of an access that lies in one backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) backing: BackingId,
    pub(super) offset: u64,
}

/// The reason why an access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessRefusal {
    /// Nothing is mapped at this address.
    Unmapped(u64),
    /// The mapping at this address does not allow the accessor.
    Forbidden(u64),
}

/// All addresses of the machine.
#[derive(Debug)]
pub(super) struct AddressSpace {
    seed: u64,
    mappings: BTreeMap<u64, SimMapping>,
    backings: HashMap<BackingId, Backing>,
    next_backing: u64,
    next_address: u64,
    /// Freed addresses, by size and alignment, last in first out: an address is reused as early as possible, which exposes uses
    /// after a free.
    recycled: HashMap<(u64, u64), Vec<u64>>,
}

impl AddressSpace {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            mappings: BTreeMap::new(),
            backings: HashMap::new(),
            next_backing: 0,
            next_address: DEVICE_START + (2 << 20),
            recycled: HashMap::new(),
        }
    }

    /// Addresses for `bytes` bytes, or `None` if there are no more. `align` is a power of two.
    pub(super) fn take_addresses(&mut self, bytes: u64, align: u64) -> Option<u64> {
        if let Some(address) = self.recycled.get_mut(&(bytes, align)).and_then(Vec::pop) {
            return Some(address);
        }
        let start = self.next_address.checked_next_multiple_of(align)?;
        let end = start.checked_add(bytes)?.checked_add(GUARD)?;
        if end > DEVICE_END {
            return None;
        }
        self.next_address = end;
        Some(start)
    }

    pub(super) fn free_addresses(&mut self, address: u64, bytes: u64, align: u64) {
        self.recycled.entry((bytes, align)).or_default().push(address);
    }

    pub(super) fn add_device_backing(&mut self) -> BackingId {
        let id = self.next_backing;
        self.add(Backing::Device(DeviceBytes::new(mix(self.seed ^ mix(id)))))
    }

    pub(super) fn add_host_backing(&mut self, bytes: HostBytes) -> BackingId {
        self.add(Backing::Host(bytes))
    }

    fn add(&mut self, backing: Backing) -> BackingId {
        let id = BackingId(self.next_backing);
        self.next_backing += 1;
        self.backings.insert(id, backing);
        id
    }

    pub(super) fn remove_backing(&mut self, id: BackingId) -> Option<Backing> {
        self.backings.remove(&id)
    }

    pub(super) fn map(&mut self, address: u64, mapping: SimMapping) {
        self.mappings.insert(address, mapping);
    }

    pub(super) fn unmap(&mut self, address: u64) -> Option<SimMapping> {
        self.mappings.remove(&address)
    }

    /// The mappings that touch the range, in order.
    pub(super) fn mappings_in(&self, address: u64, bytes: u64) -> impl Iterator<Item = (u64, &SimMapping)> {
        let end = address.saturating_add(bytes);
        let first = self.mappings.range(..=address).next_back().map_or(address, |(&start, _)| start);
        self.mappings
            .range(first..end)
            .map(|(&start, mapping)| (start, mapping))
            .filter(move |&(start, mapping)| start + mapping.bytes > address)
    }

    pub(super) fn mapping_mut(&mut self, address: u64) -> Option<&mut SimMapping> {
        self.mappings.get_mut(&address)
    }

    /// Returns `true` if `address` itself is mapped.
    pub(super) fn is_mapped(&self, address: u64) -> bool {
        self.mappings_in(address, 1).next().is_some()
    }

    /// Returns `true` if `memory_map` made the mapping at `address`.
    pub(super) fn is_virtual(&self, address: u64) -> bool {
        let mapping = self.mappings_in(address, 1).next();
        mapping.is_some_and(|(_, mapping)| matches!(mapping.rights, Rights::Virtual(_)))
    }

    /// The backings behind the mapped parts of a range, for any accessor.
    pub(super) fn mapped_pieces(&self, address: u64, bytes: u64) -> SmallVec<[Piece; 2]> {
        let end = address.saturating_add(bytes);
        let pieces = self.mappings_in(address, bytes).map(|(start, mapping)| {
            let from = start.max(address);
            let until = end.min(start + mapping.bytes);
            Piece { address: from, bytes: until - from, backing: mapping.backing, offset: from - start }
        });
        pieces.collect()
    }

    /// The backings behind a range.
    pub(super) fn pieces(
        &self,
        address: u64,
        bytes: u64,
        accessor: Accessor,
        write: bool,
    ) -> Result<SmallVec<[Piece; 2]>, AccessRefusal> {
        let end = address.checked_add(bytes).ok_or(AccessRefusal::Unmapped(address))?;
        let mut pieces = SmallVec::new();
        let mut at = address;
        for (start, mapping) in self.mappings_in(address, bytes) {
            if start > at {
                break;
            }
            if !mapping.rights.allow(accessor, write) {
                return Err(AccessRefusal::Forbidden(at));
            }
            let until = end.min(start + mapping.bytes);
            pieces.push(Piece {
                address: at,
                bytes: until - at,
                backing: mapping.backing,
                offset: at - start,
            });
            at = until;
        }
        if at < end { Err(AccessRefusal::Unmapped(at)) } else { Ok(pieces) }
    }

    pub(super) fn read(
        &self,
        address: u64,
        into: &mut [u8],
        accessor: Accessor,
    ) -> Result<(), AccessRefusal> {
        for piece in self.pieces(address, into.len() as u64, accessor, false)? {
            let start = (piece.address - address) as usize;
            let chunk = &mut into[start..start + piece.bytes as usize];
            match self.backings.get(&piece.backing) {
                Some(Backing::Device(bytes)) => bytes.read(piece.offset, chunk),
                Some(Backing::Host(bytes)) => bytes.read(piece.offset, chunk),
                None => return Err(AccessRefusal::Unmapped(piece.address)),
            }
        }
        Ok(())
    }

    pub(super) fn write(
        &mut self,
        address: u64,
        from: &[u8],
        accessor: Accessor,
    ) -> Result<(), AccessRefusal> {
        for piece in self.pieces(address, from.len() as u64, accessor, true)? {
            let start = (piece.address - address) as usize;
            let chunk = &from[start..start + piece.bytes as usize];
            match self.backings.get_mut(&piece.backing) {
                Some(Backing::Device(bytes)) => bytes.write(piece.offset, chunk),
                Some(Backing::Host(bytes)) => bytes.write(piece.offset, chunk),
                None => return Err(AccessRefusal::Unmapped(piece.address)),
            }
        }
        Ok(())
    }

    /// Fills a range with junk, where it is memory of a device.
    pub(super) fn scramble(&mut self, address: u64, bytes: u64) {
        for piece in self.pieces(address, bytes, Accessor::CopyEngine, true).unwrap_or_default() {
            if let Some(Backing::Device(content)) = self.backings.get_mut(&piece.backing) {
                content.scramble(piece.offset, piece.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(memory: &mut AddressSpace, bytes: u64, rights: Rights) -> u64 {
        let backing = memory.add_device_backing();
        let address = memory.take_addresses(bytes, 512).unwrap();
        memory.map(address, SimMapping { bytes, backing, rights });
        address
    }

    #[test]
    fn addresses_are_never_the_hosts_and_never_touch() {
        let mut memory = AddressSpace::new(0);
        let first = memory.take_addresses(512, 512).unwrap();
        let second = memory.take_addresses(512, 512).unwrap();
        assert!(first >= DEVICE_START && second >= first + 512 + GUARD && second < DEVICE_END);
        memory.free_addresses(first, 512, 512);
        memory.free_addresses(second, 512, 512);
        assert_eq!(memory.take_addresses(512, 512), Some(second), "the last given back comes first");
        assert_eq!(memory.take_addresses(DEVICE_END, 512), None);
    }

    #[test]
    fn an_access_must_be_mapped_throughout() {
        let mut memory = AddressSpace::new(0);
        let address = mapped(&mut memory, 512, Rights::Device(0));
        let mut byte = [0; 2];
        assert_eq!(memory.read(address + 510, &mut byte, Accessor::Kernel(0)), Ok(()));
        let end = address + 512;
        assert_eq!(
            memory.read(address + 511, &mut byte, Accessor::Kernel(0)),
            Err(AccessRefusal::Unmapped(end))
        );
        assert_eq!(memory.write(address, &byte, Accessor::Kernel(1)), Err(AccessRefusal::Forbidden(address)));
        assert_eq!(memory.write(address, &byte, Accessor::CopyEngine), Ok(()));
        memory.unmap(address);
        assert_eq!(memory.write(address, &byte, Accessor::CopyEngine), Err(AccessRefusal::Unmapped(address)));
    }

    #[test]
    fn an_access_may_span_mappings_that_touch() {
        let mut memory = AddressSpace::new(0);
        let address = memory.take_addresses(1024, 512).unwrap();
        for start in [address, address + 512] {
            let backing = memory.add_device_backing();
            let access = SmallVec::from_slice(&[(0, MapAccess::ReadWrite)]);
            memory.map(start, SimMapping { bytes: 512, backing, rights: Rights::Virtual(access) });
        }
        let data: Vec<u8> = (0..100).collect();
        memory.write(address + 462, &data, Accessor::Kernel(0)).unwrap();
        let mut back = vec![0; 100];
        memory.read(address + 462, &mut back, Accessor::Kernel(0)).unwrap();
        assert_eq!(back, data);
        assert_eq!(memory.pieces(address, 1024, Accessor::Kernel(0), true).unwrap().len(), 2);
    }

    #[test]
    fn rights_of_virtual_memory_are_per_device() {
        let rights = Rights::Virtual(SmallVec::from_slice(&[(0, MapAccess::Read), (1, MapAccess::None)]));
        assert!(rights.allow(Accessor::Kernel(0), false));
        assert!(!rights.allow(Accessor::Kernel(0), true));
        assert!(!rights.allow(Accessor::Kernel(1), false));
        assert!(rights.allow(Accessor::CopyEngine, false));
    }
}
