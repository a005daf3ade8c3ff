//! What other processes open of a block: the segment, or the page, that it lies in.

#![expect(unsafe_code, reason = "exports segments and pages of the upstream")]

use super::Engine;
use super::grow::segment_layout;
use crate::error::Error;
use crate::resource::{DevicePtr, Export, Layout, Page, Resource, no_export};
use crate::suballoc::core::Around;

impl<U: Resource> Engine<U> {
    /// # Safety
    ///
    /// As [`Resource::export`].
    pub(in crate::suballoc) unsafe fn export(
        &self,
        block: DevicePtr,
        layout: Layout,
    ) -> Result<Export, Error> {
        if layout.is_empty() {
            return Ok(Export::of_nothing());
        }
        self.book.inner.require_here()?;
        let at = block.address();
        let around = self.book.inner.lock().core.around(at, layout.bytes() as u64);
        match around {
            Around::Segment(segment) => {
                let whole = segment_layout(segment.units)?;
                let start = DevicePtr::new(segment.address).ok_or_else(foreign)?;
                // SAFETY: the segment came from the upstream with this layout, and stays while the block is live.
                let export = unsafe { self.upstream.export(start, whole) }?;
                Ok(export.within((at - segment.address) as usize))
            }
            Around::Page(extent) => {
                let pages = self.pages().ok_or_else(foreign)?;
                let bytes = extent.units as usize * Layout::MIN_ALIGN;
                // SAFETY: the page is one of the upstream, and stays mapped while the block on it is live.
                let memory = unsafe { pages.export_page(Page::new(extent.number, bytes)) }?;
                Ok(Export::of_pages(memory, extent.address, bytes).within((at - extent.address) as usize))
            }
            Around::Pages => Err(Error::unsupported(
                "memory for other processes",
                "the block lies on several pages, each of which is memory of its own",
                "allocate it from `Mapped` itself, from an `Arena` over it, or from a pool over `Cuda`",
            )),
            Around::Nothing => Err(foreign()),
        }
    }
}

#[cold]
fn foreign() -> Error {
    no_export("it is no block of this suballocator, or one that sleeps")
}
