//! Memory for other processes and other devices, as libcuda lends it.

#![expect(unsafe_code, reason = "calls libcuda")]

use core::ffi::c_int;

use super::CudaDriver;
use super::abi::{self, Portable};
use super::calls::event;
use super::context::check;
use super::entry::MISSING;
use crate::driver::library::exported::{Descriptors, as_handle, exported};
use crate::driver::library::{answered_in, pages, pools};
use crate::driver::{
    Call, Code, DriverError, DriverResult, EventHandle, ExportedMemory, HandleType, MapAccess, MemoryHandle,
    PointerHandle, RawEvent, RawMemory, RawPool, Sharing,
};

// SAFETY: the promises of the contract are libcuda's own. The methods below add the rest: a device never reaches itself, and imported
// memory is of a device that this one reaches.
unsafe impl Sharing for CudaDriver {
    fn device_uuid(&self, ordinal: u32) -> DriverResult<[u8; 16]> {
        let device = self.device(ordinal, Call::DeviceUuid)?;
        let mut uuid = [0; 16];
        let code = match self.symbols.device_get_uuid {
            // SAFETY: 16 bytes are writable; the device's number came from `cuDeviceGet`.
            Some(get) => unsafe { get(&raw mut uuid, device.number) },
            None => MISSING,
        };
        check(Call::DeviceUuid, code).map(|()| uuid)
    }

    unsafe fn memory_handle(&self, ordinal: u32, address: u64) -> DriverResult<MemoryHandle> {
        let handle: Portable =
            self.read(ordinal, Call::MemoryHandle, |symbols, handle| match symbols.memory_get_portable {
                // SAFETY: `handle` is writable; the memory is live, as the caller promises.
                Some(get) => unsafe { get(handle, address) },
                None => MISSING,
            })?;
        Ok(MemoryHandle(handle.0))
    }

    unsafe fn memory_open(&self, ordinal: u32, handle: MemoryHandle) -> DriverResult<u64> {
        self.read(ordinal, Call::MemoryOpen, |symbols, address| match symbols.memory_open {
            // SAFETY: `address` is writable; the memory behind the handle is not freed while it is open, as the caller promises.
            Some(open) => unsafe { open(address, Portable(handle.0), abi::IPC_LAZY_PEER_ACCESS) },
            None => MISSING,
        })
    }

    unsafe fn memory_close(&self, ordinal: u32, address: u64) -> DriverResult<()> {
        self.call(ordinal, Call::MemoryClose, |symbols| match symbols.memory_close {
            // SAFETY: the memory was opened for this device, and what is closed for the last time is not used: as the caller promises.
            Some(close) => unsafe { close(address) },
            None => MISSING,
        })
    }

    fn event_create_shared(&self, ordinal: u32) -> DriverResult<RawEvent> {
        self.create_event(ordinal, abi::EVENT_DISABLE_TIMING | abi::EVENT_INTERPROCESS)
    }

    unsafe fn event_handle(&self, ordinal: u32, raw: RawEvent) -> DriverResult<EventHandle> {
        let handle: Portable =
            self.read(ordinal, Call::EventHandle, |symbols, handle| match symbols.event_get_portable {
                // SAFETY: `handle` is writable; the event is live, as the caller promises.
                Some(get) => unsafe { get(handle, event(raw)) },
                None => MISSING,
            })?;
        Ok(EventHandle(handle.0))
    }

    unsafe fn event_open(&self, ordinal: u32, handle: EventHandle) -> DriverResult<RawEvent> {
        let event: usize =
            self.read(ordinal, Call::EventOpen, |symbols, event| match symbols.event_open {
                // SAFETY: `event` is writable.
                Some(open) => unsafe { open(event, Portable(handle.0)) },
                None => MISSING,
            })?;
        Ok(RawEvent(event as u64))
    }

    unsafe fn pool_export(
        &self,
        ordinal: u32,
        raw: RawPool,
        handle_type: HandleType,
    ) -> DriverResult<ExportedMemory> {
        exported(Call::PoolExport, handle_type, |to| {
            self.call(ordinal, Call::PoolExport, |symbols| match symbols.pool_export {
                // SAFETY: the pool is live, as the caller promises; `to` is writable and as long as a handle of that type is; the
                // flags must be 0.
                Some(export) => unsafe { export(to, pools::handle(raw), handle_type.0, 0) },
                None => MISSING,
            })
        })
    }

    fn pool_import(&self, ordinal: u32, exported: &ExportedMemory) -> DriverResult<RawPool> {
        let pool: usize =
            self.read(ordinal, Call::PoolImport, |symbols, pool| match symbols.pool_import {
                Some(import) => as_handle(exported, Descriptors::ByValue, |handle, handle_type| {
                    // SAFETY: `pool` is writable; `handle` is what a handle of that type is; the flags must be 0.
                    unsafe { import(pool, handle, handle_type.0, 0) }
                }),
                None => MISSING,
            })?;
        Ok(RawPool(pool as u64))
    }

    answered_in! { pools of Sharing }

    answered_in! { pages of Sharing }

    fn can_reach(&self, ordinal: u32, peer: u32) -> DriverResult<bool> {
        let device = self.device(ordinal, Call::CanReach)?.number;
        let peer = self.device(peer, Call::CanReach)?.number;
        if device == peer {
            return Ok(false);
        }
        let mut answer: c_int = 0;
        let code = match self.symbols.device_can_access_peer {
            // SAFETY: `answer` is writable; both numbers came from `cuDeviceGet`.
            Some(can_access) => unsafe { can_access(&raw mut answer, device, peer) },
            None => MISSING,
        };
        check(Call::CanReach, code).map(|()| answer != 0)
    }

    fn reach(&self, ordinal: u32, peer: u32) -> DriverResult<()> {
        // libcuda has another code for each reason why it cannot be.
        if !self.can_reach(ordinal, peer)? {
            return Err(DriverError::new(Call::Reach, Code::PEER_ACCESS_UNSUPPORTED));
        }
        let of_peer = self.device(peer, Call::Reach)?.context(&self.symbols)?;
        let enabled = self.call(ordinal, Call::Reach, |symbols| match symbols.context_enable_peer_access {
            // SAFETY: the context was retained and never released; the flags must be 0.
            Some(enable) => unsafe { enable(of_peer.0, 0) },
            None => MISSING,
        });
        match enabled {
            Err(DriverError { code: Code::PEER_ACCESS_ALREADY_ENABLED, .. }) => Ok(()),
            enabled => enabled,
        }
    }
}
