//! `Pages`: addresses and physical memory, apart.

use super::{DevicePtr, no_export};
use crate::driver::ExportedMemory;
use crate::error::Error;
use crate::sync::Arc;

/// A piece of physical memory, which has no address until it is mapped.
///
/// It owns nothing: it is a number of the [`Pages`] that created it, like a handle of the driver. The code that creates a page
/// releases it once. A page is mapped whole; its size never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Page {
    number: u64,
    bytes: usize,
}

impl Page {
    /// The page that an implementation of [`Pages`] knows by this number.
    #[must_use]
    pub const fn new(number: u64, bytes: usize) -> Self {
        Self { number, bytes }
    }

    /// The number that its implementation of [`Pages`] knows it by.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }

    /// Its size.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.bytes
    }
}

/// Addresses and physical memory, apart: with these a suballocator grows in place and moves free memory.
///
/// A resource that has them returns them from [`Resource::pages`](super::Resource::pages). Addresses are reserved in ranges, which
/// cost nothing but addresses. Memory is created in pages, which get an address when they are mapped into a range.
///
/// No call waits for work of the device, and none is ordered by streams: memory that is mapped may be used by every stream at
/// once, and the caller of [`unmap`](Self::unmap) knows that no work uses it any more.
///
/// # Examples
///
/// ```
/// use alluvion::{Resource, Sim, source::Mapped};
///
/// let sim = Sim::new();
/// let source = Mapped::new(&sim.device(0))?;
/// let pages = source.pages().expect("a source of pages has them");
/// let unit = pages.page_bytes();
/// let range = pages.reserve(4 * unit)?;
/// let page = pages.create(2 * unit)?;
/// // SAFETY: the range is unused and the page has no address.
/// unsafe { pages.map(page, range) }?;
/// // SAFETY: no work uses the page, which then has no address; nothing is mapped in the range after that.
/// unsafe {
///     pages.unmap(page, range)?;
///     pages.release(page);
///     pages.unreserve(range, 4 * unit);
/// }
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// # Safety
///
/// A range that is reserved overlaps no other memory or range. Memory that is mapped is accessible at its address to all work of
/// the device until it is unmapped, and the memory of two pages does not overlap. No method unwinds.
pub unsafe trait Pages {
    /// The unit of ranges and pages in bytes, and their alignment: a power of two, 2 MiB on the GPUs of today.
    fn page_bytes(&self) -> usize;

    /// Returns `true` if a page may have several addresses at once, and keeps these promises: what work has written through one of them
    /// is seen through each by work that begins after it is over, and one can be unmapped while work uses another. A suballocator
    /// then leaves a page that it moves mapped where it was, so that the page can come back without a call. Default: `false`.
    fn may_alias(&self) -> bool {
        false
    }

    /// Reserves a range of addresses without memory, aligned to the unit. `bytes` is a multiple of the unit, and not 0.
    ///
    /// # Errors
    ///
    /// As the driver says. Nothing is lost then.
    fn reserve(&self, bytes: usize) -> Result<DevicePtr, Error>;

    /// Gives a range back. Cannot fail: addresses that cannot be given back, or are [lost](Self::is_lost), are leaked.
    ///
    /// # Safety
    ///
    /// [`reserve`](Self::reserve) of this resource returned the range for so many bytes, no page has an address in it, and it is
    /// not used again.
    unsafe fn unreserve(&self, range: DevicePtr, bytes: usize);

    /// Creates physical memory. `bytes` is a multiple of the unit, and not 0.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`; as the driver says. Nothing is lost then.
    fn create(&self, bytes: usize) -> Result<Page, Error>;

    /// Releases physical memory. Cannot fail: memory that cannot be released is leaked.
    ///
    /// # Safety
    ///
    /// [`create`](Self::create) of this resource returned the page, it has no address, and it is not used again.
    unsafe fn release(&self, page: Page);

    /// Maps a page, accessible to the device.
    ///
    /// # Errors
    ///
    /// As the driver says. The page is not mapped there then, and may be mapped elsewhere, or released; the addresses may be
    /// [lost](Self::is_lost).
    ///
    /// # Safety
    ///
    /// `page` is of this resource, was not released and has no address, unless it [may alias](Self::may_alias). The addresses from `at` on, a multiple of the unit, for
    /// as many bytes as the page has, are in one range of this resource, and nothing is mapped there.
    unsafe fn map(&self, page: Page, at: DevicePtr) -> Result<(), Error>;

    /// Returns `true` if a call of [`map`](Self::map) failed at one of these addresses and could not be undone: nothing can be
    /// mapped there, unless a later attempt to undo it succeeds, which this call and the next one of `map` there make. A
    /// suballocator that is told so maps other addresses. Default: `false`.
    fn is_lost(&self, at: DevicePtr, bytes: usize) -> bool {
        let _ = (at, bytes);
        false
    }

    /// Unmaps a page. It keeps no promise about what it holds afterwards.
    ///
    /// # Errors
    ///
    /// As the driver says. The page keeps its address then.
    ///
    /// # Safety
    ///
    /// `page` is mapped at `at`, and no work that is left on any stream of any device uses it there.
    unsafe fn unmap(&self, page: Page, at: DevicePtr) -> Result<(), Error>;

    /// A page, in a form that other processes can open: once, for all that lies on it. By default there is none.
    ///
    /// # Errors
    ///
    /// As [`Resource::export`](crate::Resource::export).
    ///
    /// # Safety
    ///
    /// The page is one of `create`, and was not released.
    unsafe fn export_page(&self, page: Page) -> Result<Arc<ExportedMemory>, Error> {
        let _ = page;
        Err(no_export("these pages have none"))
    }
}

static_assertions::assert_obj_safe!(Pages);

/// Succeeds for a whole number of units, and not for 0 bytes.
pub(crate) fn require_whole_pages(bytes: usize, unit: usize) -> Result<(), Error> {
    if bytes != 0 && bytes.is_multiple_of(unit) {
        return Ok(());
    }
    Err(Error::invalid_argument_that(format!(
        "{bytes} bytes are no whole number of pages of {unit} bytes: round up to a multiple of {unit}"
    )))
}
