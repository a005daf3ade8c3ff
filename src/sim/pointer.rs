//! The memory that an address lies in.

use super::allocation::AllocationKind;
use super::machine::SimMachine;
use crate::driver::{AddressRange, MemoryKind, PointerInfo};

impl SimMachine {
    /// The allocation or the mapping that an address lies in.
    pub(super) fn memory_around(&self, address: u64) -> Option<(PointerInfo, AddressRange)> {
        let (kind, ordinal, start, bytes) = match self.allocations.containing(address) {
            Some((start, allocation)) => {
                let kind = match allocation.kind {
                    AllocationKind::Managed => MemoryKind::Managed,
                    AllocationKind::Pinned | AllocationKind::Registered => MemoryKind::PinnedHost,
                    AllocationKind::Pooled(pool) if self.pools.is_managed(pool) => MemoryKind::Managed,
                    AllocationKind::Device
                    | AllocationKind::Pooled(_)
                    | AllocationKind::Graph(_)
                    | AllocationKind::Mapped => MemoryKind::Device,
                };
                (kind, allocation.ordinal, start, allocation.bytes)
            }
            None => {
                let (start, mapping) = self.memory.mappings_in(address, 1).next()?;
                let ordinal = self.virtual_memory.ordinal_of(mapping.backing)?;
                (MemoryKind::Device, ordinal, start, mapping.bytes)
            }
        };
        let info = PointerInfo { kind, ordinal: Some(ordinal) };
        Some((info, AddressRange { start, bytes: bytes as usize }))
    }
}
