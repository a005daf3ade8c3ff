//! `Pinned`: memory of the host that the device reaches.

#![expect(unsafe_code, reason = "pins memory, and gives it back")]

mod config;
pub(super) mod host_memory;
#[cfg(unix)]
mod mapping;
#[cfg(not(unix))]
#[path = "unmapped.rs"]
mod mapping;

pub use config::{NumaPolicy, PinnedConfig};

use core::fmt;
use core::mem::ManuallyDrop;
use core::num::NonZero;
use core::ptr::NonNull;
use std::collections::HashMap;

use super::refusal;
use crate::device::Device;
use crate::driver::{DeviceAttribute, Driver, MemoryInfo, PinnedFlags, RelaxedCapture};
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    DeviceAccessible, DevicePtr, HostAccessible, Layer, LayerBook, Layout, Resource, ResourceId,
};
use crate::stream::StreamRef;
use crate::sync::{Arc, Mutex};
use mapping::Mapping;

/// Page-locked memory of the host, at one address for the host and for every device: the device reads and writes it by
/// itself, so that copies run beside everything else.
///
/// Small blocks come from the driver (`cuMemHostAlloc`), at 0.5 ms a pair whatever their size. Large ones, from
/// [`PinnedConfig::huge_bytes`] up, are mapped in huge pages near the device, touched by several threads and registered:
/// 143 ms for 4 GiB on an H200 host, where the driver took 1,187 ms. Where that cannot be done they come from the driver.
/// No block is rounded up to more than whole pages.
///
/// A clone is the same source: they free each other's blocks. Put a pool over it for anything that allocates often.
///
/// # Stream ordering
///
/// The stream is checked and not used to allocate: a block may be used by any stream, and by the host, as soon as it is
/// there. [`deallocate`](Resource::deallocate) waits, on the host, for the work of its stream: the device may be reading the block
/// until then. The driver's own free waits for all work of the device. A block that is freed on a stream while that stream
/// captures a graph is leaked, because nobody can say when the graph's work will be over.
///
/// # Thread safety
///
/// Any thread may call it. A large allocation starts up to [`PinnedConfig::threads`] threads, and has joined them when it
/// returns.
///
/// # Examples
///
/// ```
/// use alluvion::{Layout, Resource, Sim, source::Pinned};
///
/// let sim = Sim::new();
/// let resource = Pinned::new(&sim.device(0))?;
/// let layout = Layout::new(1000, 2 << 20)?;
/// let block = resource.allocate_sync(layout)?;
/// assert!(block.is_aligned_to(2 << 20));
/// // SAFETY: `block` came from this resource with this layout, and nothing uses it.
/// unsafe { resource.deallocate_sync(block, layout) };
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Pinned {
    core: Arc<PinnedCore>,
}

struct PinnedCore {
    device: Device,
    config: PinnedConfig,
    /// The node that `config` means on this device.
    node: Option<u32>,
    /// Whether the device takes memory that was mapped by somebody else.
    registers: bool,
    id: ResourceId,
    /// How the blocks were made that the driver does not simply take back by their address, by that address.
    origins: Mutex<HashMap<u64, Origin>>,
}

/// How a block was made, if it was not the driver that made it at its address.
enum Origin {
    /// Mapped and registered. Forgotten rather than unmapped, unless somebody says so: the device may reach it.
    Mapped(ManuallyDrop<Mapping>),
    /// The driver's, with this address, and more of it than was asked for: the block starts at an aligned address inside.
    Padded(u64),
}

static_assertions::assert_impl_all!(Pinned: Send, Sync, Clone, DeviceAccessible, HostAccessible);

/// What the driver aligns to.
const DRIVER_ALIGN: usize = 4096;

/// The largest page of x86-64; nothing is known to need more.
const MAX_ALIGN: usize = 1 << 30;

impl Pinned {
    pub(crate) const CARD: Card = Card {
        name: "pinned",
        about: "Page-locked memory of the host that the device reaches.",
        parameters: &[
            Parameter::new("portable", ArgumentKind::Flag, "page-locked for every device; true if left out"),
            Parameter::new(
                "numa",
                ArgumentKind::WordOrCount(&["near", "anywhere"]),
                "near the device, anywhere, or the number of a node; near if left out",
            ),
            Parameter::new(
                "huge",
                ArgumentKind::Size,
                "blocks from this size on are in huge pages; 2MiB if left out",
            ),
            Parameter::new(
                "threads",
                ArgumentKind::Count,
                "how many threads at most touch the pages of a new block; 8 if left out",
            ),
            Parameter::GPU,
        ],
    };
}

impl Pinned {
    /// Pinned memory near `device`, as the default configuration makes it.
    ///
    /// # Errors
    ///
    /// `Unsupported` if host and device have no common addresses; as the driver says.
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::with_config(device, PinnedConfig::default())
    }

    /// Pinned memory made as you say.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn with_config(device: &Device, config: PinnedConfig) -> Result<Self, Error> {
        if device.driver().attribute(device.ordinal(), DeviceAttribute::UnifiedAddressing)? == 0 {
            return Err(Error::unsupported(
                "pinned memory",
                "host and device have no common addresses",
                "copy from ordinary memory",
            ));
        }
        let capabilities = device.capabilities()?;
        let node = match config.numa {
            NumaPolicy::NearDevice => capabilities.numa_node,
            NumaPolicy::Node(node) => Some(node),
            NumaPolicy::Anywhere => None,
        };
        let core = PinnedCore {
            device: device.clone(),
            config,
            node,
            registers: capabilities.host_register,
            id: ResourceId::unique(),
            origins: Mutex::new(HashMap::new()),
        };
        Ok(Self { core: Arc::new(core) })
    }

    /// How it makes its blocks.
    pub fn config(&self) -> PinnedConfig {
        self.core.config
    }
}

impl PinnedCore {
    fn flags(&self) -> PinnedFlags {
        PinnedFlags { portable: self.config.portable, mapped: true, write_combined: false }
    }

    /// Leave to free beside a capture, or none where the driver refuses it, which is no reason to lose the block. `None` where
    /// there is no driver to free with, and in a child of the process that the block belongs to.
    fn relax_to_free<'d>(&self, driver: &'d dyn Driver) -> Option<Option<RelaxedCapture<'d>>> {
        if self.origins.is_of_parent() {
            return None;
        }
        match RelaxedCapture::enter(driver) {
            Ok(relaxed) => Some(Some(relaxed)),
            Err(error) if error.code.is_shut_down() => None,
            Err(_) => Some(None),
        }
    }

    /// Whether the block may have an origin on record. The layout alone decides, so that small blocks need no look.
    fn may_have_origin(&self, layout: Layout) -> bool {
        layout.align() > DRIVER_ALIGN || layout.bytes() >= self.config.huge_bytes
    }

    fn allocate(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(MAX_ALIGN)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        self.origins.require_here()?;
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::enter(driver)?;
        if self.may_have_origin(layout)
            && self.registers
            && let Some(mapping) = self.map(layout)
            && let Some(block) = self.register(driver, mapping)?
        {
            return Ok(block);
        }
        self.allocate_by_driver(driver, layout)
    }

    /// Present memory near the device; `None` if the host has none, or not enough of it.
    fn map(&self, layout: Layout) -> Option<Mapping> {
        // The driver answers with an error where the host has too little. To touch it would end the process.
        if host_memory::host_memory().is_some_and(|host| host.free_bytes < layout.bytes()) {
            return None;
        }
        let mapping = Mapping::new(layout.bytes(), layout.align())?;
        mapping.prefer_huge_pages();
        if let Some(node) = self.node {
            mapping.prefer_node(node);
        }
        mapping.populate(self.config.threads).then_some(mapping)
    }

    /// Pins a mapping; `None` if the driver does not want to.
    fn register(&self, driver: &dyn Driver, mapping: Mapping) -> Result<Option<DevicePtr>, Error> {
        let (ordinal, start) = (self.device.ordinal(), mapping.start());
        // SAFETY: the mapping is whole pages; `give_back` unmaps it after `unregister_host` only, and the record of it
        // forgets it rather than unmap it.
        let registered = unsafe { driver.register_host(ordinal, start, mapping.bytes(), self.flags()) };
        if let Err(error) = registered {
            let error = Error::of_driver(error, mapping.bytes());
            return if error.is_final() { Err(error) } else { Ok(None) };
        }
        let origin = Origin::Mapped(ManuallyDrop::new(mapping));
        Ok(self.record(driver, start.as_ptr().expose_provenance() as u64, origin))
    }

    /// A block of `cuMemHostAlloc`, with an aligned address somewhere inside.
    fn allocate_by_driver(&self, driver: &dyn Driver, layout: Layout) -> Result<DevicePtr, Error> {
        // A layout that is rounded up to its alignment does not overflow, so this does not.
        let padding = layout.align().saturating_sub(DRIVER_ALIGN);
        let bytes = layout.bytes() + padding;
        let start = driver
            .allocate_pinned(self.device.ordinal(), bytes, self.flags())
            .map_err(|error| refusal::failed("Pinned", &self.device, layout, error, host_memory::of_host))?;
        let refused = || refusal::refused("Pinned", &self.device, layout, host_memory::of_host);
        let start = start.as_ptr().expose_provenance() as u64;
        let block = start.next_multiple_of(layout.align() as u64);
        if block == start {
            return DevicePtr::new(start).ok_or_else(refused);
        }
        self.record(driver, block, Origin::Padded(start)).ok_or_else(refused)
    }

    /// Remembers how a block was made; gives it back and returns `None` if there is no memory to remember it in.
    fn record(&self, driver: &dyn Driver, block: u64, origin: Origin) -> Option<DevicePtr> {
        let mut origins = self.origins.lock();
        if origins.try_reserve(1).is_ok() {
            origins.insert(block, origin);
            return DevicePtr::new(block);
        }
        drop(origins);
        // SAFETY: nobody has seen the block, and it is not on record.
        unsafe { self.give_back(driver, block, Some(origin)) };
        None
    }

    /// Takes a block off the record, before its address can be another's.
    fn forget(&self, block: DevicePtr, layout: Layout) -> Option<Origin> {
        if self.may_have_origin(layout) { self.origins.lock().remove(&block.address()) } else { None }
    }

    /// Gives a block back to where it came from. What the driver refuses is leaked.
    ///
    /// # Safety
    ///
    /// The block was made by this core, as `origin` says, and is off the record. Nobody uses it: for a mapped one the device
    /// neither, while the driver waits for the device before it frees what is its own.
    unsafe fn give_back(&self, driver: &dyn Driver, block: u64, origin: Option<Origin>) {
        let ordinal = self.device.ordinal();
        let start = match origin {
            None => block,
            Some(Origin::Padded(start)) => start,
            Some(Origin::Mapped(mapping)) => {
                // SAFETY: `register` registered it, and no work that touches it is left, as the caller promises.
                let unregistered = unsafe { driver.unregister_host(ordinal, mapping.start()) };
                // Pages that are still registered stay mapped for ever: the device could reach them.
                if unregistered.is_ok() {
                    ManuallyDrop::into_inner(mapping).unmap();
                }
                return;
            }
        };
        let Some(start) = NonZero::new(start as usize) else { return };
        // SAFETY: the address came from `allocate_pinned` of this device, whose provenance was exposed, and the caller does
        // not use it again. A failure means that the context is lost, and the block with it.
        let _ = unsafe { driver.free_pinned(ordinal, NonNull::with_exposed_provenance(start)) };
    }
}

// SAFETY: the driver hands out memory that overlaps no other live memory, and so does the kernel of the host; both in whole
// pages, and larger alignments are seen to above. Blocks are on record in the core, which every clone shares and whose
// number is the id; where it is not asked, the layout says that the block is the driver's. They are forgotten, and
// not freed, with the core. Nothing unwinds: `populate` joins threads that do not.
unsafe impl Resource for Pinned {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.core.device.require(stream.device())?;
        self.core.allocate(layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        let driver = &**self.core.device.driver();
        let Some(_relaxed) = self.core.relax_to_free(driver) else { return };
        // What a graph recorded may run at any time, and to wait for a stream that captures would break the capture.
        let captures = stream.is_capturing();
        if matches!(captures, Ok(true)) {
            return;
        }
        let origin = self.core.forget(block, layout);
        // The driver waits by itself before it frees its own: 100 ms behind a task of 100 ms. Nobody says that it waits
        // before it unregisters. Without the wait the device may still be at it, and the pages are leaked.
        if matches!(origin, Some(Origin::Mapped(_))) && (captures.is_err() || stream.synchronize().is_err()) {
            return;
        }
        // SAFETY: the block is live and came from this core with this layout, as the caller promises; `forget` took its
        // record away. Its uses come before this point of the stream: for a mapped one they were waited for, and for the
        // others the driver waits.
        unsafe { self.core.give_back(driver, block.address(), origin) };
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.core.allocate(layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if layout.is_empty() {
            return;
        }
        let driver = &**self.core.device.driver();
        let Some(_relaxed) = self.core.relax_to_free(driver) else { return };
        let origin = self.core.forget(block, layout);
        // SAFETY: the block is live, came from this core with this layout, and every use is over, as the caller promises;
        // `forget` took its record away.
        unsafe { self.core.give_back(driver, block.address(), origin) };
    }

    fn device(&self) -> &Device {
        &self.core.device
    }

    fn id(&self) -> ResourceId {
        self.core.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pinned({})", self.core.device)
    }

    fn max_align(&self) -> usize {
        MAX_ALIGN
    }

    /// Of the host, as far as this process may use it.
    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        host_memory::of_host()
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }
}

// SAFETY: the flags say mapped, host and device have common addresses (`with_config` asked), and the driver refuses to pin
// where they would differ for the block at hand.
unsafe impl DeviceAccessible for Pinned {}
// SAFETY: it is ordinary, cached memory of the host, readable and writable, and whoever makes a block exposes its provenance.
unsafe impl HostAccessible for Pinned {}

impl Layer for Pinned {
    type Book = Self;
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
