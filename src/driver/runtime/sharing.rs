//! Memory for other processes and other devices, as the libraries lend it.

#![expect(unsafe_code, reason = "calls a vendor's library")]

use core::ffi::c_int;

use super::RuntimeDriver;
use super::calls::aligned;
use super::enter::{MISSING, RuntimeDevice};
use crate::driver::library::abi::{self, Portable};
use crate::driver::library::exported::{Descriptors, as_handle, exported};
use crate::driver::library::{answered_in, pages, pools};
use crate::driver::{
    Call, Code, Driver, DriverError, DriverResult, EventHandle, ExportedMemory, HandleType, MapAccess,
    MemoryHandle, PointerHandle, RawEvent, RawMemory, RawPool, Sharing,
};

// SAFETY: the promises of the contract are the libraries' own. The methods below add the rest: a device never reaches itself, it has a
// number of its own, a handle of memory is of all of it, and imported memory is of a device that this one reaches and aligned. What a
// library would believe of foreign bytes is checked, or the function is not called.
unsafe impl Sharing for RuntimeDriver {
    /// HIP makes the number of what the device says of itself, and some devices say nothing: they have one number then, and are refused
    /// where there are several.
    fn device_uuid(&self, ordinal: u32) -> DriverResult<[u8; 16]> {
        const CALL: Call = Call::DeviceUuid;
        let uuid = self.uuid_of(self.device(ordinal, CALL)?)?;
        for other in self.devices.iter().filter(|other| other.ordinal() as u32 != ordinal) {
            if self.uuid_of(other)? == uuid {
                return Err(DriverError::new(CALL, Code::NOT_SUPPORTED));
            }
        }
        Ok(uuid)
    }

    unsafe fn memory_handle(&self, ordinal: u32, address: u64) -> DriverResult<MemoryHandle> {
        const CALL: Call = Call::MemoryHandle;
        let address = if self.table().handles_are_whole { address } else { self.start_of(address)? };
        let handle: Portable =
            self.read(ordinal, CALL, |symbols, handle| match symbols.memory_get_portable {
                // SAFETY: `handle` is writable; the memory is live, as the caller promises.
                Some(get) => unsafe { get(handle, address) },
                None => MISSING,
            })?;
        Ok(MemoryHandle(handle.0))
    }

    unsafe fn memory_open(&self, ordinal: u32, handle: MemoryHandle) -> DriverResult<u64> {
        let address = self.read(ordinal, Call::MemoryOpen, |symbols, address| match symbols.memory_open {
            // Memory that cannot be closed again is not opened.
            Some(open) if symbols.memory_close.is_some() => {
                // SAFETY: `address` is writable; the memory behind the handle is not freed while it is open, as the caller promises.
                unsafe { open(address, Portable(handle.0), abi::IPC_LAZY_PEER_ACCESS) }
            }
            _ => MISSING,
        })?;
        // SAFETY: the memory was just opened for this device, and nobody uses it.
        aligned(Call::MemoryOpen, address, || unsafe { self.memory_close(ordinal, address) })
    }

    unsafe fn memory_close(&self, ordinal: u32, address: u64) -> DriverResult<()> {
        self.call(ordinal, Call::MemoryClose, |symbols| match symbols.memory_close {
            // SAFETY: the memory was opened for this device, and what is closed for the last time is not used: as the caller promises.
            Some(close) => unsafe { close(address) },
            None => MISSING,
        })
    }

    fn event_create_shared(&self, ordinal: u32) -> DriverResult<RawEvent> {
        if !self.symbols.lends_events() {
            self.device(ordinal, Call::EventCreate)?;
            return Err(DriverError::new(Call::EventCreate, Code::NOT_SUPPORTED));
        }
        self.create_event(ordinal, abi::EVENT_DISABLE_TIMING | abi::EVENT_INTERPROCESS)
    }

    unsafe fn event_handle(&self, ordinal: u32, raw: RawEvent) -> DriverResult<EventHandle> {
        let handle: Portable =
            self.read(ordinal, Call::EventHandle, |symbols, handle| match symbols.event_get_portable {
                // SAFETY: `handle` is writable; the event is live, as the caller promises.
                Some(get) => unsafe { get(handle, raw.0 as usize) },
                None => MISSING,
            })?;
        Ok(EventHandle(handle.0))
    }

    unsafe fn event_open(&self, ordinal: u32, handle: EventHandle) -> DriverResult<RawEvent> {
        const CALL: Call = Call::EventOpen;
        // HIP reads a name up to its zero, and makes the file of that name where there is none.
        let begins = self.table().event_handles_begin;
        if begins.is_some_and(|begins| !handle.0.starts_with(begins.as_bytes()) || !handle.0.contains(&0)) {
            self.device(ordinal, CALL)?;
            return Err(DriverError::new(CALL, Code::MAP_FAILED));
        }
        let event: usize = self.read(ordinal, CALL, |symbols, event| match symbols.event_open {
            // SAFETY: `event` is writable.
            Some(open) => unsafe { open(event, Portable(handle.0)) },
            None => MISSING,
        })?;
        Ok(RawEvent(event as u64))
    }

    unsafe fn pool_export(
        &self,
        ordinal: u32,
        pool: RawPool,
        handle_type: HandleType,
    ) -> DriverResult<ExportedMemory> {
        exported(Call::PoolExport, handle_type, |to| {
            self.call(ordinal, Call::PoolExport, |symbols| match symbols.pool_export {
                // SAFETY: the pool is live, as the caller promises; `to` is writable and as long as a handle of that type is; the
                // flags must be 0.
                Some(export) => unsafe { export(to, pools::handle(pool), handle_type.0, 0) },
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
        const CALL: Call = Call::CanReach;
        let device = self.device(ordinal, CALL)?.ordinal();
        let peer = self.device(peer, CALL)?.ordinal();
        if device == peer {
            return Ok(false);
        }
        // Without the function to be let in, none is. The question is about no current device, and makes no context.
        let (Some(can_access), Some(_)) =
            (self.symbols.device_can_access_peer, self.symbols.device_enable_peer_access)
        else {
            return Ok(false);
        };
        let mut answer: c_int = 0;
        // SAFETY: `answer` is writable; the library has both devices.
        self.check(CALL, unsafe { can_access(&raw mut answer, device, peer) })?;
        Ok(answer != 0)
    }

    fn reach(&self, ordinal: u32, peer: u32) -> DriverResult<()> {
        const CALL: Call = Call::Reach;
        // The libraries have another code for each reason why it cannot be.
        if !self.can_reach(ordinal, peer)? {
            return Err(DriverError::new(CALL, Code::PEER_ACCESS_UNSUPPORTED));
        }
        let peer = self.device(peer, CALL)?;
        // Where there are contexts, the peer's is there for good then.
        self.context(peer)?;
        let enabled = self.call(ordinal, CALL, |symbols| match symbols.device_enable_peer_access {
            // SAFETY: the library has a device of that ordinal; the flags must be 0.
            Some(enable) => unsafe { enable(peer.ordinal(), 0) },
            None => MISSING,
        });
        match enabled {
            Err(DriverError { code: Code::PEER_ACCESS_ALREADY_ENABLED, .. }) => Ok(()),
            enabled => enabled,
        }
    }
}

impl RuntimeDriver {
    fn uuid_of(&self, device: &RuntimeDevice) -> DriverResult<[u8; 16]> {
        let mut uuid = [0; 16];
        let code = match self.symbols.device_get_uuid {
            // SAFETY: 16 bytes are writable; the library, or the driver behind it, has a device of that number.
            Some(get) => unsafe { get(&raw mut uuid, device.number()) },
            None => MISSING,
        };
        self.check(Call::DeviceUuid, code).map(|()| uuid)
    }

    /// Where the allocation starts that an address lies in.
    fn start_of(&self, address: u64) -> DriverResult<u64> {
        match self.address_range(address) {
            Ok(Some(range)) => Ok(range.start),
            Ok(None) => Err(DriverError::new(Call::MemoryHandle, Code::INVALID_VALUE)),
            // A library that does not say.
            Err(DriverError { code: Code::NOT_FOUND, .. }) => {
                Err(DriverError::new(Call::MemoryHandle, Code::NOT_SUPPORTED))
            }
            Err(error) => Err(DriverError::new(Call::MemoryHandle, error.code)),
        }
    }
}
