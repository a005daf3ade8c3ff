//! `Allocations`: the live allocations, and those that were freed lately.

use core::ptr::NonNull;
use std::collections::BTreeMap;

use super::hazard::{Access, AccessMode, Hazard, HazardKind, StreamLabel};
use super::host_bytes::HostBytes;
use super::machine::SimMachine;
use super::memory::{DEVICE_START, Rights, SimMapping};
use crate::driver::{Call, Code};

/// `cuMemAlloc` hands out multiples of this, aligned to it.
pub(super) const UNIT: u64 = 512;

/// The number of freed ranges that are kept, to distinguish a double free from an invalid one.
const FREED_KEPT: usize = 4096;

/// The kind of an allocation, which also decides the call that frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AllocationKind {
    Device,
    Managed,
    Pinned,
    Registered,
    /// From the pool with this handle.
    Pooled(u64),
    /// From an allocation in the graph with this number.
    Graph(u64),
    /// Memory of `allocate_device` of another process.
    Opened,
    /// Physical memory behind reserved addresses. Only among freed ranges: live mappings are kept elsewhere.
    Mapped,
    /// A block that a layer has carved. Never among the allocations of the driver, so no call frees it.
    Carved,
}

impl AllocationKind {
    const fn text(self) -> &'static str {
        match self {
            Self::Device => "device memory",
            Self::Managed => "managed memory",
            Self::Pinned => "pinned memory",
            Self::Registered => "registered memory",
            Self::Pooled(_) => "memory of a pool",
            Self::Graph(_) => "memory of a graph",
            Self::Opened => "opened memory",
            Self::Mapped => "mapped memory",
            Self::Carved => "memory of a suballocator",
        }
    }

    pub(super) const fn free_call(self) -> Call {
        match self {
            Self::Device | Self::Managed => Call::FreeDevice,
            Self::Pinned => Call::FreePinned,
            Self::Registered => Call::UnregisterHost,
            Self::Pooled(_) | Self::Graph(_) | Self::Carved => Call::FreeAsync,
            Self::Opened => Call::MemoryClose,
            Self::Mapped => Call::MemoryUnmap,
        }
    }
}

/// A live allocation.
#[derive(Clone, Debug)]
pub(super) struct Allocation {
    pub(super) kind: AllocationKind,
    pub(super) ordinal: u32,
    /// The bytes that were asked for; the padding behind them belongs to no allocation.
    pub(super) bytes: u64,
    /// The allocating access, whose point is the earliest use.
    pub(super) made: Access,
}

/// A freed allocation.
#[derive(Clone, Debug)]
pub(super) struct Freed {
    pub(super) kind: AllocationKind,
    pub(super) bytes: u64,
    pub(super) freed: Access,
}

/// The live allocations, and those that were freed lately.
#[derive(Debug, Default)]
pub(super) struct Allocations {
    live: BTreeMap<u64, Allocation>,
    freed: BTreeMap<u64, Freed>,
}

impl Allocations {
    pub(super) fn add(&mut self, address: u64, allocation: Allocation) {
        self.forget_freed(address, allocation.bytes);
        self.live.insert(address, allocation);
    }

    /// Removes freed allocations in a range that is in use again.
    pub(super) fn forget_freed(&mut self, address: u64, bytes: u64) {
        let end = address + bytes;
        let stale: Vec<u64> = self
            .freed
            .range(..end)
            .rev()
            .take_while(|&(&start, freed)| start >= address || start + freed.bytes > address)
            .map(|(&start, _)| start)
            .collect();
        for start in stale {
            self.freed.remove(&start);
        }
    }

    pub(super) fn remove(&mut self, address: u64, freed: Access) -> Option<Allocation> {
        let allocation = self.live.remove(&address)?;
        self.add_freed(address, Freed { kind: allocation.kind, bytes: allocation.bytes, freed });
        Some(allocation)
    }

    /// Removes an allocation as if it had never been.
    pub(super) fn withdraw(&mut self, address: u64) {
        self.live.remove(&address);
    }

    /// Removes all that begin in a range, live and freed.
    pub(super) fn forget_all(&mut self, address: u64, bytes: u64) {
        let begun: Vec<u64> = self.live.range(address..address + bytes).map(|(&start, _)| start).collect();
        for start in begun {
            self.live.remove(&start);
        }
        self.forget_freed(address, bytes);
    }

    pub(super) fn add_freed(&mut self, address: u64, freed: Freed) {
        if self.freed.len() >= FREED_KEPT {
            self.freed.pop_first();
        }
        self.freed.insert(address, freed);
    }

    pub(super) fn get(&self, address: u64) -> Option<&Allocation> {
        self.live.get(&address)
    }

    /// The allocation that an address is in, and where it starts.
    pub(super) fn containing(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (&start, allocation) = self.live.range(..=address).next_back()?;
        (address < start + allocation.bytes).then_some((start, allocation))
    }

    /// The freed allocation that contained this address.
    pub(super) fn freed_containing(&self, address: u64) -> Option<&Freed> {
        let (&start, freed) = self.freed.range(..=address).next_back()?;
        (address < start + freed.bytes).then_some(freed)
    }

    /// Returns `true` if any byte of the range is allocated.
    pub(super) fn overlaps(&self, address: u64, bytes: u64) -> bool {
        let before = self.live.range(..address.saturating_add(bytes)).next_back();
        before.is_some_and(|(&start, allocation)| start + allocation.bytes > address)
    }

    /// The bytes of the host that are allocated or registered.
    pub(super) fn host_bytes(&self) -> u64 {
        let is_host = |kind| {
            matches!(kind, AllocationKind::Managed | AllocationKind::Pinned | AllocationKind::Registered)
        };
        self.live
            .values()
            .filter(|allocation| is_host(allocation.kind))
            .map(|allocation| allocation.bytes)
            .sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Allocation)> {
        self.live.iter().map(|(&address, allocation)| (address, allocation))
    }
}

impl SimMachine {
    /// A call of the host about a range, as hazards name it.
    pub(super) fn by_host(&self, call: Call, address: u64, bytes: u64, mode: AccessMode) -> Access {
        Access {
            operation: call.symbol().into(),
            process: self.process.id,
            stream: StreamLabel::Host,
            address,
            bytes,
            mode,
            submission: self.submissions,
            point: None,
        }
    }

    pub(super) fn allocate_device(&mut self, ordinal: u32, bytes: usize) -> Result<u64, Code> {
        let asked = bytes as u64;
        let held = asked.checked_next_multiple_of(UNIT).filter(|&held| held > 0).ok_or(match bytes {
            0 => Code::INVALID_VALUE,
            _ => Code::OUT_OF_MEMORY,
        })?;
        self.take_bytes(ordinal, held)?;
        let Some(address) = self.addresses.take(held, UNIT) else {
            self.free_device_bytes(ordinal, held);
            return Err(Code::OUT_OF_MEMORY);
        };
        let backing = self.backings.add_device(ordinal, held);
        let rights = Rights::Device(ordinal);
        self.process.memory.map(address, SimMapping { bytes: held, backing, offset: 0, rights });
        let made = self.by_host(Call::AllocateDevice, address, asked, AccessMode::Allocate);
        self.process
            .allocations
            .add(address, Allocation { kind: AllocationKind::Device, ordinal, bytes: asked, made });
        Ok(address)
    }

    pub(super) fn allocate_host(
        &mut self,
        ordinal: u32,
        bytes: usize,
        kind: AllocationKind,
        call: Call,
    ) -> Result<NonNull<u8>, Code> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let held = self.with_pinned(bytes)?;
        let block = HostBytes::allocate(bytes).ok_or(Code::OUT_OF_MEMORY)?;
        self.pinned_bytes = held;
        Ok(self.add_host(ordinal, block, bytes as u64, kind, call))
    }

    /// The host memory in use after `bytes` more, if the machine permits that.
    fn with_pinned(&self, bytes: usize) -> Result<u64, Code> {
        let held = self.pinned_bytes.saturating_add(bytes as u64);
        if held > self.config.pinned_bytes as u64 { Err(Code::OUT_OF_MEMORY) } else { Ok(held) }
    }

    pub(super) fn register_host(
        &mut self,
        ordinal: u32,
        pointer: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), Code> {
        if bytes == 0 || isize::try_from(bytes).is_err() {
            return Err(Code::INVALID_VALUE);
        }
        if self.process.allocations.overlaps(pointer.as_ptr().addr() as u64, bytes as u64) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        self.pinned_bytes = self.with_pinned(bytes)?;
        let block = HostBytes::registered(pointer, bytes);
        self.add_host(ordinal, block, bytes as u64, AllocationKind::Registered, Call::RegisterHost);
        Ok(())
    }

    fn add_host(
        &mut self,
        ordinal: u32,
        block: HostBytes,
        bytes: u64,
        kind: AllocationKind,
        call: Call,
    ) -> NonNull<u8> {
        let (address, pointer) = (block.address(), block.pointer());
        let backing = self.backings.add_host(block);
        let rights = Rights::Everyone;
        self.process.memory.map(address, SimMapping { bytes, backing, offset: 0, rights });
        let made = self.by_host(call, address, bytes, AccessMode::Allocate);
        self.process.allocations.add(address, Allocation { kind, ordinal, bytes, made });
        pointer
    }

    /// Checks that `call` may free the address. Reports the mistake if it may not.
    pub(super) fn check_free(
        &mut self,
        ordinal: u32,
        address: u64,
        call: Call,
    ) -> Result<AllocationKind, Code> {
        let code = match call {
            Call::UnregisterHost => Code::HOST_MEMORY_NOT_REGISTERED,
            _ => Code::INVALID_VALUE,
        };
        let second = self.by_host(call, address, 0, AccessMode::Free);
        let (kind, first, missing) = match self.process.allocations.get(address) {
            Some(allocation) if allocation.ordinal != ordinal => (
                HazardKind::InvalidFree,
                Some(allocation.made.clone()),
                format!("the memory belongs to gpu {} and was freed on gpu {ordinal}", allocation.ordinal),
            ),
            Some(allocation) if allocation.kind.free_call() == call => return Ok(allocation.kind),
            Some(allocation) => (
                HazardKind::InvalidFree,
                Some(allocation.made.clone()),
                format!("{} goes back by {}", allocation.kind.text(), allocation.kind.free_call().symbol()),
            ),
            None => {
                match (
                    self.process.allocations.freed_containing(address),
                    self.process.allocations.containing(address),
                ) {
                    (_, Some((start, allocation))) => (
                        HazardKind::InvalidFree,
                        Some(allocation.made.clone()),
                        format!("the address is {} bytes inside of an allocation", address - start),
                    ),
                    (Some(freed), None) if freed.freed.address == address => (
                        HazardKind::DoubleFree,
                        Some(freed.freed.clone()),
                        format!("the {} was free already", freed.kind.text()),
                    ),
                    _ => (HazardKind::InvalidFree, None, "nothing was ever allocated there".to_owned()),
                }
            }
        };
        self.report(Hazard { kind, first, second: Some(second), missing });
        Err(code)
    }

    /// Frees memory that has a mapping of its own: any but memory of a pool.
    ///
    /// Returns the block of the host, if it was one, for the caller to free.
    pub(super) fn remove_allocation(&mut self, address: u64, call: Call) -> Option<HostBytes> {
        let bytes = self.process.allocations.get(address)?.bytes;
        self.watch_host_free(call, address, bytes);
        let freed = self.by_host(call, address, bytes, AccessMode::Free);
        let allocation = self.process.allocations.remove(address, freed)?;
        self.process.blocks.forget(address, allocation.bytes);
        let mapping = self.process.memory.unmap(address)?;
        if address < DEVICE_START {
            self.pinned_bytes -= allocation.bytes;
        } else {
            self.addresses.free(address, mapping.bytes, UNIT);
        }
        self.let_go(mapping.backing)
    }
}
