//! Memory for other processes and other devices, as the vendors' libraries lend it.

#![expect(unsafe_code, reason = "calls the vendors' libraries")]

use super::abi::{self, Portable};
use super::calls::{create_event, handle};
use super::exported::{Descriptors, as_handle, exported};
use super::{Interface, LibraryDriver, aligned, answered_in, pages, pools};
use crate::driver::{
    Call, Code, DriverError, DriverResult, EventHandle, ExportedMemory, HandleType, MapAccess, MemoryHandle,
    PointerHandle, RawEvent, RawMemory, RawPool, Sharing,
};

// SAFETY: the promises of the contract are the libraries' own. The methods below add the rest: a device never reaches itself, it has a
// number of its own, a handle of memory is of all of it, and imported memory is of a device that this one reaches and aligned. What a
// library would believe of foreign bytes is checked, or the function is not called.
unsafe impl<L: Interface> Sharing for LibraryDriver<L> {
    /// HIP makes the number of what the device says of itself, and some devices say nothing: they have one number then, and are refused
    /// where there are several.
    fn device_uuid(&self, ordinal: u32) -> DriverResult<[u8; 16]> {
        let uuid = uuid_of(&self.0, ordinal)?;
        if L::UUIDS_DIFFER {
            return Ok(uuid);
        }
        for other in (0..self.0.device_count()).filter(|other| *other != ordinal) {
            if uuid_of(&self.0, other)? == uuid {
                return Err(DriverError::new(Call::DeviceUuid, Code::NOT_SUPPORTED));
            }
        }
        Ok(uuid)
    }

    unsafe fn memory_handle(&self, ordinal: u32, address: u64) -> DriverResult<MemoryHandle> {
        let address = self.0.lent_address(address)?;
        let get = self.0.functions().memory_get_portable;
        let portable: Portable = self.0.read_with(ordinal, Call::MemoryHandle, get, |get, portable| {
            // SAFETY: `portable` is writable; the memory is live, as the caller promises.
            unsafe { get(portable, address) }
        })?;
        Ok(MemoryHandle(portable.0))
    }

    unsafe fn memory_open(&self, ordinal: u32, portable: MemoryHandle) -> DriverResult<u64> {
        const CALL: Call = Call::MemoryOpen;
        let functions = self.0.functions();
        // Memory that cannot be closed again is not opened.
        let open = functions.memory_open.filter(|_| functions.memory_close.is_some());
        let address = self.0.read_with(ordinal, CALL, open, |open, address| {
            // SAFETY: `address` is writable; the memory behind the handle is not freed while it is open, as the caller promises.
            unsafe { open(address, Portable(portable.0), abi::IPC_LAZY_PEER_ACCESS) }
        })?;
        // SAFETY: the memory was just opened for this device, and nobody uses it.
        aligned::<L>(CALL, address, || unsafe { self.memory_close(ordinal, address) })
    }

    unsafe fn memory_close(&self, ordinal: u32, address: u64) -> DriverResult<()> {
        self.0.call_with(ordinal, Call::MemoryClose, self.0.functions().memory_close, |close| {
            // SAFETY: the memory was opened for this device, and what is closed for the last time is not used: as the caller promises.
            unsafe { close(address) }
        })
    }

    fn event_create_shared(&self, ordinal: u32) -> DriverResult<RawEvent> {
        if !self.0.lends_events() {
            self.0.number_of(ordinal, Call::EventCreate)?;
            return Err(DriverError::new(Call::EventCreate, Code::NOT_SUPPORTED));
        }
        create_event(&self.0, ordinal, abi::EVENT_DISABLE_TIMING | abi::EVENT_INTERPROCESS)
    }

    unsafe fn event_handle(&self, ordinal: u32, event: RawEvent) -> DriverResult<EventHandle> {
        let get = self.0.functions().event_get_portable;
        let portable: Portable = self.0.read_with(ordinal, Call::EventHandle, get, |get, portable| {
            // SAFETY: `portable` is writable; the event is live, as the caller promises.
            unsafe { get(portable, handle(event)) }
        })?;
        Ok(EventHandle(portable.0))
    }

    unsafe fn event_open(&self, ordinal: u32, portable: EventHandle) -> DriverResult<RawEvent> {
        const CALL: Call = Call::EventOpen;
        // HIP reads a name up to its zero, and makes the file of that name where there is none.
        let begins = self.0.event_handles_begin();
        if begins.is_some_and(|begins| !portable.0.starts_with(begins.as_bytes()) || !portable.0.contains(&0))
        {
            self.0.number_of(ordinal, CALL)?;
            return Err(DriverError::new(CALL, Code::MAP_FAILED));
        }
        let open = self.0.functions().event_open;
        let event: usize = self.0.read_with(ordinal, CALL, open, |open, event| {
            // SAFETY: `event` is writable.
            unsafe { open(event, Portable(portable.0)) }
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
            self.0.on_device(ordinal, Call::PoolExport, || {
                // SAFETY: the pool is live, as the caller promises; `to` is writable and as long as a handle of that type is.
                unsafe { self.0.export_pool(to, pools::handle(pool), handle_type) }
            })
        })
    }

    fn pool_import(&self, ordinal: u32, exported: &ExportedMemory) -> DriverResult<RawPool> {
        let pool: usize = self.0.read_on_device(ordinal, Call::PoolImport, |pool| {
            as_handle(exported, Descriptors::ByValue, |handle, handle_type| {
                // SAFETY: `pool` is writable; `handle` is what a handle of that type is.
                unsafe { self.0.import_pool(pool, handle, handle_type) }
            })
        })?;
        Ok(RawPool(pool as u64))
    }

    answered_in! { pools:
        unsafe fn pool_export_pointer(ordinal: u32, address: u64) -> PointerHandle;
        unsafe fn pool_import_pointer(ordinal: u32, pool: RawPool, block: PointerHandle) -> u64;
        unsafe fn pool_set_access(ordinal: u32, pool: RawPool, accessor: u32, access: MapAccess) -> ();
    }

    unsafe fn dma_buf(&self, ordinal: u32, address: u64, bytes: usize) -> DriverResult<ExportedMemory> {
        exported(Call::DmaBuf, HandleType::POSIX_FILE_DESCRIPTOR, |to| {
            self.0.call_with(ordinal, Call::DmaBuf, self.0.functions().get_range_handle, |get| {
                // SAFETY: the memory is live, as the caller promises; `to` is writable and as long as a descriptor is; no flag is needed.
                unsafe { get(to, address, bytes, abi::RANGE_AS_DMA_BUF, 0) }
            })
        })
    }

    answered_in! { pages:
        fn memory_import(ordinal: u32, exported: &ExportedMemory) -> RawMemory;
    }

    fn can_reach(&self, ordinal: u32, peer: u32) -> DriverResult<bool> {
        self.0.can_reach(ordinal, peer)
    }

    fn reach(&self, ordinal: u32, peer: u32) -> DriverResult<()> {
        // The libraries have another code for each reason why it cannot be.
        if !self.0.can_reach(ordinal, peer)? {
            return Err(DriverError::new(Call::Reach, Code::PEER_ACCESS_UNSUPPORTED));
        }
        match self.0.let_reach(ordinal, peer) {
            Err(DriverError { code: Code::PEER_ACCESS_ALREADY_ENABLED, .. }) => Ok(()),
            enabled => enabled,
        }
    }
}

fn uuid_of<L: Interface>(library: &L, ordinal: u32) -> DriverResult<[u8; 16]> {
    const CALL: Call = Call::DeviceUuid;
    let number = library.number_for_pages(ordinal, CALL)?;
    let mut uuid = [0; 16];
    let code = match library.functions().device_get_uuid {
        // SAFETY: 16 bytes are writable; the library, or the driver behind it, has a device of that number.
        Some(get) => unsafe { get(&raw mut uuid, number) },
        None => L::MISSING,
    };
    library.check(CALL, code).map(|()| uuid)
}
