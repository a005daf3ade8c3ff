//! `CudaAsyncView<'p>`: a memory pool of the driver with another owner.

#![expect(unsafe_code, reason = "uses a pool whose owner keeps it alive")]

use core::fmt;

use super::cuda_async::CudaAsync;
use super::driver_pool::{DriverPool, draw_on_pool};
use crate::device::Device;
use crate::driver::{Code, MemoryInfo, PoolAttribute, RawPool};
use crate::error::Error;
use crate::resource::{DeviceAccessible, DevicePtr, LayerBook, Layout, Resource, ResourceId};
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
        if !device.capabilities()?.memory_pools {
            return Err(Error::unsupported("a memory pool", "the device has none", "use `Cuda`"));
        }
        if raw.0 == 0 {
            return Err(no_pool("it is null"));
        }
        // SAFETY: the pool is of this device and lives long enough: the caller's promises; it is not null.
        let pool = unsafe { DriverPool::new("CudaAsyncView", device, raw) };
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
    ///
    /// # Errors
    ///
    /// As the driver says.
    pub fn reserved_bytes(&self) -> Result<usize, Error> {
        self.pool.bytes(PoolAttribute::ReservedCurrent)
    }

    /// Bytes that are handed out, to all users of the pool.
    ///
    /// # Errors
    ///
    /// As the driver says.
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
