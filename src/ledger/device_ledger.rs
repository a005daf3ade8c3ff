//! `DeviceLedger`: the blocks of one device that may come from several resources.

#![expect(unsafe_code, reason = "gives blocks back with the layouts and to the resources that it remembers")]

use core::fmt;

use super::LedgerBlock;
use super::live_blocks::{LiveBlock, LiveBlocks};
use crate::device::{Attachment, Device};
use crate::error::Error;
use crate::resource::{AnyResource, DevicePtr, Layout, Resource};
use crate::stream::StreamRef;

/// The ledger of a device: blocks of any resource, each of which goes back to the one that it came from.
///
/// It is for functions that other libraries load, as an allocator of PyTorch or CuPy: they are told a device and hand an address back,
/// while the [current resource](Device::current_resource) may have changed in between. The device has one such ledger, for as long as its
/// machine. A block that is out holds its resource.
///
/// As a [`Ledger`](super::Ledger) otherwise. A pair costs a count of the resource more, up and down, which threads share: for one
/// resource a `Ledger` is faster.
///
/// # Examples
///
/// ```
/// use alluvion::{AnyResource, Layout, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let device = sim.device(0);
/// let stream = device.stream()?;
/// let first = AnyResource::new(Cuda::new(&device));
/// let block = device.ledger().allocate(&first, Layout::from_bytes(1000)?, stream.as_ref())?;
/// assert_eq!(device.ledger().owner(block), Some(first));
/// // SAFETY: nothing uses the block.
/// unsafe { device.ledger().free(block, stream.as_ref()) }?;
/// assert_eq!(device.ledger().owner(block), None);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct DeviceLedger<'d> {
    device: &'d Device,
    blocks: &'d LiveBlocks<AnyResource>,
}

static_assertions::assert_impl_all!(DeviceLedger<'static>: Send, Sync);

impl Attachment for LiveBlocks<AnyResource> {
    /// A block that is out keeps its resource, and so its machine, until it is freed: its owner could not free it otherwise.
    fn release(&self) {}
}

impl Device {
    /// The ledger of this device, for blocks that are freed without their size and their resource.
    #[must_use]
    pub fn ledger(&self) -> DeviceLedger<'_> {
        DeviceLedger { device: self, blocks: self.attached() }
    }
}

impl DeviceLedger<'_> {
    /// Allocates a block of `resource` for work on `stream`. Zero bytes give [`Layout::dangling`], which is not entered, and freeing it
    /// does nothing.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a resource of another device; as [`Resource::allocate`].
    pub fn allocate(
        self,
        resource: &AnyResource,
        layout: Layout,
        stream: StreamRef<'_>,
    ) -> Result<DevicePtr, Error> {
        self.enter(resource, layout, || resource.allocate(layout, stream))
    }

    /// Allocates a block of `resource` that any stream may use as soon as this returns.
    ///
    /// # Errors
    ///
    /// `DeviceMismatch` for a resource of another device; as [`Resource::allocate_sync`].
    pub fn allocate_sync(self, resource: &AnyResource, layout: Layout) -> Result<DevicePtr, Error> {
        self.enter(resource, layout, || resource.allocate_sync(layout))
    }

    fn enter(
        self,
        resource: &AnyResource,
        layout: Layout,
        allocate: impl FnOnce() -> Result<DevicePtr, Error>,
    ) -> Result<DevicePtr, Error> {
        self.device.require(resource.device())?;
        let block = allocate()?;
        if !layout.is_empty() {
            self.blocks.insert(block, LiveBlock::new(layout, resource.clone()));
        }
        Ok(block)
    }

    /// Frees a block to the resource that it came from, behind the work that is on `stream` and on the streams that were recorded for it.
    /// Returns the bytes that it was asked for with.
    ///
    /// # Errors
    ///
    /// As [`Ledger::free`](super::Ledger::free): nothing is freed then, and the block stays out.
    ///
    /// # Safety
    ///
    /// If the block is out, every use of it, its allocation included, is ordered before this point of `stream`, or is work on a stream
    /// that was recorded for it.
    pub unsafe fn free(self, block: DevicePtr, stream: StreamRef<'_>) -> Result<usize, Error> {
        // In a child of a fork, too: the device refuses there.
        self.device.require(stream.device())?;
        let Some(live) = self.blocks.take_settled(block, |live| live.settle(stream))? else { return Ok(0) };
        // SAFETY:
        // - the block came from its owner, and is live: it was in the ledger, which it has left, so nobody else frees it;
        // - the layout is the one that it was asked for with;
        // - its uses come before this point of the stream: the caller's promise, and the waits for the streams that were recorded.
        unsafe { live.owner.deallocate(block, live.layout, stream) };
        Ok(live.layout.bytes())
    }

    /// Frees a block that no work uses any more, but for that of the streams that were recorded, which the host waits for. Returns the
    /// bytes that it was asked for with.
    ///
    /// # Errors
    ///
    /// As [`Ledger::free_sync`](super::Ledger::free_sync): nothing is freed then, and the block stays out.
    ///
    /// # Safety
    ///
    /// If the block is out, every use of it is over, or is work on a stream that was recorded for it.
    pub unsafe fn free_sync(self, block: DevicePtr) -> Result<usize, Error> {
        self.blocks.require_same_process()?;
        let Some(live) = self.blocks.take_settled(block, LiveBlock::settle_on_host)? else { return Ok(0) };
        // SAFETY: as in `free`; the uses are over, by the caller's promise and the waits.
        unsafe { live.owner.deallocate_sync(block, live.layout) };
        Ok(live.layout.bytes())
    }

    /// As [`Ledger::record_stream`](super::Ledger::record_stream).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn record_stream(self, address: DevicePtr, stream: StreamRef<'_>) -> Result<(), Error> {
        self.device.require_machine(stream.device())?;
        self.blocks.record_stream(address, stream)
    }

    /// As [`Ledger::forget`](super::Ledger::forget): the resource of the block is not held any more.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn forget(self, block: DevicePtr) -> Result<LedgerBlock, Error> {
        self.blocks.require_same_process()?;
        self.blocks.forget(block)
    }

    /// As [`Ledger::is_out`](super::Ledger::is_out).
    #[must_use]
    pub fn is_out(self, block: DevicePtr) -> bool {
        self.blocks.require_same_process().is_ok() && self.blocks.is_out(block)
    }

    /// As [`Ledger::containing`](super::Ledger::containing).
    #[must_use]
    pub fn containing(self, address: DevicePtr) -> Option<LedgerBlock> {
        self.blocks.require_same_process().ok()?;
        self.blocks.containing(address)
    }

    /// The resource of the block that an address lies in.
    #[must_use]
    pub fn owner(self, address: DevicePtr) -> Option<AnyResource> {
        self.blocks.require_same_process().ok()?;
        self.blocks.look_at(address, |_, live| live.owner.clone())
    }

    /// The number of blocks that are out; 0 in a child of the process that it was made in.
    #[must_use]
    pub fn live_blocks(self) -> usize {
        self.blocks.require_same_process().map_or(0, |()| self.blocks.blocks())
    }

    /// The bytes that were asked for in them.
    #[must_use]
    pub fn live_bytes(self) -> usize {
        self.blocks.require_same_process().map_or(0, |()| self.blocks.bytes())
    }

    /// The blocks that are out, as [`Ledger::outstanding`](super::Ledger::outstanding).
    #[must_use]
    pub fn outstanding(self) -> Vec<LedgerBlock> {
        self.blocks.require_same_process().map_or_else(|_| Vec::new(), |()| self.blocks.all())
    }
}

impl fmt::Debug for DeviceLedger<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceLedger({:?} on {})", self.blocks, self.device)
    }
}
