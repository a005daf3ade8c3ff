//! `OpenSegment`: memory of another process that is open here.

#![expect(unsafe_code, reason = "opens, maps and closes memory of other processes")]

use core::mem;
use std::os::fd::{AsFd, OwnedFd};

use super::device_side::sharing_of;
use super::import_turn::ImportTurn;
use super::message::Message;
use super::parcel;
use crate::device::Device;
use crate::driver::{
    Driver, DriverResult, ExportedMemory, Location, MapAccess, RawMemory, RawPool, RelaxedCapture, Sharing,
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
    /// In their order.
    Pages(Vec<OpenPage>),
}

/// A page that is mapped.
#[derive(Debug)]
struct OpenPage {
    bytes: u64,
    /// The handle, if it could not be released.
    memory: Option<RawMemory>,
}

impl OpenSegment {
    /// Opens memory for a device, which is the memory's or reaches it.
    pub(super) fn open(
        device: &Device,
        key: SegmentKey,
        message: &Message,
        descriptor: Option<OwnedFd>,
    ) -> Result<Self, Error> {
        let sharing = sharing_of(device)?;
        let _relaxed = RelaxedCapture::enter(&**device.driver())?;
        let (ordinal, bytes) = (device.ordinal(), message.segment_bytes);
        let by = |descriptor: Option<OwnedFd>| match descriptor {
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
                let pool = sharing.pool_import(ordinal, &by(descriptor)).inspect_err(|_| turn.end())?;
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
                let mut mapping = Mapping::reserve(&**device.driver(), sharing, ordinal, bytes)?;
                mapping.add(&by(descriptor), bytes)?;
                mapping.finish()?
            }
            ExportWay::AdjacentPagesByDescriptor => {
                let parcel = descriptor.as_ref().ok_or_else(no_range)?;
                let mut mapping = Mapping::reserve(&**device.driver(), sharing, ordinal, bytes)?;
                parcel::unpack(parcel.as_fd(), message.contents(), |page, page_bytes| {
                    mapping.add(&ExportedMemory::FileDescriptor(page), page_bytes)
                })?;
                mapping.finish()?
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
            SegmentForm::Pages(pages) => {
                // SAFETY: the range was reserved with so many bytes, and these pages alone were mapped in it, side by side, by `open`. No
                // work that is left uses them: the caller's promise.
                unsafe { unmap(driver, ordinal, self.address, self.bytes, pages) }?;
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

/// Pages of another process that are mapped side by side in one range, one after the other. Undone if it is dropped before its end.
struct Mapping<'d> {
    driver: &'d dyn Driver,
    sharing: &'d dyn Sharing,
    ordinal: u32,
    address: u64,
    bytes: u64,
    pages: Vec<OpenPage>,
    /// The bytes of these pages.
    mapped: u64,
}

impl<'d> Mapping<'d> {
    /// Reserves a range.
    fn reserve(
        driver: &'d dyn Driver,
        sharing: &'d dyn Sharing,
        ordinal: u32,
        bytes: u64,
    ) -> DriverResult<Self> {
        let address =
            driver.virtual_reserve(ordinal, bytes as usize, driver.virtual_granularity(ordinal)?)?;
        Ok(Self { driver, sharing, ordinal, address, bytes, pages: Vec::new(), mapped: 0 })
    }

    /// Maps the next page. Nobody has access yet.
    fn add(&mut self, exported: &ExportedMemory, bytes: u64) -> Result<(), Error> {
        if bytes == 0 || bytes > self.bytes - self.mapped {
            return Err(no_range());
        }
        let memory = self.sharing.memory_import(self.ordinal, exported)?;
        let at = self.address + self.mapped;
        // SAFETY: the memory was imported just now. It has so many bytes, as the exporter says; the driver refuses one of another size, if
        // the descriptor is another one's. The range was reserved here, and nothing is mapped behind the pages before.
        let mapped = unsafe { self.driver.memory_map(self.ordinal, at, bytes as usize, memory) };
        // The mapping keeps it, if there is one. SAFETY: it was imported above, and its handle is used no more, unless this fails.
        let released = unsafe { self.driver.memory_release(self.ordinal, memory) };
        mapped?;
        self.pages.push(OpenPage { bytes, memory: released.is_err().then_some(memory) });
        self.mapped += bytes;
        Ok(())
    }

    /// Gives the device access to all of it, and lets it be.
    fn finish(mut self) -> Result<(u64, SegmentForm), Error> {
        if self.mapped != self.bytes {
            return Err(no_range());
        }
        let (location, access) = (Location::Device(self.ordinal), MapAccess::ReadWrite);
        // SAFETY: it only gives access.
        unsafe {
            self.driver.memory_set_access(self.ordinal, self.address, self.bytes as usize, location, access)
        }?;
        self.bytes = 0;
        Ok((self.address, SegmentForm::Pages(mem::take(&mut self.pages))))
    }
}

impl Drop for Mapping<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: `reserve` reserved so many bytes there, `add` mapped these pages in them, side by side, and the address was not handed
            // out, so that no work uses them. A failure leaks what it is of.
            let _ = unsafe { unmap(self.driver, self.ordinal, self.address, self.bytes, &self.pages) };
        }
    }
}

/// Unmaps pages, and frees their range. What cannot be unmapped stays, with the range.
///
/// # Safety
///
/// The range was reserved with so many bytes. These pages alone are mapped in it, from its beginning, side by side, and no work that is
/// left uses them.
unsafe fn unmap(
    driver: &dyn Driver,
    ordinal: u32,
    address: u64,
    bytes: u64,
    pages: &[OpenPage],
) -> DriverResult<()> {
    let (mut at, mut unmapped) = (address, Ok(()));
    for page in pages {
        // SAFETY: the page is mapped there, whole, and no work that is left uses it: the caller's promise.
        let answer = unsafe { driver.memory_unmap(ordinal, at, page.bytes as usize) };
        if let (Ok(()), Some(memory)) = (&answer, page.memory) {
            // SAFETY: it was imported, and its handle is used no more. A failure leaks it.
            let _ = unsafe { driver.memory_release(ordinal, memory) };
        }
        unmapped = unmapped.and(answer);
        at += page.bytes;
    }
    unmapped?;
    // SAFETY: the range was reserved with so many bytes, and nothing is mapped there any more. A failure leaks addresses.
    let _ = unsafe { driver.virtual_free(ordinal, address, bytes as usize) };
    Ok(())
}

#[cold]
fn no_range() -> Error {
    Error::malformed_file(
        "the pages that came with a message of shared memory are not those that it names".to_owned(),
    )
}
