//! The pages of a `Watched` whose watch sees them: each is a block to it.

#![expect(unsafe_code, reason = "forwards the contract of pages")]

use super::{Watch, Watched, ask};
use crate::driver::ExportedMemory;
use crate::error::Error;
use crate::resource::{DevicePtr, Layout, Page, Pages, Resource, require_whole_pages};
use crate::sync::Arc;

impl<W: Watch, U: Resource> Watched<W, U> {
    fn upstream_pages(&self) -> Result<&dyn Pages, Error> {
        self.upstream.pages().ok_or_else(|| {
            Error::unsupported(
                "a page of a watched resource",
                "the resource under the layer has no pages",
                "put the layer over `Mapped`, or look at `Resource::pages`",
            )
        })
    }
}

// SAFETY: ranges and pages are the upstream's, which keeps the contract. Panics are caught as in `Resource`.
unsafe impl<W: Watch, U: Resource> Pages for Watched<W, U> {
    unsafe fn export_page(&self, page: Page) -> Result<Arc<ExportedMemory>, Error> {
        // SAFETY: the caller's promises; the page is the upstream's.
        unsafe { self.upstream_pages()?.export_page(page) }
    }

    /// The upstream's; without any, the unit of blocks.
    fn page_bytes(&self) -> usize {
        self.upstream.pages().map_or(Layout::MIN_ALIGN, Pages::page_bytes)
    }

    fn may_alias(&self) -> bool {
        self.upstream.pages().is_some_and(Pages::may_alias)
    }

    fn reserve(&self, bytes: usize) -> Result<DevicePtr, Error> {
        self.upstream_pages()?.reserve(bytes)
    }

    unsafe fn unreserve(&self, range: DevicePtr, bytes: usize) {
        let Some(pages) = self.upstream.pages() else { return };
        // SAFETY: the caller's promises; the range is the upstream's.
        unsafe { pages.unreserve(range, bytes) }
    }

    fn create(&self, bytes: usize) -> Result<Page, Error> {
        let pages = self.upstream_pages()?;
        let unit = pages.page_bytes();
        require_whole_pages(bytes, unit)?;
        let layout = Layout::new(bytes, unit).or_else(|_| Layout::from_bytes(bytes))?;
        match ask::<W, _>(|| self.watch.admit(&self.request(layout, None))) {
            Some(Ok(())) => {}
            refused => return Err(self.refuse(layout, None, None, refused)),
        }
        let admission = self.admission(layout, None);
        match pages.create(bytes) {
            Ok(page) => {
                admission.keep();
                Ok(page)
            }
            Err(error) => Err(self.fail(admission, error)),
        }
    }

    unsafe fn release(&self, page: Page) {
        let Some(pages) = self.upstream.pages() else { return };
        // SAFETY: the caller's promises; the page is the upstream's.
        unsafe { pages.release(page) };
        if let Ok(layout) = Layout::from_bytes(page.bytes()) {
            ask::<W, _>(|| self.watch.left(layout, W::Entry::default()));
        }
    }

    unsafe fn map(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        // SAFETY: the caller's promises; page and range are the upstream's.
        unsafe { self.upstream_pages()?.map(page, at) }
    }

    fn is_lost(&self, at: DevicePtr, bytes: usize) -> bool {
        self.upstream.pages().is_some_and(|pages| pages.is_lost(at, bytes))
    }

    unsafe fn unmap(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        // SAFETY: the caller's promises; the page is the upstream's.
        unsafe { self.upstream_pages()?.unmap(page, at) }
    }
}
