//! A resource that is `Send` and not `Sync`: two threads at once would tear its cells, and it says so.

#![allow(dead_code, reason = "some tests need a part of it")]
#![expect(unsafe_code, reason = "forwards the contract of resources")]

use std::cell::Cell;
use std::fmt;

use alluvion::{DeviceAccessible, DevicePtr, Error, HostAccessible, Layout, MemoryInfo, Resource, StreamRef};
use static_assertions::{assert_impl_all, assert_not_impl_any};

/// What is done in the middle of a call.
type Within = Box<dyn Fn() + Send>;

pub(crate) struct OneAtATime<U> {
    upstream: U,
    /// Set while somebody is inside. Plain memory: what two threads do to it is not defined, so nobody may be let in twice.
    busy: Cell<bool>,
    calls: Cell<u64>,
    within_allocate: Option<Within>,
    within_deallocate: Option<Within>,
}

assert_impl_all!(OneAtATime<alluvion::source::Cuda>: Send);
assert_not_impl_any!(OneAtATime<alluvion::source::Cuda>: Sync);

impl<U: Resource> OneAtATime<U> {
    pub(crate) fn new(upstream: U) -> Self {
        let (busy, calls) = (Cell::new(false), Cell::new(0));
        Self { upstream, busy, calls, within_allocate: None, within_deallocate: None }
    }

    pub(crate) fn within_allocate(self, within: impl Fn() + Send + 'static) -> Self {
        Self { within_allocate: Some(Box::new(within)), ..self }
    }

    pub(crate) fn within_deallocate(self, within: impl Fn() + Send + 'static) -> Self {
        Self { within_deallocate: Some(Box::new(within)), ..self }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.get()
    }

    fn alone<T>(&self, within: Option<&Within>, call: impl FnOnce(&U) -> T) -> T {
        assert!(!self.busy.replace(true), "two are inside at once");
        self.calls.set(self.calls.get() + 1);
        // Time for others to come in.
        std::thread::yield_now();
        if let Some(within) = within {
            within();
        }
        let answer = call(&self.upstream);
        assert!(self.busy.replace(false), "two are inside at once");
        answer
    }
}

// SAFETY: everything is forwarded to the upstream, whose id it has and which keeps the contract.
unsafe impl<U: Resource> Resource for OneAtATime<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.alone(self.within_allocate.as_ref(), |upstream| upstream.allocate(layout, stream))
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the caller's promises; the ids are the same.
        self.alone(self.within_deallocate.as_ref(), |upstream| unsafe {
            upstream.deallocate(block, layout, stream);
        });
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.alone(self.within_allocate.as_ref(), |upstream| upstream.allocate_sync(layout))
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        // SAFETY: the caller's promises; the ids are the same.
        self.alone(self.within_deallocate.as_ref(), |upstream| unsafe {
            upstream.deallocate_sync(block, layout);
        });
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.alone(None, |_| f.write_str("OneAtATime"))
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        self.alone(None, |upstream| upstream.trim(keep_bytes))
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.alone(None, Resource::memory_info)
    }

    alluvion::forward_resource!(upstream, except allocate, deallocate, fmt_layer, trim, memory_info);
}

// SAFETY: the blocks are the upstream's.
unsafe impl<U: DeviceAccessible> DeviceAccessible for OneAtATime<U> {}
// SAFETY: the blocks are the upstream's.
unsafe impl<U: HostAccessible> HostAccessible for OneAtATime<U> {}
