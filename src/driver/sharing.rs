//! `Sharing`: the part of a machine that lends memory to other processes and other devices.

#![expect(unsafe_code, reason = "declares what the callers must guarantee")]

use core::fmt::{self, Debug};

use super::driver::lacks;
use super::{
    Call, Code, DriverError, DriverResult, ExportedMemory, HandleType, MapAccess, RawEvent, RawMemory,
    RawPool,
};

macro_rules! portable_handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name(pub [u8; 64]);

        impl Debug for $name {
            /// The first bytes: enough to tell handles apart.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:02x?}..)"), &self.0[..8])
            }
        }
    };
}

portable_handle! {
    /// Memory of [`Driver::allocate_device`](super::Driver::allocate_device) for other processes, as `CUipcMemHandle`.
    MemoryHandle
}
portable_handle! {
    /// An event for other processes, as `CUipcEventHandle`.
    EventHandle
}
portable_handle! {
    /// A block of an exported pool, as `CUmemPoolPtrExportData`.
    PointerHandle
}

/// The calls by which memory of one device is used by other processes and by other devices.
///
/// The contract of [`Driver`](super::Driver) holds for these methods, too. They are all capture-unsafe. A handle that is opened is
/// bytes from elsewhere: where a method is safe to call, any bytes give an error or memory that the caller may use.
///
/// *The exporter* is the process that made a handle, *an importer* one that opens it.
///
/// The codes below are those of driver 580 on an H200. Another driver may have others for the same, and refuses what it does not have with
/// [`Code::NOT_SUPPORTED`].
///
/// # Safety
///
/// As of [`Driver`](super::Driver). Memory that was opened or imported is the exporter's, at an address that overlaps no other
/// memory of this process, and stays mapped until it is closed, whatever becomes of the exporter.
#[expect(
    unused_variables,
    reason = "a body that refuses has no use for its arguments, and their names are for readers"
)]
pub unsafe trait Sharing: Debug + Send + Sync {
    /// The process that memory is opened in. All machines over drivers of one process open it there, whichever library they call, and
    /// the process may have it only once: see [`pool_import_pointer`](Self::pool_import_pointer). 0, unless the process is simulated.
    fn process_number(&self) -> u64 {
        0
    }

    /// The number by which every process knows the device: of a slice of a device, where it is one.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`] if there is no such device.
    fn device_uuid(&self, ordinal: u32) -> DriverResult<[u8; 16]>;

    /// A handle of the whole allocation that `address` lies in.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for memory of a pool, for mapped pages, and for managed memory.
    ///
    /// # Safety
    ///
    /// `address` lies in live memory of `allocate_device` of this device.
    unsafe fn memory_handle(&self, ordinal: u32, address: u64) -> DriverResult<MemoryHandle> {
        lacks(Call::MemoryHandle)
    }

    /// Opens a whole allocation of another process, and returns where it starts here. A handle that this process has open already gives
    /// the same address, to be closed as often; AMD's library may give another one.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_CONTEXT`] for a handle of this process;
    /// [`Code::INVALID_HANDLE`] if the exporter has ended;
    /// [`Code::INVALID_VALUE`] for memory that was freed, for a device that cannot reach it, and for most bytes
    /// that are no handle.
    ///
    /// # Safety
    ///
    /// `memory_handle` made the handle, byte for byte: with one byte changed, it may open other memory of the exporter. The exporter has
    /// not freed the memory, and does not before it is closed here, other than by its end.
    unsafe fn memory_open(&self, ordinal: u32, handle: MemoryHandle) -> DriverResult<u64> {
        lacks(Call::MemoryOpen)
    }

    /// Closes what `memory_open` opened.
    ///
    /// # Safety
    ///
    /// `memory_open` for this device returned `address`, once more than this was called with it; if it is the last time, no work
    /// that is left uses it.
    unsafe fn memory_close(&self, ordinal: u32, address: u64) -> DriverResult<()> {
        lacks(Call::MemoryClose)
    }

    /// Makes an event without timing that other processes can open.
    fn event_create_shared(&self, ordinal: u32) -> DriverResult<RawEvent> {
        lacks(Call::EventCreate)
    }

    /// A handle of an event of `event_create_shared`.
    ///
    /// # Safety
    ///
    /// `event_create_shared` made the event for this device, and it is live.
    unsafe fn event_handle(&self, ordinal: u32, event: RawEvent) -> DriverResult<EventHandle> {
        lacks(Call::EventHandle)
    }

    /// Opens an event of another process. It is used and destroyed as an event of this one, and is one event with the exporter's:
    /// a record by either is a record of both.
    ///
    /// If the process that recorded it is killed before the event has come, it never comes: `event_query` says so for ever, and who waits
    /// for it, stream or thread, waits until this process ends.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_CONTEXT`] for an event of this process;
    /// [`Code::MAP_FAILED`] for bytes that are no handle. An event that is gone opens all the same.
    ///
    /// # Safety
    ///
    /// The exporter does not destroy its event while this one is used, other than by its end.
    unsafe fn event_open(&self, ordinal: u32, handle: EventHandle) -> DriverResult<RawEvent> {
        lacks(Call::EventOpen)
    }

    /// Exports a pool, as one of the handle types that it was made for.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for a type that it was not made for, and for more than one.
    ///
    /// # Safety
    ///
    /// `pool` is live.
    unsafe fn pool_export(
        &self,
        ordinal: u32,
        pool: RawPool,
        handle_type: HandleType,
    ) -> DriverResult<ExportedMemory> {
        lacks(Call::PoolExport)
    }

    /// Imports a pool of another process: blocks of it can be imported, not allocated. To be destroyed as one of this process, once
    /// none of its blocks is out.
    ///
    /// # Errors
    ///
    /// [`Code::UNKNOWN`] for a descriptor of something else;
    /// [`Code::NOT_SUPPORTED`] for pages, and for fabric handles where there is no fabric;
    /// [`Code::INVALID_VALUE`].
    fn pool_import(&self, ordinal: u32, exported: &ExportedMemory) -> DriverResult<RawPool> {
        lacks(Call::PoolImport)
    }

    /// A handle of a block of an exported pool.
    ///
    /// # Safety
    ///
    /// `address` came from `allocate_async` with a pool of this device that exports, and is live.
    unsafe fn pool_export_pointer(&self, ordinal: u32, address: u64) -> DriverResult<PointerHandle> {
        lacks(Call::PoolExportPointer)
    }

    /// Imports a block, to be given back with `free_async` before the exporter frees it. Other devices than the block's own need
    /// [`pool_set_access`](Self::pool_set_access).
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_VALUE`] for most bytes that are no handle, and for a block of another pool, where
    /// the driver notices. It does not notice that a block was freed.
    ///
    /// # Safety
    ///
    /// - `pool` was imported for this device and is live.
    /// - `pool_export_pointer` made the handle, byte for byte: with one byte changed, the driver crashes or gives other memory of the pool.
    /// - The exporter has not freed the block, and does not before it is given back here, other than by its end.
    /// - This process does not have the block: a second import returns the same address, and is not counted.
    unsafe fn pool_import_pointer(
        &self,
        ordinal: u32,
        pool: RawPool,
        handle: PointerHandle,
    ) -> DriverResult<u64> {
        lacks(Call::PoolImportPointer)
    }

    /// Physical memory of another process, to be mapped and released as if it had been created here. It lives until its last
    /// handle and its last mapping in any process are gone.
    ///
    /// # Errors
    ///
    /// [`Code::UNKNOWN`] for a descriptor of something else;
    /// [`Code::NOT_SUPPORTED`] for a pool, and for fabric handles where there is no fabric;
    /// [`Code::INVALID_VALUE`] for a device that cannot reach it;
    /// [`Code::NOT_PERMITTED`].
    fn memory_import(&self, ordinal: u32, exported: &ExportedMemory) -> DriverResult<RawMemory> {
        lacks(Call::MemoryImport)
    }

    /// A descriptor of a dma-buf, through which the kernel's other drivers, such as that of a network card, reach the memory of a range.
    /// It keeps the memory, whatever is unmapped or freed meanwhile.
    ///
    /// # Errors
    ///
    /// [`Code::NOT_SUPPORTED`] where the device has no [`DeviceAttribute::DmaBuf`](super::DeviceAttribute::DmaBuf);
    /// [`Code::INVALID_VALUE`] unless the range is whole pages of the host, within one allocation or one page that is mapped.
    ///
    /// # Safety
    ///
    /// The range is live memory of this device.
    unsafe fn dma_buf(&self, ordinal: u32, address: u64, bytes: usize) -> DriverResult<ExportedMemory> {
        lacks(Call::DmaBuf)
    }

    /// Returns `true` if device `ordinal` can reach memory of device `peer`. A device does not name itself.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`].
    fn can_reach(&self, ordinal: u32, peer: u32) -> DriverResult<bool> {
        Ok(false)
    }

    /// Lets device `ordinal` use all memory of `allocate_device` of device `peer`, also later memory, as long as the process lives.
    /// To ask again changes nothing.
    ///
    /// # Errors
    ///
    /// [`Code::PEER_ACCESS_UNSUPPORTED`].
    fn reach(&self, ordinal: u32, peer: u32) -> DriverResult<()> {
        Err(DriverError::new(Call::Reach, Code::PEER_ACCESS_UNSUPPORTED))
    }

    /// Sets the access that device `accessor` has to all memory of a pool of device `ordinal`, also later memory.
    ///
    /// # Errors
    ///
    /// [`Code::INVALID_DEVICE`] where `accessor` cannot reach it, and for its own device to have no access;
    /// [`Code::NOT_SUPPORTED`] for access to read alone.
    ///
    /// # Safety
    ///
    /// `pool` is live, and no work that is left needs an access that this takes away.
    unsafe fn pool_set_access(
        &self,
        ordinal: u32,
        pool: RawPool,
        accessor: u32,
        access: MapAccess,
    ) -> DriverResult<()> {
        lacks(Call::PoolSetAccess)
    }
}

static_assertions::assert_obj_safe!(Sharing);
