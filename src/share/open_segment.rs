//! `OpenSegment`: memory of another process that is open here.

#![expect(unsafe_code, reason = "opens, maps and closes memory of other processes")]

use std::os::fd::OwnedFd;

use super::device_side::sharing_of;
use super::import_turn::ImportTurn;
use super::message::Message;
use crate::device::Device;
use crate::driver::{
    Driver, DriverError, DriverResult, ExportedMemory, Location, MapAccess, RawMemory, RawPool,
    RelaxedCapture,
};
use crate::error::Error;
use crate::resource::ExportWay;

/// What tells segments apart: the exporter, and where the segment is there. While one of its leases is open, no other segment is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SegmentKey {
    pub(super) exporter: [u8; 16],
    pub(super) segment: u64,
    bytes: u64,
    /// One segment may be shared in two ways.
    way: ExportWay,
}

impl SegmentKey {
    pub(super) fn of(message: &Message) -> Self {
        let Message { exporter, segment, segment_bytes: bytes, way, .. } = *message;
        Self { exporter, segment, bytes, way }
    }
}

/// A segment of another process, at an address of this one. Stays open unless it is [closed](Self::close).
#[derive(Debug)]
pub(super) struct OpenSegment {
    device: Device,
    key: SegmentKey,
    address: u64,
    bytes: u64,
    form: SegmentForm,
}

#[derive(Debug)]
enum SegmentForm {
    Allocation,
    /// A pool of its own for each block: it ends with that.
    Pool(RawPool, ImportTurn),
    /// The handle, if it could not be released.
    Pages(Option<RawMemory>),
}

impl OpenSegment {
    /// Opens memory for a device, which is the memory's or reaches it.
    ///
    /// # Errors
    ///
    /// As the driver says; `Malformed` for a message of nothing; `InUse` for a block of a pool that another machine of the process has.
    pub(super) fn open(
        device: &Device,
        key: SegmentKey,
        message: &Message,
        descriptor: Option<OwnedFd>,
    ) -> Result<Self, Error> {
        let sharing = sharing_of(device)?;
        let _relaxed = RelaxedCapture::enter(&**device.driver())?;
        let (ordinal, bytes) = (device.ordinal(), message.segment_bytes);
        let by = || match descriptor {
            Some(descriptor) if message.needs_descriptor() => ExportedMemory::FileDescriptor(descriptor),
            _ => ExportedMemory::Fabric(Box::new(message.fabric)),
        };
        let (address, form) = match message.way {
            ExportWay::Allocation => {
                // SAFETY: the exporter has the memory, and does not free it before its lease ends, which it does not while this process
                // has its part: the handle is the one that it wrote into the lease's file, with which the message was compared.
                let address = unsafe { sharing.memory_open(ordinal, message.memory()) }?;
                (address, SegmentForm::Allocation)
            }
            ExportWay::PoolByDescriptor | ExportWay::PoolByFabric => {
                let turn = ImportTurn::take(sharing, key)?;
                let pool = sharing.pool_import(ordinal, &by()).inspect_err(|_| turn.end())?;
                // SAFETY: the pool was imported just now. The exporter has the block, and does not free it before its lease ends, as
                // above; nobody else in this process has imported it: `turn`.
                let opened = unsafe { sharing.pool_import_pointer(ordinal, pool, message.pointer()) };
                let address = opened.inspect_err(|_| {
                    // SAFETY: it was imported just now, and none of its blocks is out.
                    let _ = unsafe { device.driver().pool_destroy(ordinal, pool) };
                    turn.end();
                })?;
                (address, SegmentForm::Pool(pool, turn))
            }
            ExportWay::PagesByDescriptor | ExportWay::PagesByFabric => {
                let memory = sharing.memory_import(ordinal, &by())?;
                let mapped = map(&**device.driver(), ordinal, memory, bytes as usize);
                // The mapping keeps it, if there is one. SAFETY: it was imported above, and its handle is used no more, unless this fails.
                let released = unsafe { device.driver().memory_release(ordinal, memory) };
                (mapped?, SegmentForm::Pages(released.is_err().then_some(memory)))
            }
            ExportWay::Nothing => {
                return Err(Error::malformed_file(
                    "a message of shared memory: it has bytes of nothing".to_owned(),
                ));
            }
        };
        Ok(Self { device: device.clone(), key, address, bytes, form })
    }

    pub(super) fn key(&self) -> SegmentKey {
        self.key
    }

    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Whether it must not be opened a second time before it was closed.
    pub(super) fn is_open_once(&self) -> bool {
        matches!(self.form, SegmentForm::Pool(..))
    }

    /// # Safety
    ///
    /// No work that is left uses it, and this is the one call for this value.
    pub(super) unsafe fn close(&self) -> Result<(), Error> {
        let (driver, ordinal) = (&**self.device.driver(), self.device.ordinal());
        let sharing = sharing_of(&self.device)?;
        let _relaxed = RelaxedCapture::attempt(driver);
        match &self.form {
            // SAFETY: it was opened once for each value, which ends here, and no work that is left uses it: the caller's promise.
            SegmentForm::Allocation => unsafe { sharing.memory_close(ordinal, self.address) }?,
            &SegmentForm::Pages(memory) => {
                // SAFETY: it is mapped there, whole, and no work that is left uses it: the caller's promise.
                unsafe { driver.memory_unmap(ordinal, self.address, self.bytes as usize) }?;
                // SAFETY: the range was reserved with so many bytes, and nothing is mapped there any more. A failure leaks addresses.
                let _ = unsafe { driver.virtual_free(ordinal, self.address, self.bytes as usize) };
                if let Some(memory) = memory {
                    // SAFETY: it was imported, and its handle is used no more. A failure leaks it.
                    let _ = unsafe { driver.memory_release(ordinal, memory) };
                }
            }
            SegmentForm::Pool(pool, turn) => {
                let stream = self.device.service_stream()?;
                // SAFETY: it was imported, and no work that is left uses it: the caller's promise. The stream is live, and of the
                // device.
                unsafe { driver.free_async(ordinal, self.address, stream.raw()) }?;
                // The exporter may free it once this is over.
                stream.synchronize()?;
                // SAFETY: it was imported for this one block, whose free has run. A failure leaks an empty pool.
                let _ = unsafe { driver.pool_destroy(ordinal, *pool) };
                turn.end();
            }
        }
        Ok(())
    }
}

/// Maps all of an imported memory, where the device may use it.
fn map(driver: &dyn Driver, ordinal: u32, memory: RawMemory, bytes: usize) -> DriverResult<u64> {
    let address = driver.virtual_reserve(ordinal, bytes, driver.virtual_granularity(ordinal)?)?;
    let mapped = (|| -> Result<(), DriverError> {
        // SAFETY: the range was reserved just now, with so many bytes, which the exporter says the memory has; the driver refuses a
        // memory of another size, if the descriptor is another one's.
        unsafe { driver.memory_map(ordinal, address, bytes, memory) }?;
        let (location, access) = (Location::Device(ordinal), MapAccess::ReadWrite);
        // SAFETY: it only gives access.
        unsafe { driver.memory_set_access(ordinal, address, bytes, location, access) }.inspect_err(|_| {
            // SAFETY: it was mapped just now, and the address was not handed out.
            let _ = unsafe { driver.memory_unmap(ordinal, address, bytes) };
        })
    })();
    if let Err(error) = mapped {
        // SAFETY: it was reserved just now, and nothing is mapped there, unless it could not be undone: then the driver refuses.
        let _ = unsafe { driver.virtual_free(ordinal, address, bytes) };
        return Err(error);
    }
    Ok(address)
}
