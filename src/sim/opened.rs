//! Memory of `allocate_device` that other processes have open.

use std::collections::HashMap;

use super::allocation::{Allocation, AllocationKind, UNIT};
use super::backing::BackingId;
use super::hazard::{AccessMode, Hazard, HazardKind};
use super::imported::ImportedBlocks;
use super::machine::SimMachine;
use super::memory::{Rights, SimMapping};
use super::process::{ProcessId, SimProcess};
use super::sealed::SealedKind;
use crate::driver::{Call, Code, MemoryHandle};

/// What a process has of others: whole allocations, and blocks of pools.
#[derive(Debug, Default)]
pub(super) struct OpenedMemory {
    /// Where an allocation is open for a device, and how often.
    allocations: HashMap<(u32, BackingId), (u64, usize)>,
    pub(super) blocks: ImportedBlocks,
}

impl SimMachine {
    pub(super) fn memory_handle(&self, ordinal: u32, address: u64) -> Result<MemoryHandle, Code> {
        let found = self.process.allocations.containing(address).filter(|(_, allocation)| {
            (allocation.kind, allocation.ordinal) == (AllocationKind::Device, ordinal)
        });
        let (start, _) = found.ok_or(Code::INVALID_VALUE)?;
        let (_, mapping) = self.process.memory.mappings_in(start, 1).next().ok_or(Code::INVALID_VALUE)?;
        let numbers = [self.process.id.0.into(), start, mapping.backing.0];
        Ok(MemoryHandle(self.lent.sealed.seal(SealedKind::Memory, numbers)))
    }

    pub(super) fn memory_open(&mut self, ordinal: u32, handle: &MemoryHandle) -> Result<u64, Code> {
        let opened = self.lent.sealed.open(SealedKind::Memory, &handle.0);
        let [process, start, backing] = opened.ok_or(Code::INVALID_VALUE)?;
        let exporter = ProcessId(u32::try_from(process).map_err(|_| Code::INVALID_VALUE)?);
        if exporter == self.process.id {
            return Err(Code::INVALID_CONTEXT);
        }
        let backing = BackingId(backing);
        // The codes of an H200.
        let exporter = self.processes.alive(exporter).ok_or(Code::INVALID_HANDLE)?;
        let bytes = lent_bytes(exporter, start, backing).ok_or(Code::INVALID_VALUE)?;
        let (home, held) = self.backings.home(backing).ok_or(Code::INVALID_VALUE)?;
        self.check_reachable(ordinal, home)?;
        if let Some((address, times)) = self.process.opened.allocations.get_mut(&(ordinal, backing)) {
            *times += 1;
            return Ok(*address);
        }
        let address = self.addresses.take(held, UNIT).ok_or(Code::OUT_OF_MEMORY)?;
        self.backings.hold(backing);
        // As with `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only flag that there is.
        if ordinal != home {
            self.process.memory.reached.insert((ordinal, home));
        }
        let rights = Rights::Device(home);
        self.process.memory.map(address, SimMapping { bytes: held, backing, offset: 0, rights });
        let made = self.by_host(Call::MemoryOpen, address, bytes, AccessMode::Allocate);
        self.process
            .allocations
            .add(address, Allocation { kind: AllocationKind::Opened, ordinal, bytes, made });
        self.process.opened.allocations.insert((ordinal, backing), (address, 1));
        Ok(address)
    }

    pub(super) fn memory_close(&mut self, ordinal: u32, address: u64) -> Result<(), Code> {
        self.check_free(ordinal, address, Call::MemoryClose)?;
        let backing = self.process.memory.mappings_in(address, 1).next().map(|(_, mapping)| mapping.backing);
        let key = (ordinal, backing.ok_or(Code::INVALID_VALUE)?);
        if let Some((_, times)) = self.process.opened.allocations.get_mut(&key) {
            *times -= 1;
            if *times > 0 {
                return Ok(());
            }
        }
        self.process.opened.allocations.remove(&key);
        self.remove_allocation(address, Call::MemoryClose);
        Ok(())
    }

    /// Reports a free of memory that another process has open. The memory stays with that process.
    pub(super) fn check_not_open(&mut self, call: Call, address: u64) {
        let Some((_, mapping)) = self.process.memory.mappings_in(address, 1).next() else { return };
        let others = self.backings.holders(mapping.backing).saturating_sub(1);
        let Some(allocation) = self.process.allocations.get(address).filter(|_| others > 0) else { return };
        let freed = self.by_host(call, address, allocation.bytes, AccessMode::Free);
        let missing = "another process has the memory open, and must close it before".to_owned();
        let first = Some(allocation.made.clone());
        self.report(Hazard { kind: HazardKind::FreeInUse, first, second: Some(freed), missing });
    }
}

/// The bytes of an allocation that its process still has.
fn lent_bytes(exporter: &SimProcess, start: u64, backing: BackingId) -> Option<u64> {
    let allocation = exporter.allocations.get(start).filter(|lent| lent.kind == AllocationKind::Device)?;
    let (_, mapping) = exporter.memory.mappings_in(start, 1).next()?;
    // Another allocation may have the address by now.
    (mapping.backing == backing).then_some(allocation.bytes)
}
