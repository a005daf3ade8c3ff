//! `CudaAsync`: a memory pool of the driver, owned.

#![expect(unsafe_code, reason = "drives a pool that it owns")]

use core::fmt;

use super::cuda_async_config::CudaAsyncConfig;
use super::cuda_async_view::CudaAsyncView;
use super::driver_pool::{DriverPool, draw_on_pool};
use super::peers;
use crate::device::Device;
use crate::driver::{MapAccess, MemoryInfo, PoolAttribute, PoolProperties, RawPool, RelaxedCapture};
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    DeviceAccessible, DevicePtr, Layer, LayerBook, Layout, Resource, ResourceId, Shareable,
};
use crate::stream::StreamRef;

/// Stream-ordered device memory from a pool of the driver that this resource owns: `cuMemAllocFromPoolAsync`.
///
/// Dropping the resource destroys the pool, without waiting: at once if all frees have run, otherwise when another pool of the
/// device is made or dropped later. Blocks that are still live, because a container was leaked, stay valid, and so does their
/// pool.
///
/// # Stream ordering
///
/// Real: memory freed on a stream is reused by it at once, and by others as the reuse attributes of
/// [`CudaAsyncConfig`] allow. [`allocate_sync`](Resource::allocate_sync) and
/// [`deallocate_sync`](Resource::deallocate_sync) wait for a stream of the crate's own.
///
/// On a stream that captures a graph, allocating and freeing become part of the graph. The driver refuses to free a block from
/// outside of the graph there: it is kept, and freed by a later call when the capture is over.
///
/// # Thread safety
///
/// Any thread may call it.
///
/// # Examples
///
/// ```
/// use alluvion::{Layout, Resource, Sim, source::CudaAsync};
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let (resource, stream) = (CudaAsync::new(&device)?, device.stream()?);
/// let layout = Layout::array::<f32>(1024)?;
/// let block = resource.allocate(layout, stream.as_ref())?;
/// assert!(resource.used_bytes()? >= 4096);
/// // SAFETY: `block` came from this resource with this layout, and nothing uses it.
/// unsafe { resource.deallocate(block, layout, stream.as_ref()) };
/// stream.synchronize()?;
/// // The pool keeps freed memory until it is trimmed.
/// assert!(resource.reserved_bytes()? > 0);
/// assert!(resource.trim(0)? > 0);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct CudaAsync {
    pool: DriverPool,
}

static_assertions::assert_impl_all!(CudaAsync: Send, Sync, DeviceAccessible);
static_assertions::assert_not_impl_any!(CudaAsync: Clone, crate::resource::HostAccessible);

impl CudaAsync {
    pub(crate) const CARD: Card = Card {
        name: "cuda-async",
        about: "A pool of the driver's own, stream-ordered.",
        parameters: &[
            Parameter::new("initial", ArgumentKind::Size, "bytes taken when it is made; none if left out"),
            Parameter::new(
                "threshold",
                ArgumentKind::Size,
                "bytes that it keeps at a synchronisation; all if left out",
            ),
            Parameter::new(
                "events",
                ArgumentKind::Flag,
                "follows dependencies of events for reuse; true if left out",
            ),
            Parameter::new(
                "opportunistic",
                ArgumentKind::Flag,
                "reuses memory whose last use has ended; true if left out",
            ),
            Parameter::new(
                "internal",
                ArgumentKind::Flag,
                "may make streams wait for each other; true if left out",
            ),
            Parameter::new(
                "maximum",
                ArgumentKind::Size,
                "the most bytes that it holds; no maximum if left out",
            ),
            Parameter::GPU,
            Parameter::PEERS,
            Parameter::HANDLES,
        ],
    };
}

impl CudaAsync {
    /// A pool on `device` that keeps freed memory.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device has no memory pools; as the driver says.
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::with_config(device, CudaAsyncConfig::default())
    }

    /// A pool on `device` with that configuration.
    ///
    /// The initial bytes are allocated when this returns: it waits for the device.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device has no memory pools, or cannot export them as asked; `InvalidArgument` for an initial size
    /// above the release threshold or the maximum, for a maximum of 0 bytes, and for a peer that cannot access the memory of the
    /// device, which [`Error::refused_peer`] names; `DeviceMismatch` for a peer of another machine; `OutOfMemory` if the initial
    /// bytes cannot be had; as the driver says. On an error nothing leaks: a pool that was already made is destroyed.
    #[expect(clippy::needless_pass_by_value, reason = "every source takes its configuration whole")]
    pub fn with_config(device: &Device, config: CudaAsyncConfig) -> Result<Self, Error> {
        config.check(device.capabilities()?)?;
        let initial = Layout::from_bytes(config.initial())?;
        let properties = PoolProperties { handle_types: config.handles(), max_bytes: config.maximum() };
        let raw = {
            let driver = &**device.driver();
            let _relaxed = RelaxedCapture::enter(driver)?;
            device.sweep_pools();
            driver.pool_create(device.ordinal(), properties)?
        };
        // SAFETY: the pool was made just now, on this device, and only `Drop` destroys it.
        let pool = unsafe { DriverPool::new("CudaAsync", device, raw) }
            .at_most(config.maximum())
            .exported_as(config.handles());
        // From here on an error drops `made`, and `made` the pool.
        let made = Self { pool };
        for (attribute, value) in config.attributes() {
            made.pool.set_attribute(attribute, value)?;
        }
        made.give_access(&config)?;
        let block = made.allocate_sync(initial)?;
        // SAFETY: `allocate_sync` returned it just now, for this layout, and it is unused.
        unsafe { made.deallocate_sync(block, initial) };
        Ok(made)
    }

    /// Lets the peers access all memory that the pool ever has.
    fn give_access(&self, config: &CudaAsyncConfig) -> Result<(), Error> {
        let device = self.pool.device();
        peers::give_access(device, config.peer_devices(), |sharing, peer| {
            // SAFETY:
            // - the pool is live: `self` owns it.
            // - it takes no access away.
            unsafe { sharing.pool_set_access(device.ordinal(), self.raw_pool(), peer, MapAccess::ReadWrite) }
        })
    }

    /// The same pool, borrowed: a second resource that frees the blocks of this one and cannot outlive it.
    #[must_use]
    pub fn view(&self) -> CudaAsyncView<'_> {
        CudaAsyncView::of(self)
    }

    pub(super) fn driver_pool(&self) -> &DriverPool {
        &self.pool
    }

    /// The driver's handle, for calls that this crate does not make. It is invalid once the resource is dropped.
    #[must_use]
    pub fn raw_pool(&self) -> RawPool {
        self.pool.raw()
    }

    /// Bytes that the pool holds, handed out or not.
    pub fn reserved_bytes(&self) -> Result<usize, Error> {
        self.pool.bytes(PoolAttribute::ReservedCurrent)
    }

    /// Bytes that are handed out.
    pub fn used_bytes(&self) -> Result<usize, Error> {
        self.pool.bytes(PoolAttribute::UsedCurrent)
    }

    /// The most bytes that the pool has held since it was made, or since the marks were reset.
    pub fn reserved_high_bytes(&self) -> Result<usize, Error> {
        self.pool.bytes(PoolAttribute::ReservedHigh)
    }

    /// The most bytes that were handed out at once since the pool was made, or since the marks were reset.
    pub fn used_high_bytes(&self) -> Result<usize, Error> {
        self.pool.bytes(PoolAttribute::UsedHigh)
    }

    /// Sets both high-water marks to the current figures.
    pub fn reset_high_water_marks(&self) -> Result<(), Error> {
        self.pool.set_attribute(PoolAttribute::ReservedHigh, 0)?;
        self.pool.set_attribute(PoolAttribute::UsedHigh, 0)
    }
}

// SAFETY: the driver hands out memory that overlaps no other live memory and is aligned to 256 at least; larger
// alignments are refused. Blocks are the pool's, not this value's, and every resource with this id draws on that pool.
unsafe impl Resource for CudaAsync {
    draw_on_pool! {
        /// Only memory whose frees the host knows to be over is returned: synchronise the streams that freed first.
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt_as("CudaAsync", f)
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }
}

impl Layer for CudaAsync {
    type Book = Self;
}

// SAFETY: the blocks are memory of the device.
unsafe impl DeviceAccessible for CudaAsync {}

impl Shareable for CudaAsync {}

impl fmt::Debug for CudaAsync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}

impl Drop for CudaAsync {
    fn drop(&mut self) {
        self.pool.retry_postponed();
        // SAFETY:
        // - `pool_create` made it on this device: `with_config`, the only constructor.
        // - no allocation from it follows: `self` ends here, and views borrow `self`. The doc of `raw_pool` says that the handle
        //   is then invalid.
        unsafe { self.pool.device().retire_pool(self.pool.raw()) };
    }
}
