//! `Upstream`: what an adaptor under test stands on.

#![expect(unsafe_code, reason = "forwards the contract of resources")]

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::resource::{DeviceAccessible, DevicePtr, Layer, LayerBook, Layout, Resource, Sleeping};
use crate::source::Cuda;
use crate::stream::StreamRef;
use crate::suballoc::{Pool, PoolConfig};

/// A pool that knows which of its methods were called: what [`resource_suite!`](crate::resource_suite) puts under an adaptor to
/// find the methods that the adaptor does not forward.
///
/// A clone is another handle of the same pool.
///
/// ```
/// use alluvion::testing::{Bench, Upstream, suite};
/// use alluvion::{ResourceExt, Sim};
///
/// let upstream = Upstream::new(&Sim::new().device(0));
/// assert_eq!(upstream.describe().to_string(), "Upstream > Pool(0 B) > Cuda(gpu 0)");
/// suite::forwards_trim(&Bench::sim(), |upstream| upstream.stats());
/// ```
#[derive(Clone)]
pub struct Upstream {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool<Cuda>,
    calls: [AtomicUsize; 8],
}

/// The methods whose calls are counted.
#[derive(Clone, Copy)]
pub(super) enum Method {
    Allocate,
    AllocateSync,
    DeallocateSync,
    MaxAlign,
    MemoryInfo,
    HostAccess,
    Sleeping,
    Export,
}

static_assertions::assert_impl_all!(Upstream: Send, Sync, Clone, DeviceAccessible);

impl Upstream {
    /// A pool over the memory of `device`, which refuses wrong frees.
    ///
    /// # Panics
    ///
    /// Never: a pool without an initial size asks nothing of the driver.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        let pool = Pool::new(Cuda::new(device), PoolConfig::default().checked(true));
        let pool = pool.expect("the configuration is sound");
        Self { shared: Arc::new(Shared { pool, calls: Default::default() }) }
    }

    /// The number of live blocks.
    pub(super) fn live_blocks(&self) -> usize {
        self.shared.pool.status().live_blocks
    }

    /// The pool, to ask without being counted.
    pub(super) fn uncounted(&self) -> &Pool<Cuda> {
        &self.shared.pool
    }

    /// The number of calls of a method.
    pub(super) fn calls(&self, method: Method) -> usize {
        // Relaxed: the calls that a clause asks about were made by its own thread.
        self.shared.calls[method as usize].load(Ordering::Relaxed)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    fn count(&self, method: Method) -> &Pool<Cuda> {
        // Relaxed: as in `calls`.
        self.shared.calls[method as usize].fetch_add(1, Ordering::Relaxed);
        &self.shared.pool
    }
}

// SAFETY: the blocks are the pool's, whose id it has and which keeps the contract.
unsafe impl Resource for Upstream {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.count(Method::Allocate).allocate(layout, stream)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the caller's promises; the ids are the same.
        unsafe { self.shared.pool.deallocate(block, layout, stream) };
    }

    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        self.shared.pool.allocate_at_once(layout, stream)
    }

    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        // SAFETY: the caller's promises; the ids are the same.
        unsafe { self.shared.pool.deallocate_at_once(block, layout, stream) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.count(Method::AllocateSync).allocate_sync(layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        // SAFETY: the caller's promises; the ids are the same.
        unsafe { self.count(Method::DeallocateSync).deallocate_sync(block, layout) };
    }

    fn max_align(&self) -> usize {
        self.count(Method::MaxAlign).max_align()
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.count(Method::MemoryInfo).memory_info()
    }

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<crate::resource::Export, Error> {
        // SAFETY: the caller's promises; the ids are the same.
        unsafe { self.count(Method::Export).export(block, layout) }
    }

    fn host_access(&self) -> bool {
        self.count(Method::HostAccess).host_access()
    }

    fn sleeping(&self) -> Option<&dyn Sleeping> {
        self.count(Method::Sleeping).sleeping()
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }

    crate::forward_resource!(
        |this| this.shared.pool,
        except allocate, deallocate, allocate_sync, deallocate_sync, max_align, memory_info
    );
}

impl Layer for Upstream {
    type Book = Self;
}

// SAFETY: the blocks are the pool's, which are memory of the device.
unsafe impl DeviceAccessible for Upstream {}

impl crate::resource::Shareable for Upstream {}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", crate::resource::Describe::new(self))
    }
}
