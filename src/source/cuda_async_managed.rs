//! `CudaAsyncManaged`: the driver's own pool of managed memory.

#![expect(unsafe_code, reason = "draws on a pool that lives as long as the process")]

use core::fmt;

use super::block_range::BlockRange;
use super::driver_pool::{DriverPool, draw_on_pool};
use super::migration;
use crate::device::Device;
use crate::driver::{Location, MemoryInfo, PoolAttribute, PoolKind, RawPool, RelaxedCapture};
use crate::error::Error;
use crate::resource::card::{Card, Parameter};
use crate::resource::{
    DeviceAccessible, DevicePtr, HostAccessible, Layer, LayerBook, Layout, Resource, ResourceId,
};
use crate::stream::{OnStream, StreamRef};

/// Stream-ordered managed memory from the device's default managed pool.
///
/// The pool belongs to the driver and is shared with other code: none of its attributes is changed, so it keeps as much as its
/// release threshold says (nothing, unless other code has raised it). Two of these sources on one device free each other's blocks.
///
/// Driver 580 ends the process by signal 11 where the pool has to grow and other processes have all memory of the device. A request
/// looks for room first, and is out of memory where there is little, which makes that rare. It can still happen: where another thread
/// or process takes the room, or what the pool has to spare, in that very moment, and where what is spare lies in pieces or is still in
/// use by other streams. A [`CudaAsyncView`](super::CudaAsyncView) of such a pool does not look. [`Managed`](super::Managed) under a
/// [`Pool`](crate::Pool) asks the driver otherwise, and is not concerned.
///
/// # Stream ordering
///
/// As for [`CudaAsync`](super::CudaAsync). The host may access a block after a wait for the stream that it was allocated on, which
/// [`allocate_sync`](Resource::allocate_sync) makes.
///
/// # Thread safety
///
/// Any thread may call it.
///
/// # Examples
///
/// ```
/// use alluvion::{Resource, Sim, source::CudaAsyncManaged};
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let (first, second) = (CudaAsyncManaged::new(&device)?, CudaAsyncManaged::new(&device)?);
/// assert_eq!(first.id(), second.id());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct CudaAsyncManaged {
    pool: DriverPool,
}

static_assertions::assert_impl_all!(CudaAsyncManaged: Send, Sync, Clone, DeviceAccessible, HostAccessible);

/// The first driver with pools of managed memory: 13.0.
const MANAGED_POOLS_SINCE: u32 = 13_000;

impl CudaAsyncManaged {
    pub(crate) const CARD: Card = Card {
        name: "cuda-async-managed",
        about: "The driver's pool of managed memory, stream-ordered; needs CUDA 13.0.",
        parameters: &[Parameter::GPU],
    };
}

impl CudaAsyncManaged {
    /// The default managed pool of `device`.
    ///
    /// # Errors
    ///
    /// `Unsupported` below driver 13.0, on a device without memory pools, and wherever [`Managed`](super::Managed) is
    /// unsupported; as the driver says.
    pub fn new(device: &Device) -> Result<Self, Error> {
        const WHAT: &str = "a pool of managed memory";
        migration::require_host_access(device, WHAT)?;
        let capabilities = device.capabilities()?;
        if capabilities.driver_version < MANAGED_POOLS_SINCE {
            return Err(Error::unsupported(WHAT, "the driver is older than 13.0", "use `Managed`"));
        }
        if !capabilities.managed_pools {
            return Err(Error::unsupported(WHAT, "the device has no memory pools", "use `Managed`"));
        }
        let driver = &**device.driver();
        let raw = {
            let _relaxed = RelaxedCapture::enter(driver)?;
            driver.pool_default(device.ordinal(), PoolKind::Managed)?
        };
        // SAFETY: the driver has just named it, for this device, and keeps it as long as the process.
        let pool = unsafe { DriverPool::new("CudaAsyncManaged", device, raw) };
        Ok(Self { pool: pool.of_managed_memory() })
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

    /// As [`Managed::migrate`](super::Managed::migrate).
    ///
    /// # Errors
    ///
    /// As there.
    ///
    /// # Safety
    ///
    /// As there.
    pub unsafe fn migrate<'s>(
        &self,
        range: BlockRange,
        to: Location,
        stream: impl OnStream<'s>,
    ) -> Result<(), Error> {
        let stream = stream.stream_ref();
        // SAFETY: the block is of managed memory, because this id is that of a managed pool; the rest is the caller's
        // promise.
        unsafe { migration::migrate(self.pool.device(), range, to, stream) }
    }
}

// SAFETY: the driver hands out memory that overlaps no other live memory and is aligned to 256 at least; larger
// alignments are refused. Blocks are the pool's, and every resource with this id draws on that pool.
unsafe impl Resource for CudaAsyncManaged {
    draw_on_pool! {
        /// Only memory whose frees the host knows to be over is returned. The pool is shared: others have to grow it again.
    }

    fn host_access(&self) -> bool {
        true
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt_as("CudaAsyncManaged", f)
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }
}

impl Layer for CudaAsyncManaged {
    type Book = Self;
}

// SAFETY: managed memory is accessible to every device.
unsafe impl DeviceAccessible for CudaAsyncManaged {}

// SAFETY: the address is valid on the host once the allocation has run, which `allocate_sync` waits for, and the driver exposed it
// as a number. The host may touch the block at any time that no work touches it, because every device of the machine with managed
// memory has concurrent managed access: `new` checked.
unsafe impl HostAccessible for CudaAsyncManaged {}

impl fmt::Debug for CudaAsyncManaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
