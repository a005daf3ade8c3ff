//! `Managed`: memory that migrates between host and device.

#![expect(unsafe_code, reason = "gives blocks back to the driver")]

use core::fmt;

use super::block_range::BlockRange;
use super::migration;
use super::refusal;
use crate::device::Device;
use crate::driver::{Advice, Location, RelaxedCapture};
use crate::error::Error;
use crate::resource::card::{Card, Parameter};
use crate::resource::{
    DeviceAccessible, DevicePtr, HostAccessible, Layer, LayerBook, Layout, Resource, ResourceId,
};
use crate::stream::{OnStream, StreamRef};

/// Managed memory, `cuMemAllocManaged`: one address for the host and every device, and pages that migrate to their user.
///
/// It is available only where host and devices may access managed memory at once. Elsewhere the host must not access *any* of it
/// while *any* kernel runs, which no type can promise, so [`new`](Self::new) fails there.
///
/// Every call reaches the driver, and a free waits for the device: use it under a pool.
///
/// # Stream ordering
///
/// The stream is checked and not used: a block may be used by any stream, and by the host, as soon as it is allocated,
/// and is free only when the device is idle.
///
/// # Thread safety
///
/// Any thread may call it.
///
/// # Examples
///
/// ```
/// use alluvion::driver::Location;
/// use alluvion::{Layout, Resource, Sim, source::{BlockRange, Managed}};
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let (resource, stream) = (Managed::new(&device)?, device.stream()?);
/// let layout = Layout::array::<f32>(1024)?;
/// let block = resource.allocate(layout, stream.as_ref())?;
/// let first_half = BlockRange::new(block, layout, ..2048)?;
/// // SAFETY: the block is live, and freed below when the device is idle.
/// unsafe { resource.migrate(first_half, Location::Device(0), &stream) }?;
/// // SAFETY: `block` came from this resource with this layout, and all of its uses are on the stream.
/// unsafe { resource.deallocate(block, layout, stream.as_ref()) };
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Managed {
    device: Device,
}

static_assertions::assert_impl_all!(Managed: Send, Sync, Clone, DeviceAccessible, HostAccessible);

impl Managed {
    pub(crate) const CARD: Card = Card {
        name: "managed",
        about: "cuMemAllocManaged: memory that moves between host and device.",
        parameters: &[Parameter::GPU],
    };
}

impl Managed {
    /// The managed memory of the machine, as `device` sees it.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device has no managed memory, or if it or another device of the machine lacks concurrent
    /// managed access; as the driver says.
    pub fn new(device: &Device) -> Result<Self, Error> {
        migration::require_host_access(device, "managed memory")?;
        Ok(Self { device: device.clone() })
    }

    /// Queues the migration of part of a block, so that work ordered after it does not fault page by page. No bytes
    /// change.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a stream of another device; `NoDevice` for a location that does not exist; a capture error while the
    /// stream captures; as the driver says.
    ///
    /// # Safety
    ///
    /// The range is of a live block of a resource with this [`id`](Resource::id), which is deallocated behind this
    /// point of `stream`, as behind any other use.
    pub unsafe fn migrate<'s>(
        &self,
        range: BlockRange,
        to: Location,
        stream: impl OnStream<'s>,
    ) -> Result<(), Error> {
        let stream = stream.stream_ref();
        // SAFETY: the block is of managed memory, because only a `Managed` has this id; the rest is the caller's promise.
        unsafe { migration::migrate(&self.device, range, to, stream) }
    }

    /// Advises on how part of a block will be used. Applies to all pages that the range touches. No bytes change.
    ///
    /// # Errors
    ///
    /// `NoDevice` for a location that does not exist; as the driver says.
    ///
    /// # Safety
    ///
    /// The range is of a live block of a resource with this [`id`](Resource::id).
    pub unsafe fn advise(&self, range: BlockRange, advice: Advice) -> Result<(), Error> {
        // SAFETY: the block is of managed memory, because only a `Managed` has this id, and live: the caller's promise.
        unsafe { migration::advise(&self.device, range, advice) }
    }
}

// SAFETY: the driver hands out memory that overlaps no other live memory and is aligned to 256 at least; larger
// alignments are refused. Blocks are the driver's, not this value's, and any `Managed` of the device can free them.
unsafe impl Resource for Managed {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device.require(stream.device())?;
        self.allocate_sync(layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, _: StreamRef<'_>) {
        // SAFETY: the caller's promises, but for the uses that are ordered before the stream and may not be over yet:
        // `cuMemFree` waits for all of them, those on other devices included, because this device waits for those.
        unsafe { self.deallocate_sync(block, layout) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(Layout::MIN_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::enter(driver)?;
        let answer = driver.allocate_managed(self.device.ordinal(), layout.bytes());
        refusal::block_of("Managed", &self.device, layout, answer, || self.memory_info())
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if layout.is_empty() {
            return;
        }
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::attempt(driver);
        // SAFETY: the block came from `allocate_managed` of this device, because only a `Managed` of this device has this id,
        // and the caller does not use it again.
        let freed = unsafe { driver.free_device(self.device.ordinal(), block.address()) };
        refusal::of_free(freed, block, layout);
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn id(&self) -> ResourceId {
        ResourceId::shared::<Self>(&self.device, 0)
    }

    fn host_access(&self) -> bool {
        true
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Managed({})", self.device)
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }
}

impl Layer for Managed {
    type Book = Self;
}

// SAFETY: managed memory is accessible to every device; it is attached to all streams.
unsafe impl DeviceAccessible for Managed {}

// SAFETY: the address is valid on the host from the return of `cuMemAllocManaged`, and the driver exposed it as a number. The host
// may touch the block at any time that no work touches it, whatever else the devices do, because every device of the machine with
// managed memory has concurrent managed access: `new` checked.
unsafe impl HostAccessible for Managed {}

impl fmt::Debug for Managed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
