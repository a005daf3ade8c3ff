//! `impl Sharing for SimDriver`.

#![expect(unsafe_code, reason = "implements the driver seam")]

use super::driver::SimDriver;
use super::entry::of;
use crate::driver::{
    Call, Code, DeviceAttribute, DriverError, DriverResult, EventHandle, ExportedMemory, HandleType,
    MapAccess, MemoryHandle, PointerHandle, RawEvent, RawMemory, RawPool, Sharing,
};

// SAFETY: memory that was opened or imported has addresses of `Addresses`, which overlap no other memory, and its process holds the
// backing until it is unmapped, whatever becomes of the exporter. A handle is none unless this machine made it (`Sealed`, and the names
// of descriptors).
unsafe impl Sharing for SimDriver {
    fn process_number(&self) -> u64 {
        u64::from(self.shared.number) << 32 | u64::from(self.process.0)
    }

    fn device_uuid(&self, ordinal: u32) -> DriverResult<[u8; 16]> {
        let call = Call::DeviceUuid;
        let machine = self.enter(call, None, 0)?;
        machine.device(ordinal).map_err(of(call))?;
        Ok(machine.lent.sealed.uuid(ordinal))
    }

    unsafe fn memory_handle(&self, ordinal: u32, address: u64) -> DriverResult<MemoryHandle> {
        let call = Call::MemoryHandle;
        self.enter(call, Some(ordinal), 0)?.memory_handle(ordinal, address).map_err(of(call))
    }

    unsafe fn memory_open(&self, ordinal: u32, handle: MemoryHandle) -> DriverResult<u64> {
        let call = Call::MemoryOpen;
        self.enter(call, Some(ordinal), 0)?.memory_open(ordinal, &handle).map_err(of(call))
    }

    unsafe fn memory_close(&self, ordinal: u32, address: u64) -> DriverResult<()> {
        let call = Call::MemoryClose;
        self.enter(call, Some(ordinal), 0)?.memory_close(ordinal, address).map_err(of(call))
    }

    fn event_create_shared(&self, ordinal: u32) -> DriverResult<RawEvent> {
        let mut machine = self.enter_with(Call::EventCreate, ordinal, 0, DeviceAttribute::SharedEvents)?;
        Ok(machine.create_shared_event(ordinal))
    }

    unsafe fn event_handle(&self, ordinal: u32, event: RawEvent) -> DriverResult<EventHandle> {
        let call = Call::EventHandle;
        self.enter(call, Some(ordinal), 0)?.event_handle(ordinal, event).map_err(of(call))
    }

    unsafe fn event_open(&self, ordinal: u32, handle: EventHandle) -> DriverResult<RawEvent> {
        let call = Call::EventOpen;
        let mut machine = self.enter_with(call, ordinal, 0, DeviceAttribute::SharedEvents)?;
        machine.event_open(ordinal, &handle).map_err(of(call))
    }

    unsafe fn pool_export(
        &self,
        ordinal: u32,
        pool: RawPool,
        handle_type: HandleType,
    ) -> DriverResult<ExportedMemory> {
        let call = Call::PoolExport;
        self.enter(call, Some(ordinal), 0)?.pool_export(ordinal, pool, handle_type).map_err(of(call))
    }

    fn pool_import(&self, ordinal: u32, exported: &ExportedMemory) -> DriverResult<RawPool> {
        let call = Call::PoolImport;
        let mut machine = self.enter_with(call, ordinal, 0, DeviceAttribute::MemoryPools)?;
        machine.pool_import(ordinal, exported).map_err(of(call))
    }

    unsafe fn pool_export_pointer(&self, ordinal: u32, address: u64) -> DriverResult<PointerHandle> {
        let call = Call::PoolExportPointer;
        self.enter(call, Some(ordinal), 0)?.pool_export_pointer(ordinal, address).map_err(of(call))
    }

    unsafe fn pool_import_pointer(
        &self,
        ordinal: u32,
        pool: RawPool,
        handle: PointerHandle,
    ) -> DriverResult<u64> {
        let call = Call::PoolImportPointer;
        self.enter(call, Some(ordinal), 0)?.pool_import_pointer(ordinal, pool, &handle).map_err(of(call))
    }

    fn memory_import(&self, ordinal: u32, exported: &ExportedMemory) -> DriverResult<RawMemory> {
        let call = Call::MemoryImport;
        let mut machine = self.enter_with(call, ordinal, 0, DeviceAttribute::VirtualMemory)?;
        machine.memory_import(ordinal, exported).map_err(of(call))
    }

    unsafe fn dma_buf(&self, ordinal: u32, address: u64, bytes: usize) -> DriverResult<ExportedMemory> {
        let call = Call::DmaBuf;
        let mut machine = self.enter_with(call, ordinal, bytes, DeviceAttribute::DmaBuf)?;
        machine.dma_buf(ordinal, address, bytes as u64).map_err(of(call))
    }

    fn can_reach(&self, ordinal: u32, peer: u32) -> DriverResult<bool> {
        let call = Call::CanReach;
        let machine = self.enter(call, None, 0)?;
        machine.device(ordinal).and(machine.device(peer)).map_err(of(call))?;
        Ok(machine.config.reaches(ordinal, peer))
    }

    fn reach(&self, ordinal: u32, peer: u32) -> DriverResult<()> {
        let call = Call::Reach;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        machine.device(peer).map_err(of(call))?;
        if !machine.config.reaches(ordinal, peer) {
            return Err(DriverError::new(call, Code::PEER_ACCESS_UNSUPPORTED));
        }
        machine.process.memory.reached.insert((ordinal, peer));
        Ok(())
    }

    unsafe fn pool_set_access(
        &self,
        ordinal: u32,
        pool: RawPool,
        accessor: u32,
        access: MapAccess,
    ) -> DriverResult<()> {
        let call = Call::PoolSetAccess;
        let mut machine = self.enter(call, Some(ordinal), 0)?;
        machine.pool_set_access(ordinal, pool, accessor, access).map_err(of(call))
    }
}
