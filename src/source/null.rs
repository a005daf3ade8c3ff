//! `Null`: addresses without memory, to measure what a layer costs.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use core::fmt;

use super::refusal;
use crate::device::Device;
use crate::error::Error;
use crate::resource::card::{Card, Parameter};
use crate::resource::{DevicePtr, Layer, LayerBook, Layout, Resource, ResourceId};
use crate::stream::StreamRef;
use crate::sync::{AtomicU64, Ordering};

/// Addresses without memory behind them, to measure the cost that a layer adds.
///
/// It never fails and never reaches a driver. Its blocks must not be accessed, so it is neither
/// [`DeviceAccessible`](crate::DeviceAccessible) nor [`HostAccessible`](crate::HostAccessible), and no container takes it.
///
/// # Stream ordering
///
/// The stream is checked and not used.
///
/// # Thread safety
///
/// Any thread may call it; an allocation is one atomic addition.
///
/// # Examples
///
/// ```
/// use alluvion::{Layout, Resource, Sim, source::Null};
///
/// let sim = Sim::new();
/// let (resource, stream) = (Null::new(&sim.device(0)), sim.device(0).stream()?);
/// let layout = Layout::from_bytes(1000)?;
/// let (first, second) = (resource.allocate(layout, stream.as_ref())?, resource.allocate(layout, stream.as_ref())?);
/// assert_eq!(second.address() - first.address(), 1024);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Null {
    device: Device,
    id: ResourceId,
    next: AtomicU64,
}

static_assertions::assert_impl_all!(Null: Send, Sync);
static_assertions::assert_not_impl_any!(Null: Clone, crate::resource::DeviceAccessible, crate::resource::HostAccessible);

/// The first address: beyond 57-bit page tables, so that an access faults.
const FIRST: u64 = 1 << 60;

impl Null {
    pub(crate) const CARD: Card = Card {
        name: "null",
        about: "Addresses without memory, to measure the layers over it; no container takes it.",
        parameters: &[Parameter::GPU],
    };
}

impl Null {
    /// A source of addresses for `device`.
    #[must_use]
    pub fn new(device: &Device) -> Self {
        Self { device: device.clone(), id: ResourceId::unique(), next: AtomicU64::new(FIRST) }
    }
}

// SAFETY: addresses only ever go up, in whole units of the alignment, so no two live blocks overlap: at 1 TiB a
// microsecond they would last for twelve days.
unsafe impl Resource for Null {
    #[inline]
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device.require(stream.device())?;
        self.allocate_sync(layout)
    }

    #[inline]
    unsafe fn deallocate(&self, _: DevicePtr, _: Layout, _: StreamRef<'_>) {}

    #[inline]
    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(Layout::MIN_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        // Relaxed: only that the ranges differ matters.
        let address = self.next.fetch_add(layout.rounded_bytes() as u64, Ordering::Relaxed);
        DevicePtr::new(address)
            .ok_or_else(|| refusal::refused("Null", &self.device, layout, || self.memory_info()))
    }

    unsafe fn deallocate_sync(&self, _: DevicePtr, _: Layout) {}

    fn device(&self) -> &Device {
        &self.device
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Null({})", self.device)
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }
}

impl Layer for Null {
    type Book = Self;
}

impl fmt::Debug for Null {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
