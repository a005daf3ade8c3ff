//! `Counted`: counts the memory that is taken from a source, and may limit it.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use core::sync::atomic::{AtomicUsize, Ordering};

use alluvion::driver::MemoryInfo;
use alluvion::resource::{Page, Pages};
use alluvion::{DeviceAccessible, DevicePtr, Error, HostAccessible, Layout, Resource, StreamRef};

/// Counts the bytes that are out of a source, and the most that ever were: what a pool over it reserves. And how often it was
/// called. Of a source of pages, the bytes are those of the pages that are not released.
#[derive(Debug)]
pub(crate) struct Counted<U> {
    upstream: U,
    /// A request that would make more bytes live is out of memory.
    limit_bytes: usize,
    live_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    calls: AtomicUsize,
}

impl<U> Counted<U> {
    pub(crate) fn new(upstream: U) -> Self {
        Self::limited(upstream, usize::MAX)
    }

    /// As a device that has `limit_bytes` of memory.
    pub(crate) fn limited(upstream: U, limit_bytes: usize) -> Self {
        Self {
            upstream,
            limit_bytes,
            live_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        }
    }

    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Allocations and frees, those that failed too; of a source of pages, each call that reaches the driver.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the bytes from what the limit leaves, then asks the upstream.
    // Relaxed: they are counts, and nothing is read on their word.
    fn counting<T>(&self, bytes: usize, ask: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        self.call();
        let room = |live: usize| live.checked_add(bytes).filter(|live| *live <= self.limit_bytes);
        let before = self
            .live_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, room)
            .map_err(|_| Error::over_limit(bytes, self.limit_bytes))?;
        let answer = ask().inspect_err(|_| self.discount(bytes))?;
        self.peak_bytes.fetch_max(before + bytes, Ordering::Relaxed);
        Ok(answer)
    }

    fn discount(&self, bytes: usize) {
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: everything is forwarded to one resource, which keeps the contract; counting touches no block.
unsafe impl<U: Resource> Resource for Counted<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.counting(layout.bytes(), || self.upstream.allocate(layout, stream))
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.call();
        self.discount(layout.bytes());
        // SAFETY: the caller's promises; this layer has the id of its upstream.
        unsafe { self.upstream.deallocate(block, layout, stream) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.counting(layout.bytes(), || self.upstream.allocate_sync(layout))
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.call();
        self.discount(layout.bytes());
        // SAFETY: as in `deallocate`.
        unsafe { self.upstream.deallocate_sync(block, layout) }
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        let info = self.upstream.memory_info()?;
        let left = self.limit_bytes - self.live_bytes.load(Ordering::Relaxed);
        Ok(MemoryInfo {
            free_bytes: info.free_bytes.min(left),
            total_bytes: info.total_bytes.min(self.limit_bytes),
        })
    }

    fn pages(&self) -> Option<&dyn Pages> {
        self.upstream.pages().map(|_| self as &dyn Pages)
    }

    alluvion::forward_resource!(upstream, except allocate, deallocate, memory_info, pages);
}

impl<U: Resource> Counted<U> {
    fn upstream_pages(&self) -> Result<&dyn Pages, Error> {
        self.upstream.pages().ok_or_else(|| {
            Error::unsupported("pages", "the source has none", "name a source of pages, such as `mapped`")
        })
    }
}

// SAFETY: everything is forwarded to one source of pages, which keeps the contract; counting touches no memory.
unsafe impl<U: Resource> Pages for Counted<U> {
    fn page_bytes(&self) -> usize {
        self.upstream_pages().map_or(1, Pages::page_bytes)
    }

    fn may_alias(&self) -> bool {
        self.upstream_pages().is_ok_and(Pages::may_alias)
    }

    fn reserve(&self, bytes: usize) -> Result<DevicePtr, Error> {
        self.call();
        self.upstream_pages()?.reserve(bytes)
    }

    unsafe fn unreserve(&self, range: DevicePtr, bytes: usize) {
        self.call();
        if let Ok(pages) = self.upstream_pages() {
            // SAFETY: the caller's promises; the range is the upstream's.
            unsafe { pages.unreserve(range, bytes) };
        }
    }

    fn create(&self, bytes: usize) -> Result<Page, Error> {
        self.counting(bytes, || self.upstream_pages()?.create(bytes))
    }

    unsafe fn release(&self, page: Page) {
        self.call();
        self.discount(page.bytes());
        if let Ok(pages) = self.upstream_pages() {
            // SAFETY: the caller's promises; the page is the upstream's.
            unsafe { pages.release(page) };
        }
    }

    unsafe fn map(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        self.call();
        let pages = self.upstream_pages()?;
        // SAFETY: the caller's promises; page and range are the upstream's.
        unsafe { pages.map(page, at) }
    }

    fn is_lost(&self, at: DevicePtr, bytes: usize) -> bool {
        self.upstream_pages().is_ok_and(|pages| pages.is_lost(at, bytes))
    }

    unsafe fn unmap(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        self.call();
        let pages = self.upstream_pages()?;
        // SAFETY: the caller's promises; page and range are the upstream's.
        unsafe { pages.unmap(page, at) }
    }
}

// SAFETY: the blocks are the upstream's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for Counted<U> {}
// SAFETY: the blocks are the upstream's.
unsafe impl<U: HostAccessible> HostAccessible for Counted<U> {}

#[cfg(test)]
mod tests {
    use alluvion::Sim;
    use alluvion::source::Null;

    use super::*;
    use crate::null_pages::NullPages;

    const PAGE: usize = 2 << 20;

    #[test]
    fn the_peak_is_what_was_out_at_once() {
        let sim = Sim::new();
        let counted = Counted::new(Null::new(&sim.device(0)));
        let stream = sim.device(0).stream().unwrap();
        let layouts = [1000, 300, 200].map(|bytes| Layout::from_bytes(bytes).unwrap());
        let first = counted.allocate(layouts[0], stream.as_ref()).unwrap();
        let second = counted.allocate_sync(layouts[1]).unwrap();
        // SAFETY: both came from there with these layouts, and nothing uses them.
        unsafe { counted.deallocate(first, layouts[0], stream.as_ref()) };
        let third = counted.allocate(layouts[2], stream.as_ref()).unwrap();
        // SAFETY: as above.
        unsafe { counted.deallocate_sync(second, layouts[1]) };
        // SAFETY: as above.
        unsafe { counted.deallocate_sync(third, layouts[2]) };
        assert_eq!((counted.peak_bytes(), counted.calls(), counted.live_bytes.into_inner()), (1300, 6, 0));
    }

    #[test]
    fn a_limit_refuses_what_is_over_it_and_loses_nothing() {
        let sim = Sim::new();
        let counted = Counted::limited(Null::new(&sim.device(0)), 1000);
        let [all, one] = [1000, 1].map(|bytes| Layout::from_bytes(bytes).unwrap());
        let block = counted.allocate_sync(all).unwrap();
        let error = counted.allocate_sync(one).unwrap_err();
        assert!(error.is_out_of_memory() && error.limit() == Some(1000), "{error}");
        assert_eq!((counted.peak_bytes(), counted.memory_info().unwrap().free_bytes), (1000, 0));
        // SAFETY: the block came from there with this layout, and nothing uses it.
        unsafe { counted.deallocate_sync(block, all) };
        let block = counted.allocate_sync(one).unwrap();
        assert_eq!((counted.peak_bytes(), counted.memory_info().unwrap().free_bytes), (1000, 999));
        // SAFETY: as above.
        unsafe { counted.deallocate_sync(block, one) };
    }

    #[test]
    fn a_source_without_pages_has_none_when_it_is_counted() {
        let sim = Sim::new();
        let counted = Counted::new(Null::new(&sim.device(0)));
        assert!(Resource::pages(&counted).is_none());
        assert!(counted.create(2 << 20).is_err_and(|error| error.is_unsupported()));
        assert_eq!((counted.peak_bytes(), counted.live_bytes.into_inner()), (0, 0));
    }

    #[test]
    fn pages_are_counted_and_limited_like_blocks() {
        let sim = Sim::new();
        let counted = Counted::limited(NullPages::new(&sim.device(0)), 5 * PAGE);
        let pages = Resource::pages(&counted).unwrap();
        assert_eq!(pages.page_bytes(), PAGE);
        let range = pages.reserve(100 * PAGE).unwrap();
        assert_eq!(counted.peak_bytes(), 0, "addresses are no memory");
        let [three, two] = [3 * PAGE, 2 * PAGE].map(|bytes| pages.create(bytes).unwrap());
        assert!(pages.create(PAGE).is_err_and(|error| error.limit() == Some(5 * PAGE)));
        // SAFETY: the range is unused and the page has no address.
        unsafe { pages.map(two, range) }.unwrap();
        // SAFETY: the page is there, and there is no work.
        unsafe { pages.unmap(two, range) }.unwrap();
        // SAFETY: it has no address, and is not used again.
        unsafe { pages.release(three) };
        let again = pages.create(2 * PAGE).unwrap();
        for page in [two, again] {
            // SAFETY: as above.
            unsafe { pages.release(page) };
        }
        // SAFETY: nothing is mapped there, and it is not used again.
        unsafe { pages.unreserve(range, 100 * PAGE) };
        assert_eq!((counted.peak_bytes(), counted.memory_info().unwrap().total_bytes), (5 * PAGE, 5 * PAGE));
        assert_eq!(counted.calls(), 11);
    }
}
