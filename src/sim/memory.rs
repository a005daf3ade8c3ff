//! `AddressSpace`: the memory behind each address of a process, and the allowed accesses.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::backing::BackingId;
use crate::driver::MapAccess;

/// Addresses of devices start here. No process has memory there: user space ends at 2^47, or at 2^56 for mappings at a requested
/// address. So a host that dereferences a device address by mistake faults.
pub(super) const DEVICE_START: u64 = 1 << 48;

/// Addresses of devices end here, as they do on hardware with 49 bits of them.
pub(super) const DEVICE_END: u64 = 1 << 49;

/// The access that some devices have.
pub(super) type AccessList = SmallVec<[(u32, MapAccess); 2]>;

/// The accessors that may use a mapping.
#[derive(Clone, Debug)]
pub(super) enum Rights {
    /// Kernels of one device, and of those that reach it; copies of any.
    Device(u32),
    /// All: memory of the host.
    Everyone,
    /// Memory of a pool: kernels of the devices that it was opened to; copies of any.
    Pool(AccessList),
    /// Those set by `memory_set_access`.
    Virtual(AccessList),
}

/// The origin of an access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accessor {
    /// A kernel of a device.
    Kernel(u32),
    /// A copy engine, which reaches every device of the machine.
    CopyEngine,
}

/// Replaces the access of one device.
pub(super) fn set_access(list: &mut AccessList, accessor: u32, access: MapAccess) {
    list.retain(|entry| entry.0 != accessor);
    list.push((accessor, access));
}

const fn suffices(access: MapAccess, write: bool) -> bool {
    match access {
        MapAccess::None => false,
        MapAccess::Read => !write,
        MapAccess::ReadWrite => true,
    }
}

fn is_listed(list: &AccessList, ordinal: u32, write: bool) -> bool {
    list.iter().any(|&(who, access)| who == ordinal && suffices(access, write))
}

/// A pair of devices: the first reaches memory of the second.
pub(super) type Reached = BTreeSet<(u32, u32)>;

impl Rights {
    pub(super) fn allow(&self, accessor: Accessor, write: bool, reached: &Reached) -> bool {
        match (self, accessor) {
            (Self::Everyone, _) | (Self::Device(_) | Self::Pool(_), Accessor::CopyEngine) => true,
            (Self::Device(owner), Accessor::Kernel(ordinal)) => {
                *owner == ordinal || reached.contains(&(ordinal, *owner))
            }
            (Self::Virtual(list) | Self::Pool(list), Accessor::Kernel(ordinal)) => {
                is_listed(list, ordinal, write)
            }
            (Self::Virtual(list), Accessor::CopyEngine) => {
                list.iter().any(|&(_, access)| suffices(access, write))
            }
        }
    }
}

/// A range of addresses with a backing.
#[derive(Debug)]
pub(super) struct SimMapping {
    pub(super) bytes: u64,
    pub(super) backing: BackingId,
    /// Where in the backing it starts: not at 0 for a block of a pool of another process.
    pub(super) offset: u64,
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

/// What a process has mapped.
#[derive(Debug, Default)]
pub(super) struct AddressSpace {
    mappings: BTreeMap<u64, SimMapping>,
    /// The devices that the process lets reach others.
    pub(super) reached: Reached,
}

impl AddressSpace {
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

    /// Sets the access of a device to what is mapped in a range, where access is by a list.
    pub(super) fn set_access(&mut self, address: u64, bytes: u64, accessor: u32, access: MapAccess) {
        let starts: SmallVec<[u64; 2]> = self.mappings_in(address, bytes).map(|(start, _)| start).collect();
        for start in starts {
            if let Some(Rights::Pool(list) | Rights::Virtual(list)) =
                self.mappings.get_mut(&start).map(|mapping| &mut mapping.rights)
            {
                set_access(list, accessor, access);
            }
        }
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
            Piece {
                address: from,
                bytes: until - from,
                backing: mapping.backing,
                offset: mapping.offset + from - start,
            }
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
            if !mapping.rights.allow(accessor, write, &self.reached) {
                return Err(AccessRefusal::Forbidden(at));
            }
            let until = end.min(start + mapping.bytes);
            pieces.push(Piece {
                address: at,
                bytes: until - at,
                backing: mapping.backing,
                offset: mapping.offset + at - start,
            });
            at = until;
        }
        if at < end { Err(AccessRefusal::Unmapped(at)) } else { Ok(pieces) }
    }

    /// Takes all mappings out, at the end of the process.
    pub(super) fn unmap_all(&mut self) -> impl Iterator<Item = (u64, SimMapping)> + use<> {
        core::mem::take(&mut self.mappings).into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: u64 = DEVICE_START + 4096;

    fn map(memory: &mut AddressSpace, address: u64, backing: u64, offset: u64, rights: Rights) {
        memory.map(address, SimMapping { bytes: 512, backing: BackingId(backing), offset, rights });
    }

    #[test]
    fn an_access_must_be_mapped_throughout() {
        let mut memory = AddressSpace::default();
        map(&mut memory, ADDRESS, 0, 0, Rights::Device(0));
        let pieces = |memory: &AddressSpace, at, accessor| memory.pieces(at, 2, accessor, true).map(|_| ());
        assert_eq!(pieces(&memory, ADDRESS + 510, Accessor::Kernel(0)), Ok(()));
        let end = ADDRESS + 512;
        assert_eq!(pieces(&memory, ADDRESS + 511, Accessor::Kernel(0)), Err(AccessRefusal::Unmapped(end)));
        assert_eq!(pieces(&memory, ADDRESS, Accessor::Kernel(1)), Err(AccessRefusal::Forbidden(ADDRESS)));
        assert_eq!(pieces(&memory, ADDRESS, Accessor::CopyEngine), Ok(()));
        memory.reached.insert((1, 0));
        assert_eq!(pieces(&memory, ADDRESS, Accessor::Kernel(1)), Ok(()));
        memory.unmap(ADDRESS);
        assert_eq!(pieces(&memory, ADDRESS, Accessor::CopyEngine), Err(AccessRefusal::Unmapped(ADDRESS)));
    }

    #[test]
    fn an_access_may_span_mappings_that_touch() {
        let mut memory = AddressSpace::default();
        for (backing, offset) in [(0, 0), (1, 100)] {
            let access = AccessList::from_slice(&[(0, MapAccess::ReadWrite)]);
            map(&mut memory, ADDRESS + backing * 512, backing, offset, Rights::Virtual(access));
        }
        let pieces = memory.pieces(ADDRESS + 462, 100, Accessor::Kernel(0), true).unwrap();
        let places: Vec<_> =
            pieces.iter().map(|piece| (piece.backing.0, piece.offset, piece.bytes)).collect();
        assert_eq!(places, [(0, 462, 50), (1, 100, 50)]);
        assert_eq!(memory.mapped_pieces(ADDRESS + 462, 100), pieces);
    }

    #[test]
    fn rights_are_per_device() {
        let list = AccessList::from_slice(&[(0, MapAccess::Read), (1, MapAccess::None)]);
        let reached = Reached::from([(1, 0)]);
        for (rights, copies_may_write) in [(Rights::Virtual(list.clone()), false), (Rights::Pool(list), true)]
        {
            assert!(rights.allow(Accessor::Kernel(0), false, &reached));
            assert!(!rights.allow(Accessor::Kernel(0), true, &reached));
            assert!(!rights.allow(Accessor::Kernel(1), false, &reached), "only the list counts");
            assert!(rights.allow(Accessor::CopyEngine, false, &reached));
            assert_eq!(rights.allow(Accessor::CopyEngine, true, &reached), copies_may_write);
        }
    }
}
