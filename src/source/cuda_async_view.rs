//! `CudaAsyncView<'p>`: a memory pool of the driver with another owner.

#![expect(unsafe_code, reason = "uses a pool whose owner keeps it alive")]

use core::fmt;

use super::cuda_async::CudaAsync;
use super::driver_pool::{DriverPool, draw_on_pool};
use crate::device::Device;
use crate::driver::{Code, MemoryInfo, PoolAttribute, RawPool};
use crate::error::Error;
use crate::resource::{DeviceAccessible, DevicePtr, LayerBook, Layout, Resource, ResourceId, Shareable};
use crate::stream::StreamRef;

/// Stream-ordered device memory from a pool of the driver that has another owner, for as long as `'p`.
///
/// All resources over one pool free each other's blocks: a view frees those of the [`CudaAsync`] that it borrows, and the reverse.
/// A view changes no attribute of the pool; only its owner does.
///
/// # Stream ordering
///
/// As for [`CudaAsync`].
///
/// # Thread safety
///
/// Any thread may call it.
///
/// # Examples
///
/// ```
/// use alluvion::{Resource, ResourceExt, Sim, source::CudaAsync};
///
/// let sim = Sim::new();
/// let owner = CudaAsync::new(&sim.device(0))?;
/// let view = owner.view();
/// assert_eq!(view.id(), owner.id());
/// assert_eq!(view.describe().to_string(), "CudaAsyncView(gpu 0)");
/// # Ok::<(), alluvion::Error>(())
/// ```
///
/// A view cannot outlive the pool that it borrows:
///
/// ```compile_fail,E0597
/// # use alluvion::{Sim, source::CudaAsync};
/// let sim = Sim::new();
/// let view = {
///     let owner = CudaAsync::new(&sim.device(0)).unwrap();
///     owner.view()
/// };
/// # drop(view);
/// ```
#[derive(Clone)]
pub struct CudaAsyncView<'p> {
    pool: DriverPool,
    /// The owner, if it is a `CudaAsync`. The borrow keeps the pool alive.
    owner: Option<&'p CudaAsync>,
}

static_assertions::assert_impl_all!(CudaAsyncView<'static>: Send, Sync, Clone, DeviceAccessible);
static_assertions::assert_not_impl_any!(CudaAsyncView<'static>: crate::resource::HostAccessible);

impl<'p> CudaAsyncView<'p> {
    /// A view of the pool of `owner`: the same as [`CudaAsync::view`].
    #[must_use]
    pub fn of(owner: &'p CudaAsync) -> Self {
        Self { pool: owner.driver_pool().clone(), owner: Some(owner) }
    }

    /// A view of the pool behind a handle: of another library, or from a driver call that this crate does not make.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device has no memory pools; `InvalidArgument` if the handle is null, or if the driver notices that
    /// there is no such pool, which is not certain; as the driver says.
    ///
    /// # Safety
    ///
    /// - `raw` is null, or a pool of `device` whose memory the device may read and write.
    /// - It lives until the last use of the view, of its clones, and of their blocks.
    pub unsafe fn from_raw(device: &Device, raw: RawPool) -> Result<Self, Error> {
        // SAFETY: the pool is of this device and lives long enough: the caller's promises.
        Self::checked(device, raw, || unsafe { DriverPool::new("CudaAsyncView", device, raw) })
    }

    /// As [`from_raw`](Self::from_raw), for a pool that its owner may destroy while there is a view, as the programs of a language
    /// with a garbage collector do.
    ///
    /// Once the pool is destroyed, requests fail with an error of kind [`Driver`](crate::ErrorKind::Driver) that says so, and so do
    /// the figures and `trim`. Blocks that were out then stay valid, and are freed as always: the driver keeps their memory until
    /// the last of them is freed, as its manual says and as an H100 with driver 580 does.
    ///
    /// # What cannot be known
    ///
    /// The driver notices a handle that is no pool's: driver 580 answers `CUDA_ERROR_INVALID_VALUE`, also for a pool whose last
    /// block was freed meanwhile. No manual promises that. A handle is an address: once the pool is gone, the driver may give its
    /// handle to another pool. A view that the driver has told of the end asks it nothing any more. One that was not used in
    /// between draws on the other pool, and has its [id](Resource::id).
    ///
    /// ```
    /// use alluvion::driver::PoolProperties;
    /// use alluvion::source::CudaAsyncView;
    /// use alluvion::{ErrorKind, Layout, Resource, Sim};
    ///
    /// let sim = Sim::new();
    /// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
    /// let driver = device.driver();
    /// let raw = driver.pool_create(0, PoolProperties::default())?;
    /// // SAFETY: it is a pool of this device, and is not destroyed during a call.
    /// let view = unsafe { CudaAsyncView::from_raw_until_destroyed(&device, raw) }?;
    /// let layout = Layout::from_bytes(1000)?;
    /// let block = view.allocate(layout, stream.as_ref())?;
    /// // SAFETY: the block came from `view` with this layout, and nothing uses it.
    /// unsafe { view.deallocate(block, layout, stream.as_ref()) };
    /// stream.synchronize()?;
    /// // SAFETY: nothing of the pool is out, and the view expects it.
    /// unsafe { driver.pool_destroy(0, raw) }?;
    /// let error = view.allocate(layout, stream.as_ref()).unwrap_err();
    /// assert!(error.kind() == ErrorKind::Driver && error.to_string().contains("has destroyed it"), "{error}");
    /// # sim.take_hazards();
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_raw`](Self::from_raw).
    ///
    /// # Safety
    ///
    /// - `raw` is null, or was made as a pool of `device` whose memory the device may read and write.
    /// - The pool is not destroyed during a call of the view, of a clone of it, or of this function.
    /// - The driver refuses handles of destroyed pools, and keeps memory that is out until it is freed.
    pub unsafe fn from_raw_until_destroyed(device: &Device, raw: RawPool) -> Result<Self, Error> {
        // SAFETY: the pool was one of this device, and calls after its end fail: the caller's promises.
        Self::checked(device, raw, || unsafe { DriverPool::until_destroyed("CudaAsyncView", device, raw) })
    }

    /// A view of what `pool` makes, if the handle is not null, and the driver knows it.
    fn checked(device: &Device, raw: RawPool, pool: impl FnOnce() -> DriverPool) -> Result<Self, Error> {
        if !device.capabilities()?.memory_pools {
            return Err(Error::unsupported("a memory pool", "the device has none", "use `Cuda`"));
        }
        if raw.0 == 0 {
            return Err(no_pool("it is null"));
        }
        let pool = pool();
        match pool.attribute(PoolAttribute::ReservedCurrent) {
            Ok(_) => Ok(Self { pool, owner: None }),
            Err(error) if matches!(error.code(), Some(Code::INVALID_VALUE | Code::INVALID_HANDLE)) => {
                Err(no_pool("the driver knows no such pool"))
            }
            Err(error) => Err(error),
        }
    }

    /// The driver's handle.
    #[must_use]
    pub fn raw_pool(&self) -> RawPool {
        self.pool.raw()
    }

    /// Bytes that the pool holds, handed out or not.
    pub fn reserved_bytes(&self) -> Result<usize, Error> {
        self.pool.bytes(PoolAttribute::ReservedCurrent)
    }

    /// Bytes that are handed out, to all users of the pool.
    pub fn used_bytes(&self) -> Result<usize, Error> {
        self.pool.bytes(PoolAttribute::UsedCurrent)
    }
}

#[cold]
fn no_pool(why: &'static str) -> Error {
    Error::invalid_argument("a handle of a pool", why, "pass a pool that outlives the view")
}

// SAFETY: as for `CudaAsync`; the pool outlives the view, because its owner is borrowed or `from_raw`'s caller promised
// it.
unsafe impl Resource for CudaAsyncView<'_> {
    draw_on_pool! {
        /// As for [`CudaAsync`]; every user of the pool has to grow it again.
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt_as("CudaAsyncView", f)
    }

    /// The owner, if it is a `CudaAsync`: the view itself cannot be looked up by type, because it borrows.
    fn layer(&self) -> Option<LayerBook<'_>> {
        self.owner.map(LayerBook::of::<CudaAsync>)
    }
}

// SAFETY: the blocks are memory of the device, or memory that the device may use: `from_raw`'s caller promised it.
unsafe impl DeviceAccessible for CudaAsyncView<'_> {}

/// Its pool exports if it is that of a [`CudaAsync`] with handle types: of another the types are not known.
impl Shareable for CudaAsyncView<'_> {}

impl<'p> From<&'p CudaAsync> for CudaAsyncView<'p> {
    fn from(owner: &'p CudaAsync) -> Self {
        Self::of(owner)
    }
}

impl fmt::Debug for CudaAsyncView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
