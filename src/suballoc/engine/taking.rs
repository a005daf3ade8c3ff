//! Takes segments of the upstream, and returns those that nobody has seen.
//!
//! A segment is a block of the upstream; of a registered pool over pages, one page in a range of its own, so that it can sleep.

#![expect(unsafe_code, reason = "gives segments back to the upstream that they came from")]

use super::Engine;
use super::events::event;
use super::grow::PAGE_UNITS;
use super::telling::view_of;
use crate::error::Error;
use crate::nvtx;
use crate::resource::{Layout, Pages, Resource};
use crate::suballoc::SegmentView;
use crate::suballoc::core::{Core, Extent, Segment};

/// A segment that the core does not know yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taken {
    /// A block of the upstream.
    Block(Segment),
    /// A page that fills a range of addresses, but for the last page.
    Page { range: Segment, page: Extent },
}

impl Taken {
    pub(super) fn view(&self) -> Option<SegmentView> {
        match *self {
            Self::Block(Segment { address, units }) => view_of(address, units),
            Self::Page { page, .. } => view_of(page.address, page.units),
        }
    }

    /// Gives it to the core.
    pub(super) fn enter(self, core: &mut Core, page_units: u32) {
        match self {
            Self::Block(Segment { address, units }) => core.add_segment(address, units),
            Self::Page { page, .. } => core.add_page(page, page_units),
        }
    }
}

impl<U: Resource> Engine<U> {
    /// Allocates a segment of the upstream, ready for every stream.
    pub(super) fn take_segment(&self, units: u32) -> Result<Taken, Error> {
        if let Some(pages) = self.pages() {
            return self.map_segment(pages, units);
        }
        let layout = segment_layout(units)?;
        self.note_upstream_call();
        let taken = {
            let _range = nvtx::range(c"grow", layout.bytes());
            self.upstream.allocate_sync(layout)
        };
        let block = match taken {
            Ok(block) => block,
            Err(error) => {
                event!(bytes = layout.bytes(), error = %error, "growth refused");
                return Err(error);
            }
        };
        event!(bytes = layout.bytes(), address = block.address(), "grow");
        if block.is_aligned_to(Layout::MIN_ALIGN) {
            self.announce_memory(block.address(), layout.bytes());
            return Ok(Taken::Block(Segment { address: block.address(), units }));
        }
        // SAFETY: the block came from this resource with this layout just now, and nobody has seen it.
        unsafe { self.upstream.deallocate_sync(block, layout) };
        Err(Error::unsupported(
            "a suballocator over this upstream",
            "its memory is not aligned to 256 bytes, which its contract promises",
            "mend the upstream",
        ))
    }

    /// Takes the first segment, when the suballocator is made.
    pub(in crate::suballoc) fn take_initial(&self, units: u32) -> Result<(), Error> {
        if self.book.moves_pages() {
            return self.map_initial(units);
        }
        let taken = self.take_segment(self.whole_units(units.into()) as u32)?;
        self.admit(taken)?;
        let mut inner = self.book.lock();
        taken.enter(&mut inner.core, self.book.page_units);
        self.book.note_reserved(&mut inner);
        Ok(())
    }

    /// Has the hooks told of a segment, before the core knows it. If they refuse, it goes back.
    pub(super) fn admit(&self, taken: Taken) -> Result<(), Error> {
        let told = taken.view().map_or(Ok(()), |segment| self.book.tell_added(segment));
        // A hook may have forked.
        self.book.require_same_process()?;
        told.inspect_err(|_| self.return_taken(taken))
    }

    /// The units of a segment in which so many fit: where segments stay what they are, whole pages of the device.
    pub(super) fn whole_units(&self, units: u64) -> u64 {
        match self.book.config.segment_bytes {
            Some(_) => units.next_multiple_of(PAGE_UNITS.max(self.book.page_units.into())),
            None => units,
        }
    }

    /// The most units of a segment: a count has 32 bits, and where segments stay, they are whole pages of the device, and a range over
    /// pages has one page more.
    pub(super) fn most_units(&self) -> u64 {
        let most = u64::from(u32::MAX);
        match self.book.config.segment_bytes {
            Some(_) => most + 1 - 2 * PAGE_UNITS.max(self.book.page_units.into()),
            None => most,
        }
    }

    /// Maps a page of so many units in a range of its own, of which the last page stays without memory.
    fn map_segment(&self, pages: &dyn Pages, units: u32) -> Result<Taken, Error> {
        let range_units = units.checked_add(self.book.page_units);
        let range_layout = range_units.ok_or_else(|| Error::size_overflow(units as usize, Layout::MIN_ALIGN));
        let (range_layout, layout) = (segment_layout(range_layout?)?, segment_layout(units)?);
        self.note_upstream_call();
        let _range = nvtx::range(c"grow", layout.bytes());
        let page = pages.create(layout.bytes()).inspect_err(|error| {
            event!(bytes = layout.bytes(), error = %error, "growth refused");
            let _ = error;
        })?;
        let unmapped = Extent { address: 0, units, number: page.number() };
        let range =
            self.reserve(pages, range_layout.bytes()).inspect_err(|_| self.release(pages, unmapped))?;
        let address = range.address();
        let range = Segment { address, units: units + self.book.page_units };
        self.announce_to_driver(address, range_layout.bytes());
        let page = Extent { address, ..unmapped };
        if let Err(error) = self.map(pages, page) {
            self.release(pages, page);
            self.unreserve(pages, range);
            return Err(error);
        }
        event!(bytes = layout.bytes(), address, "grow");
        nvtx::start();
        Ok(Taken::Page { range, page })
    }

    /// Returns a segment to the upstream that the core has never known. A page that the driver does not unmap is leaked.
    #[cold]
    pub(super) fn return_taken(&self, taken: Taken) {
        match (taken, self.pages()) {
            (Taken::Block(segment), _) => {
                self.deallocate_segment(segment);
            }
            (Taken::Page { range, page }, Some(pages)) => {
                if self.unmap(pages, page).is_ok() {
                    self.release(pages, page);
                    self.unreserve(pages, range);
                }
            }
            (Taken::Page { .. }, None) => {}
        }
    }
}

/// The layout of a segment, for its allocation and its free.
pub(super) fn segment_layout(units: u32) -> Result<Layout, Error> {
    Layout::from_bytes(units as usize * Layout::MIN_ALIGN)
}
