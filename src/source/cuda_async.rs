//! `CudaAsync`: a memory pool of the driver, owned.

#![expect(unsafe_code, reason = "drives a pool that it owns")]

use core::any::Any;
use core::fmt;

use crate::device::Device;
use crate::driver::{PoolAttribute, PoolProperties, RawPool, RelaxedCapture};
use crate::error::Error;
use crate::resource::{DeviceAccessible, DevicePtr, Layout, Resource, ResourceId};
use crate::stream::StreamRef;

/// Stream-ordered device memory from a pool of the driver that this resource owns: `cuMemAllocFromPoolAsync`.
///
/// # Stream ordering
///
/// Real: memory freed on a stream is reused by it at once.
///
/// # Thread safety
///
/// Any thread may call it.
#[derive(Debug)]
pub struct CudaAsync {
    device: Device,
    pool: RawPool,
}

impl CudaAsync {
    /// A pool on `device` that keeps what is freed.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device has no memory pools; as the driver says.
    pub fn new(device: &Device) -> Result<Self, Error> {
        if !device.capabilities()?.memory_pools {
            return Err(Error::unsupported("a memory pool", "the device has none", "use `Cuda`"));
        }
        let driver = &**device.driver();
        let _relaxed = RelaxedCapture::enter(driver)?;
        let pool = driver.pool_create(device.ordinal(), PoolProperties::default())?;
        let made = Self { device: device.clone(), pool };
        // SAFETY: the pool was made just now.
        unsafe {
            driver.pool_set_attribute(device.ordinal(), pool, PoolAttribute::ReleaseThreshold, u64::MAX)
        }?;
        Ok(made)
    }
}

// SAFETY: the driver hands out memory that overlaps no other live memory and is aligned to 256 at least; larger
// alignments are refused. Blocks are the pool's, not this value's.
unsafe impl Resource for CudaAsync {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device.require(stream.device())?;
        layout.require_align(Layout::MIN_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        let driver = &**self.device.driver();
        // SAFETY: the pool is live, `self` owns it; the stream is live and of this device.
        let address =
            unsafe { driver.allocate_async(self.device.ordinal(), layout.bytes(), self.pool, stream.raw()) }
                .map_err(|error| Error::of_driver(error, layout.bytes()))?;
        DevicePtr::new(address).ok_or_else(|| Error::out_of_memory(layout.bytes()))
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        let driver = &**self.device.driver();
        // SAFETY: the block came from this pool and its uses come before this point of the stream, both the caller's
        // promises. A failure means that the context is lost, and the block with it.
        let _ = unsafe { driver.free_async(self.device.ordinal(), block.address(), stream.raw()) };
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn id(&self) -> ResourceId {
        ResourceId::shared::<RawPool>(&self.device, self.pool.0)
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaAsync({})", self.device)
    }

    fn layer(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

// SAFETY: it is memory of the device.
unsafe impl DeviceAccessible for CudaAsync {}

impl Drop for CudaAsync {
    fn drop(&mut self) {
        let driver = &**self.device.driver();
        let Ok(_relaxed) = RelaxedCapture::enter(driver) else { return };
        // SAFETY: `pool_create` made it, and nobody else owns it.
        let _ = unsafe { driver.pool_destroy(self.device.ordinal(), self.pool) };
    }
}
