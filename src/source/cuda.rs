//! `Cuda`: `cuMemAlloc` and `cuMemFree`.

#![expect(unsafe_code, reason = "gives blocks back to the driver")]

use core::fmt;

use super::exporting::{refused_export, sharing_of};
use super::{CudaConfig, peers, refusal};
use crate::device::Device;
use crate::driver::RelaxedCapture;
use crate::error::Error;
use crate::resource::card::{Card, Parameter};
use crate::resource::{
    DeviceAccessible, DevicePtr, Export, Layer, LayerBook, Layout, Resource, ResourceId, Shareable,
};
use crate::stream::StreamRef;

/// Device memory straight from the driver, `cuMemAlloc` and `cuMemFree`.
///
/// Every call reaches the driver: about 47 µs a pair on an H200, and the free waits for *all* work of the device. Use it under a
/// pool, or for a few blocks that live long.
///
/// # Stream ordering
///
/// The stream is checked and not used: a block may be used by any stream as soon as it is allocated, and is free only when
/// the device is idle.
///
/// # Thread safety
///
/// Any thread may call it.
///
/// # Examples
///
/// ```
/// use alluvion::{DeviceVec, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let (resource, stream) = (Cuda::new(&device), device.stream()?);
/// let vector = DeviceVec::from_slice_in(&[1.0, 2.0], &stream, &resource)?;
/// assert_eq!(vector.to_vec(&stream)?, [1.0, 2.0]);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Cuda {
    device: Device,
}

static_assertions::assert_impl_all!(Cuda: Send, Sync, Clone, DeviceAccessible);
static_assertions::assert_not_impl_any!(Cuda: crate::resource::HostAccessible);

impl Cuda {
    pub(crate) const CARD: Card = Card {
        name: "cuda",
        about: "cuMemAlloc: a call to the driver for each block, and a free waits for the device.",
        parameters: &[Parameter::GPU, Parameter::PEERS],
    };
}

impl Cuda {
    /// The memory of `device`.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone() }
    }

    /// The memory of `device`, as `config` says.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a peer that cannot access the memory of the device, which [`Error::refused_peer`] names;
    /// `DeviceMismatch` for a peer of another machine; `Unsupported` for peers where the driver has no such calls; as the driver
    /// says. If one peer cannot, none has got access; if the driver fails, some may have.
    #[expect(clippy::needless_pass_by_value, reason = "every source takes its configuration whole")]
    pub fn with_config(device: &Device, config: CudaConfig) -> Result<Self, Error> {
        peers::give_access(device, config.peer_devices(), |sharing, peer| {
            sharing.reach(peer, device.ordinal())
        })?;
        Ok(Self::new(device))
    }
}

// SAFETY: the driver hands out memory that overlaps no other live memory and is aligned to 256 at least; larger
// alignments are refused. Blocks are the driver's, not this value's, and any `Cuda` of the device can free them.
unsafe impl Resource for Cuda {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device.require(stream.device())?;
        self.allocate_sync(layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, _: StreamRef<'_>) {
        // SAFETY: the caller's promises, but for the uses that are ordered before the stream and may not be over yet:
        // `cuMemFree` waits for all of them.
        unsafe { self.deallocate_sync(block, layout) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(Layout::MIN_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::enter(driver)?;
        let answer = driver.allocate_device(self.device.ordinal(), layout.bytes());
        refusal::block_of("Cuda", &self.device, layout, answer, || self.memory_info())
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if layout.is_empty() {
            return;
        }
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::attempt(driver);
        // SAFETY: the block came from `allocate_device` of this device, because only a `Cuda` of this device has this id, and
        // the caller does not use it again.
        let freed = unsafe { driver.free_device(self.device.ordinal(), block.address()) };
        refusal::of_free(freed, block, layout);
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn id(&self) -> ResourceId {
        ResourceId::shared::<Self>(&self.device, 0)
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({})", self.device)
    }

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        if layout.is_empty() {
            return Ok(Export::of_nothing());
        }
        let (driver, ordinal) = (&**self.device.driver(), self.device.ordinal());
        let sharing = sharing_of(&self.device)?;
        let _relaxed = RelaxedCapture::enter(driver)?;
        // SAFETY: the block is live, of `allocate_device` of this device: only a `Cuda` of it has this id.
        let handle = unsafe { sharing.memory_handle(ordinal, block.address()) };
        Ok(Export::of_allocation(handle.map_err(refused_export)?, block.address(), layout.bytes()))
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }
}

impl Layer for Cuda {
    type Book = Self;
}

// SAFETY: the blocks are memory of the device.
unsafe impl DeviceAccessible for Cuda {}

impl Shareable for Cuda {}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
