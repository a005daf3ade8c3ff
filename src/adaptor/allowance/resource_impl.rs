//! The contract of resources within an allowance, the same for every layer over one.

/// Implements `Resource`, access markers and `Debug` for a layer with the fields `upstream`, `allowance` and `id`. `$layer`
/// prints its layer.
///
/// # Why the books close after the upstream's free
///
/// Books of addresses close before, because another thread may own the address afterwards. Here is no address, and the order
/// that keeps the promise is the other one: bytes that are given back before the upstream has the block could be taken by
/// another thread, whose block would then be out beside the one that is not back yet. So what the upstream has given out is
/// never more than what is counted, and that is never more than the limit.
///
/// A free that the upstream refuses gives nothing back.
macro_rules! resource_by_allowance {
    ($name:ident, |$of:ident, $f:ident| $layer:expr) => {
        impl<U> $name<U> {
            /// The upstream.
            #[must_use]
            pub fn upstream(&self) -> &U {
                &self.upstream
            }

            /// Its book: the limit, the live bytes and their peak.
            #[must_use]
            pub fn book(&self) -> &Allowance {
                &self.allowance
            }
        }

        impl<U: Resource> $name<U> {
            /// Room for a block. What is wrong with the request is said before that there is none: freeing would not help.
            #[inline]
            fn room(&self, layout: Layout, stream: Option<StreamRef<'_>>) -> Result<TakenRoom<'_>, Error> {
                self.allowance.take_for(layout).or_else(|refusal| {
                    if let Some(stream) = stream {
                        self.device().require(stream.device())?;
                    }
                    layout.require_align(self.max_align())?;
                    let (layer, stream) = (stringify!($name), stream.map(StreamRef::id));
                    Err(refusal.into_error(layer, &self.allowance, layout.bytes(), layout.align(), stream))
                })
            }
        }

        // SAFETY: the blocks are the upstream's, which keeps the contract. Only the value itself has its id, so all that is
        // given back is the upstream's, too.
        unsafe impl<U: Resource> Resource for $name<U> {
            #[inline]
            fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
                let room = self.room(layout, Some(stream))?;
                let block = self.upstream.allocate(layout, stream)?;
                room.keep();
                Ok(block)
            }

            #[inline]
            unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
                // SAFETY: the caller's promises; the block is the upstream's.
                if is_freed_by(|| unsafe { self.upstream.deallocate(block, layout, stream) }) {
                    self.allowance.give(layout.rounded_bytes());
                }
            }

            #[inline]
            fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
                let room = self.allowance.take_at_once(layout)?;
                let block = self.upstream.allocate_at_once(layout, stream)?;
                room.keep();
                Some(block)
            }

            #[inline]
            unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
                // SAFETY: the caller's promises; the block is the upstream's.
                let is_free = unsafe { self.upstream.deallocate_at_once(block, layout, stream) };
                if is_free {
                    self.allowance.give(layout.rounded_bytes());
                }
                is_free
            }

            #[inline]
            fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
                let room = self.room(layout, None)?;
                let block = self.upstream.allocate_sync(layout)?;
                room.keep();
                Ok(block)
            }

            #[inline]
            unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
                // SAFETY: the caller's promises; the block is the upstream's.
                if is_freed_by(|| unsafe { self.upstream.deallocate_sync(block, layout) }) {
                    self.allowance.give(layout.rounded_bytes());
                }
            }

            forward_resource!(unchanged upstream, except allocate, deallocate, id, fmt_layer, memory_info, pages);

            fn id(&self) -> ResourceId {
                self.id
            }

            fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let ($of, $f) = (self, f);
                $layer
            }

            fn memory_info(&self) -> Result<MemoryInfo, Error> {
                Ok(self.allowance.cap(self.upstream.memory_info()?))
            }

            fn pages(&self) -> Option<&dyn Pages> {
                self.upstream.pages()?;
                Some(self)
            }

            fn layer(&self) -> Option<LayerBook<'_>> {
                Some(LayerBook::of::<Self>(&self.allowance))
            }
        }

        impl<U: Resource> $name<U> {
            /// Those of the upstream.
            fn upstream_pages(&self) -> Result<&dyn Pages, Error> {
                self.upstream.pages().ok_or_else(|| {
                    Error::unsupported(
                        "a page of a limited resource",
                        "the resource under the limit has no pages",
                        "put the limit over `Mapped`, or look at `Resource::pages`",
                    )
                })
            }
        }

        // SAFETY: ranges and pages are the upstream's, which keeps the contract.
        unsafe impl<U: Resource> Pages for $name<U> {
            unsafe fn export_page(
                &self,
                page: Page,
            ) -> Result<$crate::sync::Arc<$crate::driver::ExportedMemory>, Error> {
                // SAFETY: the caller's promises; the page is the upstream's.
                unsafe { self.upstream_pages()?.export_page(page) }
            }

            /// The upstream's; without any, the unit of blocks.
            fn page_bytes(&self) -> usize {
                self.upstream.pages().map_or(Layout::MIN_ALIGN, Pages::page_bytes)
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
                let room = self.allowance.take_for(Layout::from_bytes(bytes)?).map_err(|refusal| {
                    refusal.into_error(stringify!($name), &self.allowance, bytes, unit, None)
                })?;
                let page = pages.create(bytes)?;
                room.keep();
                Ok(page)
            }

            unsafe fn release(&self, page: Page) {
                let Some(pages) = self.upstream.pages() else { return };
                // SAFETY: the caller's promises; the page is the upstream's.
                unsafe { pages.release(page) };
                self.allowance.give(page.bytes());
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

        impl<U> Layer for $name<U> {
            type Book = Allowance;
            const NAME: Option<&'static str> = Some(stringify!($name));

            fn figures(book: &Allowance, to: &mut $crate::resource::Figures<'_>) {
                <Allowance as Layer>::figures(book, to);
            }
        }

        blocks_of_upstream!($name);
    };
}
pub(in crate::adaptor) use resource_by_allowance;
