//! Handles of a resource: a borrow, a box, a shared pointer.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

use core::fmt;
use std::sync::Arc;

use super::{DeviceAccessible, DevicePtr, HostAccessible, LayerBook, Layout, Resource, ResourceId};
use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::stream::StreamRef;

/// Forwards every method of `Resource` to what `$target` borrows.
macro_rules! forward_resource {
    (|$this:ident| $target:expr) => {
        #[inline]
        fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
            let $this = self;
            $target.allocate(layout, stream)
        }

        #[inline]
        unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
            let $this = self;
            // SAFETY: the caller's promises to a handle are promises to what it names: they have one id.
            unsafe { $target.deallocate(block, layout, stream) }
        }

        #[inline]
        fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
            let $this = self;
            $target.allocate_sync(layout)
        }

        #[inline]
        unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
            let $this = self;
            // SAFETY: as in `deallocate`.
            unsafe { $target.deallocate_sync(block, layout) }
        }

        #[inline]
        fn device(&self) -> &Device {
            let $this = self;
            $target.device()
        }

        #[inline]
        fn id(&self) -> ResourceId {
            let $this = self;
            $target.id()
        }

        fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let $this = self;
            $target.fmt_layer(f)
        }

        #[inline]
        fn max_align(&self) -> usize {
            let $this = self;
            $target.max_align()
        }

        fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
            let $this = self;
            $target.trim(keep_bytes)
        }

        fn memory_info(&self) -> Result<MemoryInfo, Error> {
            let $this = self;
            $target.memory_info()
        }

        fn upstream(&self) -> Option<&dyn Resource> {
            let $this = self;
            $target.upstream()
        }

        fn layer(&self) -> Option<LayerBook<'_>> {
            let $this = self;
            $target.layer()
        }
    };
}
pub(crate) use forward_resource;

// SAFETY: everything is forwarded to one resource, which keeps the contract; a handle can be moved without moving it.
unsafe impl<R: Resource + ?Sized> Resource for &R {
    forward_resource!(|this| (**this));
}

// SAFETY: as for `&R`.
unsafe impl<R: Resource + ?Sized> Resource for Box<R> {
    forward_resource!(|this| (**this));
}

// SAFETY: as for `&R`.
unsafe impl<R: Resource + ?Sized> Resource for Arc<R> {
    forward_resource!(|this| (**this));
}

// SAFETY: a handle hands out the blocks of what it names.
unsafe impl<R: DeviceAccessible + ?Sized> DeviceAccessible for &R {}
// SAFETY: as for `&R`.
unsafe impl<R: DeviceAccessible + ?Sized> DeviceAccessible for Box<R> {}
// SAFETY: as for `&R`.
unsafe impl<R: DeviceAccessible + ?Sized> DeviceAccessible for Arc<R> {}
// SAFETY: a handle hands out the blocks of what it names.
unsafe impl<R: HostAccessible + ?Sized> HostAccessible for &R {}
// SAFETY: as for `&R`.
unsafe impl<R: HostAccessible + ?Sized> HostAccessible for Box<R> {}
// SAFETY: as for `&R`.
unsafe impl<R: HostAccessible + ?Sized> HostAccessible for Arc<R> {}
