//! `Counted`: counts what is taken from a source.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use core::sync::atomic::{AtomicUsize, Ordering};

use alluvion::{DeviceAccessible, DevicePtr, Error, HostAccessible, Layout, Resource, StreamRef};

/// Counts the bytes that are out of a source, and the most that ever were: what a pool over it reserves. And how often it was
/// called.
#[derive(Debug)]
pub(crate) struct Counted<U> {
    upstream: U,
    live_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
    calls: AtomicUsize,
}

impl<U> Counted<U> {
    pub(crate) fn new(upstream: U) -> Self {
        Self {
            upstream,
            live_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            calls: AtomicUsize::new(0),
        }
    }

    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Ordering::Relaxed)
    }

    /// Allocations and frees, those that failed too.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    fn call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    // Relaxed: they are counts, and nothing is read on their word.
    fn count(&self, bytes: usize) {
        let live = self.live_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak_bytes.fetch_max(live, Ordering::Relaxed);
    }

    fn discount(&self, bytes: usize) {
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// SAFETY: everything is forwarded to one resource, which keeps the contract; counting touches no block.
unsafe impl<U: Resource> Resource for Counted<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.call();
        let block = self.upstream.allocate(layout, stream)?;
        self.count(layout.bytes());
        Ok(block)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        self.call();
        self.discount(layout.bytes());
        // SAFETY: the caller's promises; this layer has the id of its upstream.
        unsafe { self.upstream.deallocate(block, layout, stream) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.call();
        let block = self.upstream.allocate_sync(layout)?;
        self.count(layout.bytes());
        Ok(block)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.call();
        self.discount(layout.bytes());
        // SAFETY: as in `deallocate`.
        unsafe { self.upstream.deallocate_sync(block, layout) }
    }

    alluvion::forward_resource!(upstream, except allocate, deallocate);
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
}
