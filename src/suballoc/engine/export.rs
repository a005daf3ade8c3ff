//! What other processes open of a block: the segment, or the pages, that it lies in.

#![expect(unsafe_code, reason = "exports segments and pages of the upstream")]

use super::Engine;
use super::taking::segment_layout;
use crate::error::Error;
use crate::resource::{DevicePtr, Export, Layout, Page, Resource, no_export, require_few_pages};
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
        self.book.require_same_process()?;
        let at = block.address();
        let around = self.book.lock().core.around(at, layout.bytes() as u64);
        match around {
            Around::Segment(segment) => {
                let whole = segment_layout(segment.units)?;
                let start = DevicePtr::new(segment.address).ok_or_else(foreign)?;
                // SAFETY: the segment came from the upstream with this layout, and stays while the block is live.
                let export = unsafe { self.upstream.export(start, whole) }?;
                Ok(export.within((at - segment.address) as usize))
            }
            Around::Pages(extents) => {
                let pages = self.pages().ok_or_else(foreign)?;
                require_few_pages(extents.len())?;
                let first = extents.first().map_or(at, |extent| extent.address);
                let exported = extents.into_iter().map(|extent| {
                    let bytes = extent.units as usize * Layout::MIN_ALIGN;
                    // SAFETY: the page is one of the upstream, and stays mapped while the block on it is live.
                    unsafe { pages.export_page(Page::new(extent.number, bytes)) }
                        .map(|memory| (memory, bytes))
                });
                let exported = exported.collect::<Result<Vec<_>, Error>>()?;
                Ok(Export::of_adjacent_pages(exported, first)?.within((at - first) as usize))
            }
            Around::Nothing => Err(foreign()),
        }
    }
}

#[cold]
fn foreign() -> Error {
    no_export("it is no block of this suballocator, or one that sleeps")
}
