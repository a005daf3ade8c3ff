//! `PinnedAlloc`: pinned memory for collections, under one name.

#![expect(unsafe_code, reason = "forwards the contract of allocators")]

use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use super::OnHost;
use super::blocks::Blocks;
use crate::device::Device;
use crate::error::Error;
use crate::resource::{Describe, DeviceAccessible, HostAccessible};
use crate::source::{Pinned, PinnedConfig};
use crate::sync::Arc;

/// An allocator of memory that host and device both touch: cheap to clone, `'static`, and one type whatever is under it.
///
/// A `Vec<T, PinnedAlloc>` is uploaded as it is: the device reads it by itself, with no copy through a staging buffer.
///
/// [`new`](Self::new) takes each block from a [`Pinned`]: right for a few that are large or live long, at 0.5 ms for a pair of
/// allocating and freeing, and freeing waits for the device. Give [`from_resource`](Self::from_resource) a pool for many.
///
/// # Stream ordering
///
/// None, as for [`OnHost`]: a collection may be dropped when every use by the device is over, and safe code can start none
/// that is not.
///
/// # Thread safety
///
/// Any thread may call it, and collections may move between threads.
///
/// # Examples
///
/// ```
/// use alluvion::host::{HashMap, Vec};
/// use alluvion::{PinnedAlloc, Sim};
///
/// let sim = Sim::new();
/// let alloc = PinnedAlloc::new(&sim.device(0))?;
/// let mut prices = Vec::with_capacity_in(1000, alloc.clone());
/// prices.extend([1.5, 2.5]);
/// let mut stock = HashMap::new_in(alloc);
/// stock.insert("apples", prices);
/// assert_eq!(stock["apples"], [1.5, 2.5]);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct PinnedAlloc {
    host: OnHost<Arc<dyn HostAccessible + Send + Sync>>,
}

static_assertions::assert_impl_all!(PinnedAlloc: Send, Sync, Clone, allocator_api2::alloc::Allocator);
static_assertions::assert_eq_size!(PinnedAlloc, [usize; 2]);

impl PinnedAlloc {
    /// Pinned memory near `device`.
    ///
    /// # Errors
    ///
    /// As [`Pinned::new`].
    pub fn new(device: &Device) -> Result<Self, Error> {
        Ok(Self::from_resource(Pinned::new(device)?))
    }

    /// Pinned memory made as you say.
    ///
    /// # Errors
    ///
    /// As [`Pinned::with_config`].
    pub fn with_config(device: &Device, config: PinnedConfig) -> Result<Self, Error> {
        Ok(Self::from_resource(Pinned::with_config(device, config)?))
    }

    /// Any memory that both host and device touch: pinned, under a pool or under what watches it.
    ///
    /// ```
    /// use alluvion::{PinnedAlloc, PinnedVec, PoolConfig, Resource, ResourceExt, Sim, source::Pinned};
    ///
    /// let sim = Sim::new();
    /// let pool = Pinned::new(&sim.device(0))?.pool(PoolConfig::default().initial(2 << 20))?;
    /// let alloc = PinnedAlloc::from_resource(pool);
    /// let mut growing = PinnedVec::new_in(alloc.clone());
    /// for number in 0..100_000 {
    ///     growing.push(number); // It moves at each doubling, and the driver is not asked once.
    /// }
    /// assert_eq!(alloc.describe().to_string(), "Pool(2 MiB) > Pinned(gpu 0)");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn from_resource<R: HostAccessible + DeviceAccessible + Send + Sync + 'static>(resource: R) -> Self {
        Self { host: OnHost::new(Arc::new(resource)) }
    }

    /// The resource under it.
    #[must_use]
    pub fn resource(&self) -> &(dyn HostAccessible + Send + Sync) {
        &**self.host.resource()
    }

    /// The device that reaches the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.resource().device()
    }

    /// Prints what is under it, outermost first: `Pinned(gpu 0)`.
    #[must_use]
    pub fn describe(&self) -> Describe<'_> {
        Describe::new(self.resource())
    }
}

// SAFETY: everything is forwarded to one allocator, and a clone is a handle of the same.
unsafe impl Blocks for PinnedAlloc {
    fn allocate_block(&self, layout: Layout) -> Option<NonNull<[u8]>> {
        self.host.allocate_block(layout)
    }

    unsafe fn deallocate_block(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { self.host.deallocate_block(block, layout) }
    }
}

impl fmt::Debug for PinnedAlloc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PinnedAlloc({})", self.describe())
    }
}
