//! `System`: ordinary memory of the host that the device can read.

#![expect(unsafe_code, reason = "maps and unmaps pages of the host")]

use core::fmt;
use core::ptr::NonNull;

use super::host_wait::has_passed;
use super::pages;
use super::pinned::host_memory;
use super::refusal;
use crate::device::Device;
use crate::driver::{Advice, Location, MemoryInfo, RelaxedCapture};
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    DeviceAccessible, DevicePtr, HostAccessible, Layer, LayerBook, Layout, Resource, ResourceId,
};
use crate::stream::StreamRef;

/// The configuration of a [`System`], set by chaining.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "a configuration does nothing until a resource is made with it"]
pub struct SystemConfig {
    headroom_bytes: Option<usize>,
}

impl SystemConfig {
    /// Bytes of the device's own memory that should stay free: the part of a block that does not fit beside them is advised to
    /// live on the host, the rest on the device. Without it, pages live where they are accessed first.
    ///
    /// Each allocation reads the free memory of the device; two allocations at once may both count on the same bytes.
    pub const fn headroom_bytes(mut self, bytes: usize) -> Self {
        self.headroom_bytes = Some(bytes);
        self
    }
}

/// Ordinary memory of the host that the device reads and writes as well, with HMM or ATS.
///
/// It exists on Linux, on devices whose [`pageable_memory_access`](crate::Capabilities::pageable_memory_access) says
/// so: with HMM (an open kernel module, Turing or newer) or on a board that shares page tables (Grace Hopper). Blocks
/// are whole pages, because a page migrates as one: no block shares its page with another, or with the heap.
///
/// The host may promise more memory than it has. An access can then end the process instead of returning an error.
///
/// # Stream ordering
///
/// A block may be used by any stream, and by the host, as soon as it is allocated. Deallocating waits, on the host, until the
/// stream is done, because the device may still be reading. If the stream captures, or the wait fails, the end of its work is
/// unknown, and the block is leaked. [`deallocate_sync`](Resource::deallocate_sync) does not wait, and never leaks.
///
/// # Thread safety
///
/// Any thread may call it.
///
/// # Examples
///
/// ```
/// use alluvion::driver::DeviceAttribute;
/// use alluvion::sim::SimConfig;
/// use alluvion::{Layout, Resource, Sim, source::System};
///
/// let sim = Sim::with_config(SimConfig::default().attribute(DeviceAttribute::PageableMemoryAccess, 1));
/// let resource = System::new(&sim.device(0))?;
/// let layout = Layout::array::<u64>(1024)?;
/// let block = resource.allocate_sync(layout)?;
/// // SAFETY: `block` came from this resource with this layout, and nothing uses it.
/// unsafe { resource.deallocate_sync(block, layout) };
///
/// let error = System::new(&Sim::new().device(0)).unwrap_err();
/// assert!(error.is_unsupported());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct System {
    device: Device,
    headroom_bytes: Option<usize>,
}

static_assertions::assert_impl_all!(System: Send, Sync, Clone, DeviceAccessible, HostAccessible);

/// The largest alignment: the largest page that host and device have in common. The operating system would allow more, but cutting
/// out an aligned block needs that much more address space.
const MAX_ALIGN: usize = 2 << 20;

impl System {
    pub(crate) const CARD: Card = Card {
        name: "system",
        about: "Ordinary memory of the host, with HMM or ATS.",
        parameters: &[
            Parameter::new(
                "headroom",
                ArgumentKind::Size,
                "bytes to leave free on the device; not checked if left out",
            ),
            Parameter::GPU,
        ],
    };
}

impl System {
    /// The host's memory, placed where it is accessed first.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device cannot read ordinary memory of the host; as the driver says.
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::with_config(device, SystemConfig::default())
    }

    /// The host's memory, placed as `config` says.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_config(device: &Device, config: SystemConfig) -> Result<Self, Error> {
        if !device.capabilities()?.pageable_memory_access {
            return Err(Error::unsupported(
                "ordinary memory of the host on the device",
                "the device cannot read pageable memory (no HMM, no ATS)",
                "use `Managed` or pinned memory",
            ));
        }
        Ok(Self { device: device.clone(), headroom_bytes: config.headroom_bytes })
    }

    /// Advises the driver where new pages should live.
    fn place(&self, start: NonNull<u8>, bytes: usize) -> Result<(), Error> {
        let Some(headroom) = self.headroom_bytes else { return Ok(()) };
        let free = self.device.memory_info()?.free_bytes;
        let near = near_bytes(bytes, free, headroom, pages::page_bytes());
        let home = Location::Device(self.device.ordinal());
        self.advise(start.addr().get(), near, home)?;
        self.advise(start.addr().get() + near, bytes - near, Location::Host)
    }

    fn advise(&self, address: usize, bytes: usize, location: Location) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::enter(driver)?;
        let advice = Advice::PreferredLocation(Some(location));
        // SAFETY: the range is part of pages that `allocate_sync` has mapped and holds.
        unsafe { driver.advise(self.device.ordinal(), address as u64, bytes, advice) }
            .map_err(|error| Error::of_driver(error, bytes))
    }
}

/// The number of `bytes` that fit on the device beside the headroom. Advice applies to whole pages, so it is a multiple of the
/// page.
fn near_bytes(bytes: usize, free: usize, headroom: usize, page: usize) -> usize {
    free.saturating_sub(headroom).min(bytes) / page * page
}

/// The bytes that a block of this layout takes: whole pages.
fn mapped_bytes(layout: Layout) -> Option<usize> {
    layout.bytes().checked_next_multiple_of(pages::page_bytes())
}

// SAFETY: the operating system hands out pages that overlap no other mapping and are aligned to 4096 at least; `map`
// honours larger alignments up to `max_align`, and larger ones are refused. Blocks are the process's, not this value's,
// and any `System` of the device can unmap them.
unsafe impl Resource for System {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device.require(stream.device())?;
        self.allocate_sync(layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        if !has_passed(stream) {
            return;
        }
        // SAFETY: the caller's promises; every use was ordered before that point of the stream, and the stream has passed
        // it, so that every use is over.
        unsafe { self.deallocate_sync(block, layout) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(MAX_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        let out_of_memory = || refusal::refused("System", &self.device, layout, host_memory::of_host);
        let bytes = mapped_bytes(layout).ok_or_else(out_of_memory)?;
        let start = pages::map(bytes, layout.block_align()).ok_or_else(out_of_memory)?;
        let block = DevicePtr::new(start.addr().get() as u64).ok_or_else(out_of_memory);
        match self.place(start, bytes).and(block) {
            Ok(block) => Ok(block),
            Err(error) => {
                // SAFETY: `map` returned the pages just now, and they were not handed out.
                let _ = unsafe { pages::unmap(start, bytes) };
                Err(error)
            }
        }
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        let address = core::ptr::with_exposed_provenance_mut(block.address() as usize);
        let (Some(start), Some(bytes)) = (NonNull::new(address), mapped_bytes(layout)) else { return };
        if layout.is_empty() {
            return;
        }
        // Advice ends with its pages.
        // SAFETY: the block came from `map`, because only a `System` has this id, with as many bytes, because the
        // layout fits, and the caller does not use it again.
        let _ = unsafe { pages::unmap(start, bytes) };
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
        write!(f, "System({})", self.device)
    }

    fn max_align(&self) -> usize {
        MAX_ALIGN
    }

    /// The memory of the host, as far as this process may use it.
    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        host_memory::of_host()
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }
}

impl Layer for System {
    type Book = Self;
}

// SAFETY: the device reads and writes pageable memory of this process: `with_config` checked it.
unsafe impl DeviceAccessible for System {}

// SAFETY: the pages are mapped for reading and writing in this process, and `map` exposed their provenance. Ordinary
// memory may be touched whatever the device does elsewhere.
unsafe impl HostAccessible for System {}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_fits_beside_the_headroom_is_near_in_whole_pages() {
        for (bytes, free, headroom, near) in [
            (8192, 100_000, 0, 8192),
            (8192, 10_000, 0, 8192),
            (8192, 10_000, 3000, 4096),
            (8192, 10_000, 6000, 0),
            (8192, 10_000, usize::MAX, 0),
            (8192, 0, 0, 0),
        ] {
            assert_eq!(near_bytes(bytes, free, headroom, 4096), near, "{bytes} {free} {headroom}");
        }
    }
}
