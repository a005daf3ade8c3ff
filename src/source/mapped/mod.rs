//! `Mapped`: addresses and physical memory, apart.

#![expect(unsafe_code, reason = "maps, unmaps and releases physical memory")]

mod config;
mod probe;

pub use config::MappedConfig;

use core::fmt;
use std::collections::{BTreeMap, HashMap};
use std::sync::Weak;

use super::exporting::{handle_type_of, refused_export};
use super::host_wait::has_passed;
use super::{peers, refusal};
use crate::blocks::BlockTable;
use crate::device::Device;
use crate::driver::{Driver, DriverError, ExportedMemory, HandleType, Location, MapAccess, RawMemory};
use crate::error::Error;
use crate::resource::card::{Card, Parameter};
use crate::resource::{
    DeviceAccessible, DevicePtr, Export, Layer, LayerBook, Layout, Page, Pages, Resource, ResourceId,
    Shareable, no_export, require_whole_pages,
};
use crate::stream::StreamRef;
use crate::sync::{Arc, Mutex};

/// Physical memory of the device that is mapped into reserved addresses: `cuMemCreate`, `cuMemMap`.
///
/// It is the upstream for a pool that grows in place and moves free memory: [`pages`](Resource::pages) returns the calls that the
/// pool needs. On an H200 a page of any size costs about 100 µs to create, map, unmap and release again, and no call waits for
/// work of the device.
///
/// Alone it serves each block with a range of addresses and a page of its own, rounded up to whole units of
/// [`page_bytes`](Pages::page_bytes): 2 MiB on the GPUs of today. Clones are the same source: they free each other's blocks, and
/// take each other's pages. Memory that is live when the last clone is dropped stays mapped for ever.
///
/// # Stream ordering
///
/// The stream is checked and not used to allocate: a block may be used by any stream as soon as it is allocated.
/// [`deallocate`](Resource::deallocate) waits, on the host, for the work of its stream, because unmapping does not: work that uses
/// unmapped memory loses the context. If the stream captures, or the wait fails, the end of its work is unknown, and the block is
/// leaked. [`deallocate_sync`](Resource::deallocate_sync) does not wait.
///
/// # Thread safety
///
/// Any thread may call it.
///
/// # Examples
///
/// ```
/// use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, source::Mapped};
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let (pool, stream) = (Mapped::new(&device)?.pool(PoolConfig::default())?, device.stream()?);
/// let vector = DeviceVec::from_slice_in(&[1.0, 2.0], &stream, &pool)?;
/// assert_eq!(vector.to_vec(&stream)?, [1.0, 2.0]);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone)]
pub struct Mapped {
    core: Arc<MappedCore>,
}

struct MappedCore {
    device: Device,
    config: MappedConfig,
    /// The ordinals of the devices that may access what is mapped, that of `device` first.
    accessors: Vec<u32>,
    /// The unit of ranges and pages: a power of two.
    unit: usize,
    /// All memory of the device: no page is larger.
    total_bytes: usize,
    id: ResourceId,
    /// The ranges and pages of the blocks that were allocated one by one, by their addresses.
    blocks: BlockTable<MappedBlock>,
    /// Mappings without access that could not be undone, by their addresses, with their bytes.
    lost: Mutex<BTreeMap<u64, usize>>,
    /// What stands for pages in other processes, while somebody has it, by the pages' numbers.
    exported: Mutex<HashMap<u64, Weak<ExportedMemory>>>,
}

/// What a block consists of, beside its address.
#[derive(Clone, Copy)]
struct MappedBlock {
    range_bytes: usize,
    page: Page,
}

static_assertions::assert_impl_all!(Mapped: Send, Sync, Clone, DeviceAccessible);
static_assertions::assert_not_impl_any!(Mapped: crate::resource::HostAccessible);

impl Mapped {
    pub(crate) const CARD: Card = Card {
        name: "mapped",
        about: "Pages that are mapped into reserved addresses: a pool over it grows in place.",
        parameters: &[Parameter::GPU, Parameter::PEERS, Parameter::HANDLES],
    };
}

impl Mapped {
    /// Pages of the memory of `device`, which no other device accesses.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device has no virtual memory management; as the driver says.
    pub fn new(device: &Device) -> Result<Self, Error> {
        Self::with_config(device, MappedConfig::default())
    }

    /// Pages of the memory of `device`, as `config` says. If the configuration names peers or handle types, one page is created and
    /// mapped as a trial.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the device has no virtual memory management, or cannot export its memory as asked; `InvalidArgument` for a
    /// peer that cannot access the memory of the device, which [`Error::refused_peer`] names; `DeviceMismatch` for a peer of another machine; `OutOfMemory` without
    /// the memory for the trial; as the driver says.
    pub fn with_config(device: &Device, config: MappedConfig) -> Result<Self, Error> {
        let mapped = Self::untried(device, config)?;
        mapped.core.try_config()?;
        Ok(mapped)
    }

    fn untried(device: &Device, config: MappedConfig) -> Result<Self, Error> {
        let capabilities = device.capabilities()?;
        if !capabilities.virtual_memory {
            return Err(Error::unsupported(
                "memory that is mapped in pages",
                "the device has no virtual memory management",
                "use `CudaAsync`, or `Cuda` under a pool",
            ));
        }
        let unit = device.driver().virtual_granularity(device.ordinal())?;
        let mut accessors = vec![device.ordinal()];
        accessors.extend(peers::ordinals(device, config.peer_devices())?);
        let core = MappedCore {
            device: device.clone(),
            accessors,
            unit,
            total_bytes: capabilities.total_bytes,
            id: ResourceId::unique(),
            blocks: BlockTable::default(),
            lost: Mutex::new(BTreeMap::new()),
            exported: Mutex::new(HashMap::new()),
            config,
        };
        Ok(Self { core: Arc::new(core) })
    }

    /// As [`with_config`](Self::with_config), where a page can be had: also without peers and handle types one is tried, because some
    /// shared GPUs say that they map pages and do not.
    pub(crate) fn tried(device: &Device, config: MappedConfig) -> Result<Self, Error> {
        let mapped = Self::untried(device, config)?;
        mapped.core.try_a_page()?;
        Ok(mapped)
    }

    /// The configuration.
    pub fn config(&self) -> &MappedConfig {
        &self.core.config
    }
}

impl MappedCore {
    fn driver(&self) -> &dyn Driver {
        &**self.device.driver()
    }

    fn ordinal(&self) -> u32 {
        self.device.ordinal()
    }

    fn reserve(&self, bytes: usize) -> Result<DevicePtr, Error> {
        require_whole_pages(bytes, self.unit)?;
        let layout = Layout::from_bytes(bytes)?;
        let answer = self.driver().virtual_reserve(self.ordinal(), bytes, self.unit);
        refusal::block_of("Mapped", &self.device, layout, answer, || self.device.memory_info())
    }

    fn create(&self, bytes: usize) -> Result<Page, Error> {
        require_whole_pages(bytes, self.unit)?;
        let layout = Layout::from_bytes(bytes)?;
        let memory_info = || self.device.memory_info();
        // Drivers differ in what they say about absurd sizes.
        if bytes > self.total_bytes {
            return Err(refusal::refused("Mapped", &self.device, layout, memory_info));
        }
        match self.driver().memory_create(self.ordinal(), bytes, self.config.exported_as()) {
            Ok(memory) => Ok(Page::new(memory.0, bytes)),
            Err(error) => Err(refusal::failed("Mapped", &self.device, layout, error, memory_info)),
        }
    }

    /// # Safety
    ///
    /// As [`Pages::unreserve`].
    unsafe fn unreserve(&self, range: DevicePtr, bytes: usize) {
        if self.is_lost(range, bytes) {
            return;
        }
        // SAFETY: the range is one whole reservation and unused: the caller's promise. If the driver refuses, it is leaked.
        let _ = unsafe { self.driver().virtual_free(self.ordinal(), range.address(), bytes) };
    }

    /// # Safety
    ///
    /// As [`Pages::release`].
    unsafe fn release(&self, page: Page) {
        if self.config.exported_as() != HandleType::NONE
            && let Some(mut exported) = self.exported.lock_unless_forked()
        {
            // The number may be another page's from now on.
            exported.remove(&page.number());
        }
        // SAFETY: the number is a handle of `memory_create`, because `create` made the page, and it is not used again: the
        // caller's promise. If the driver refuses, the memory is leaked.
        let _ = unsafe { self.driver().memory_release(self.ordinal(), RawMemory(page.number())) };
    }

    /// # Safety
    ///
    /// As [`Pages::export_page`].
    unsafe fn export(&self, page: Page) -> Result<Arc<ExportedMemory>, Error> {
        self.exported.require_same_process()?;
        let handle_type = handle_type_of(self.config.exported_as())?;
        if let Some(exported) = self.exported.lock().get(&page.number()).and_then(Weak::upgrade) {
            return Ok(exported);
        }
        // SAFETY: the page was not released: the caller's promise, and `create` made it, so the number is a handle.
        let made =
            unsafe { self.driver().memory_export(self.ordinal(), RawMemory(page.number()), handle_type) };
        let made = Arc::new(made.map_err(refused_export)?);
        // Not made under the lock, because that would be a driver call under a lock. Two threads may make two.
        self.exported.lock().insert(page.number(), Arc::downgrade(&made));
        Ok(made)
    }

    /// Maps a page for every accessor. An error comes with the ordinal of the accessor that was refused; for the mapping itself that
    /// is the device's own.
    ///
    /// # Safety
    ///
    /// As [`Pages::map`].
    unsafe fn map_for_all(&self, page: Page, at: DevicePtr) -> Result<(), (u32, DriverError)> {
        let (driver, ordinal, address, bytes) = (self.driver(), self.ordinal(), at.address(), page.bytes());
        self.undo_lost(address, bytes).map_err(|error| (ordinal, error))?;
        // SAFETY: the memory is live and so many bytes long: the caller's promise, and `create` made the page with its size.
        unsafe { driver.memory_map(ordinal, address, bytes, RawMemory(page.number())) }
            .map_err(|error| (ordinal, error))?;
        let opened = self.accessors.iter().try_for_each(|&accessor| {
            let (location, access) = (Location::Device(accessor), MapAccess::ReadWrite);
            // SAFETY: it only gives access.
            unsafe { driver.memory_set_access(ordinal, address, bytes, location, access) }
                .map_err(|error| (accessor, error))
        });
        opened.inspect_err(|_| {
            // SAFETY: it was mapped just now, and the address was not handed out, so that no work uses it.
            let undone = unsafe { driver.memory_unmap(ordinal, address, bytes) };
            // The driver refuses to map anything there again, or to free the addresses.
            if undone.is_err()
                && let Some(mut lost) = self.lost.lock_unless_forked()
            {
                lost.insert(address, bytes);
            }
        })
    }

    /// Unmaps what a call of `map_for_all` left mapped at one of these addresses.
    fn undo_lost(&self, address: u64, bytes: usize) -> Result<(), DriverError> {
        let end = address.saturating_add(bytes as u64);
        loop {
            let found = {
                let Some(lost) = self.lost.lock_unless_forked() else { return Ok(()) };
                let before = lost.range(..end).next_back().map(|(&at, &bytes)| (at, bytes));
                before.filter(|&(at, bytes)| at + bytes as u64 > address)
            };
            let Some((at, bytes)) = found else { return Ok(()) };
            // SAFETY: it is mapped there still, because each attempt to unmap it failed, and no work uses it: the address was not
            // handed out, and is not before it is mapped anew.
            unsafe { self.driver().memory_unmap(self.ordinal(), at, bytes) }?;
            if let Some(mut lost) = self.lost.lock_unless_forked() {
                lost.remove(&at);
            }
        }
    }

    fn is_lost(&self, at: DevicePtr, bytes: usize) -> bool {
        self.undo_lost(at.address(), bytes).is_err()
    }

    /// # Safety
    ///
    /// As [`Pages::map`].
    unsafe fn map(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        // SAFETY: the caller's promises.
        unsafe { self.map_for_all(page, at) }.map_err(|(_, error)| Error::of_driver(error, page.bytes()))
    }

    /// # Safety
    ///
    /// As [`Pages::unmap`].
    unsafe fn unmap(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        // SAFETY: no work that uses the range is left: the caller's promise.
        unsafe { self.driver().memory_unmap(self.ordinal(), at.address(), page.bytes()) }
            .map_err(|error| Error::of_driver(error, page.bytes()))
    }

    /// A new page and a new range of its own, as long as the page.
    fn apart(&self, bytes: usize) -> Result<(DevicePtr, MappedBlock), Error> {
        let page = self.create(bytes)?;
        let range = self.reserve(bytes).inspect_err(|_| {
            // SAFETY: the page was created just now and has no address.
            unsafe { self.release(page) };
        })?;
        Ok((range, MappedBlock { range_bytes: bytes, page }))
    }

    /// A new page, mapped at a new range of its own.
    fn mapped(&self, bytes: usize) -> Result<(DevicePtr, MappedBlock), Error> {
        let (range, block) = self.apart(bytes)?;
        // SAFETY: page and range were made just now: the page has no address, and nothing is mapped in the range, which is as
        // long as the page.
        match unsafe { self.map(block.page, range) } {
            Ok(()) => Ok((range, block)),
            Err(error) => {
                // SAFETY: the page has no address, because mapping it failed.
                unsafe { self.release_unmapped(range, block) };
                Err(error)
            }
        }
    }

    /// # Safety
    ///
    /// The block was made by `apart`, is not mapped, and is not used again.
    unsafe fn release_unmapped(&self, range: DevicePtr, block: MappedBlock) {
        // SAFETY: the page is of `create`, has no address and is not used again: the caller's promise.
        unsafe { self.release(block.page) };
        // SAFETY: the range is of `reserve`, with so many bytes, and empty, because its one page is not mapped.
        unsafe { self.unreserve(range, block.range_bytes) };
    }

    /// Unmaps a block and gives its memory and addresses back. A block that cannot be unmapped is leaked.
    ///
    /// # Safety
    ///
    /// The block was made by `mapped`, and no work that is left uses it.
    unsafe fn free(&self, range: DevicePtr, block: MappedBlock) {
        // SAFETY: `mapped` mapped the page there, and no work that is left uses it: the caller's promise.
        if unsafe { self.unmap(block.page, range) }.is_ok() {
            // SAFETY: it was unmapped just now, and the caller does not use it again.
            unsafe { self.release_unmapped(range, block) };
        }
    }

    fn allocate(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(self.unit)?;
        if layout.is_empty() {
            return Ok(layout.dangling());
        }
        self.blocks.require_same_process()?;
        let out_of_memory = || refusal::refused("Mapped", &self.device, layout, || self.device.memory_info());
        let bytes = layout.bytes().checked_next_multiple_of(self.unit).ok_or_else(out_of_memory)?;
        if bytes > self.total_bytes {
            return Err(out_of_memory());
        }
        let (range, block) = self.mapped(bytes)?;
        let Err(block) = self.blocks.try_insert(range, block) else { return Ok(range) };
        // SAFETY: it was mapped just now, and the address was not handed out, so that no work uses it.
        unsafe { self.free(range, block) };
        Err(out_of_memory())
    }

    /// Removes the record of a block, before its address can be reused. `None` in a child of the process that the block belongs to.
    fn forget(&self, block: DevicePtr) -> Option<MappedBlock> {
        self.blocks.take(block)
    }
}

// SAFETY: a range of the driver's overlaps no other range or memory, and is aligned to the unit, so that every block is, to as much
// as `max_align` says; larger alignments are refused. Each block is a page of its own, at a range of its own, on record in the
// core, which every clone shares and whose number is the id. Dropping the core drops the records, and frees no block. Nothing
// unwinds.
unsafe impl Resource for Mapped {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.core.device.require(stream.device())?;
        self.core.allocate(layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        if !has_passed(stream) {
            return;
        }
        // SAFETY: the caller's promises; every use was ordered before that point of the stream, and the stream has passed it, so
        // that every use is over.
        unsafe { self.deallocate_sync(block, layout) }
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.core.allocate(layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        if layout.is_empty() {
            return;
        }
        let Some(mapped) = self.core.forget(block) else { return };
        // SAFETY: `mapped` made the block, because it was on record, which it is no longer, and every use is over: the caller's
        // promise.
        unsafe { self.core.free(block, mapped) };
    }

    fn device(&self) -> &Device {
        &self.core.device
    }

    fn id(&self) -> ResourceId {
        self.core.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mapped({})", self.core.device)
    }

    fn max_align(&self) -> usize {
        self.core.unit
    }

    fn pages(&self) -> Option<&dyn Pages> {
        Some(self)
    }

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        if layout.is_empty() {
            return Ok(Export::of_nothing());
        }
        self.core.blocks.require_same_process()?;
        let known = self.core.blocks.get(block);
        let page = known.ok_or_else(|| no_export("it is no block of this source"))?.page;
        // SAFETY: the block is live: the caller's promise. So its page is.
        let memory = unsafe { self.core.export(page) }?;
        Ok(Export::of_pages(memory, block.address(), page.bytes()))
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::of::<Self>(self))
    }
}

// SAFETY: ranges and memory are the driver's, which promises that they do not overlap others. `map` gives the device access before
// it returns, and nothing takes it away before `unmap`. Nothing unwinds.
unsafe impl Pages for Mapped {
    fn page_bytes(&self) -> usize {
        self.core.unit
    }

    fn may_alias(&self) -> bool {
        self.core.driver().may_alias()
    }

    fn reserve(&self, bytes: usize) -> Result<DevicePtr, Error> {
        self.core.reserve(bytes)
    }

    unsafe fn unreserve(&self, range: DevicePtr, bytes: usize) {
        // SAFETY: the caller's promises.
        unsafe { self.core.unreserve(range, bytes) }
    }

    fn create(&self, bytes: usize) -> Result<Page, Error> {
        self.core.create(bytes)
    }

    unsafe fn release(&self, page: Page) {
        // SAFETY: the caller's promises.
        unsafe { self.core.release(page) }
    }

    unsafe fn map(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        // SAFETY: the caller's promises.
        unsafe { self.core.map(page, at) }
    }

    fn is_lost(&self, at: DevicePtr, bytes: usize) -> bool {
        self.core.is_lost(at, bytes)
    }

    unsafe fn unmap(&self, page: Page, at: DevicePtr) -> Result<(), Error> {
        // SAFETY: the caller's promises.
        unsafe { self.core.unmap(page, at) }
    }

    unsafe fn export_page(&self, page: Page) -> Result<Arc<ExportedMemory>, Error> {
        // SAFETY: the caller's promises.
        unsafe { self.core.export(page) }
    }
}

impl Layer for Mapped {
    type Book = Self;
}

// SAFETY: the blocks are memory of the device, mapped with access for the device.
unsafe impl DeviceAccessible for Mapped {}

impl Shareable for Mapped {}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
