//! The memory that an address lies in.

use super::allocation::AllocationKind;
use super::machine::SimMachine;
use crate::driver::{AddressRange, DeviceAttribute, MemoryKind, PointerInfo};

impl SimMachine {
    /// The allocation or the mapping that an address lies in.
    pub(super) fn memory_around(&self, address: u64) -> Option<(PointerInfo, AddressRange)> {
        let mapped = self.process.memory.mappings_in(address, 1).next();
        let home = mapped.and_then(|(_, mapping)| self.backings.home(mapping.backing));
        let home = home.map(|(ordinal, _)| ordinal);
        let (kind, ordinal, start, bytes) = match self.process.allocations.containing(address) {
            Some((start, allocation)) => {
                let kind = match allocation.kind {
                    AllocationKind::Managed => MemoryKind::Managed,
                    AllocationKind::Pinned | AllocationKind::Registered => MemoryKind::PinnedHost,
                    AllocationKind::Pooled(pool) if self.process.pools.is_managed(pool) => {
                        MemoryKind::Managed
                    }
                    AllocationKind::Device
                    | AllocationKind::Pooled(_)
                    | AllocationKind::Graph(_)
                    | AllocationKind::Opened
                    | AllocationKind::Mapped
                    | AllocationKind::Carved => MemoryKind::Device,
                };
                // Memory that was opened for one device may be another one's.
                (kind, home.unwrap_or(allocation.ordinal), start, allocation.bytes)
            }
            None => {
                let (start, mapping) = mapped.filter(|_| self.process.memory.is_virtual(address))?;
                (MemoryKind::Device, home?, start, mapping.bytes)
            }
        };
        let info = PointerInfo { kind, ordinal: Some(ordinal) };
        Some((info, AddressRange { start, bytes: bytes as usize }))
    }

    /// Whether network cards may be given the memory at an address: mapped pages, where the device makes such.
    pub(super) fn is_rdma_capable(&self, address: u64) -> Option<bool> {
        let (info, _) = self.memory_around(address)?;
        let is_page = self.process.memory.is_virtual(address) && info.kind == MemoryKind::Device;
        let can = |ordinal| self.config.attribute_of(ordinal, DeviceAttribute::PageRdma) != 0;
        Some(is_page && info.ordinal.is_some_and(can))
    }

    /// The allocation of `allocate_device`, `allocate_managed`, `allocate_pinned` or `register_host` that an address lies in. `None`
    /// where tools are to hear of none.
    pub(super) fn plain_allocation_around(&self, address: u64) -> Option<AddressRange> {
        if !self.config.is_announced {
            return None;
        }
        let (start, allocation) = self.process.allocations.containing(address)?;
        let is_plain = match allocation.kind {
            AllocationKind::Device
            | AllocationKind::Managed
            | AllocationKind::Pinned
            | AllocationKind::Registered => true,
            AllocationKind::Pooled(_)
            | AllocationKind::Graph(_)
            | AllocationKind::Opened
            | AllocationKind::Mapped
            | AllocationKind::Carved => false,
        };
        is_plain.then_some(AddressRange { start, bytes: allocation.bytes as usize })
    }
}
