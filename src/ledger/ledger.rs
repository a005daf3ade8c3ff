//! `Ledger`: a resource whose blocks are freed without their size.

#![expect(unsafe_code, reason = "gives blocks back with the layouts that it remembers")]

use core::fmt;

use super::LedgerBlock;
use super::live_blocks::{LiveBlock, LiveBlocks, not_out};
use crate::error::Error;
use crate::resource::{AnyResource, Describe, DevicePtr, Layout, Resource};
use crate::stream::StreamRef;

/// Stands in front of a resource, and remembers the layout of each block that goes out through it: for callers that free a block by its
/// address alone.
///
/// It refuses what is not out, such as a block that is freed twice. It says which block an [address lies in](Self::containing), and a
/// free waits for the streams that were [recorded](Self::record_stream). It is not a [`Resource`] itself: what frees with a size asks
/// the [`resource`](Self::resource), and a block that went out there is a stranger here.
///
/// The resource must hand out memory, in which no two live blocks have one address: [`Null`](crate::source::Null) does not.
///
/// # What is out when it is dropped
///
/// Stays live in the resource: nobody knows whether it is in use. [`into_resource`](Self::into_resource) returns the ledger while
/// blocks are out, and [`outstanding`](Self::outstanding) names them.
///
/// # Stream ordering
///
/// As the resource's. A free comes after the work of recorded streams, which the stream of the free waits for on the device.
///
/// # Thread safety
///
/// Any thread may call it, if the resource is `Sync`. In a child of a fork every call on the ledger of its parent fails with `ShutDown`.
///
/// # Examples
///
/// ```
/// use alluvion::{ErrorKind, Layout, Ledger, PoolConfig, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let (stream, copies) = (sim.device(0).stream()?, sim.device(0).stream()?);
/// let ledger = Ledger::new(Cuda::new(&sim.device(0)).pool(PoolConfig::default())?);
/// let block = ledger.allocate(Layout::from_bytes(1000)?, stream.as_ref())?;
///
/// let inside = block.offset(999);
/// assert_eq!(ledger.containing(inside).map(|found| (found.block, found.layout.bytes())), Some((block, 1000)));
///
/// ledger.record_stream(block, copies.as_ref())?;
/// // SAFETY: only work on these two streams uses the block.
/// unsafe { ledger.free(block, stream.as_ref()) }?;
/// // SAFETY: the ledger refuses it.
/// let again = unsafe { ledger.free(block, stream.as_ref()) };
/// assert_eq!(again.unwrap_err().kind(), ErrorKind::Misuse);
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Ledger<R = AnyResource> {
    resource: R,
    blocks: LiveBlocks<()>,
}

static_assertions::assert_impl_all!(Ledger: Send, Sync);
static_assertions::assert_not_impl_any!(Ledger<core::cell::Cell<u8>>: Sync);

impl<R: Resource> Ledger<R> {
    /// Begins a ledger of the blocks that go out through it.
    #[must_use]
    pub fn new(resource: R) -> Self {
        Self { resource, blocks: LiveBlocks::default() }
    }

    /// Allocates a block for work on `stream`. Zero bytes give [`Layout::dangling`], which is not entered, and freeing it does nothing.
    ///
    /// # Errors
    ///
    /// As [`Resource::allocate`].
    #[inline]
    pub fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.enter(layout, || self.resource.allocate(layout, stream))
    }

    /// Allocates a block that any stream may use as soon as this returns.
    ///
    /// # Errors
    ///
    /// As [`Resource::allocate_sync`].
    pub fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.enter(layout, || self.resource.allocate_sync(layout))
    }

    #[inline]
    fn enter(
        &self,
        layout: Layout,
        allocate: impl FnOnce() -> Result<DevicePtr, Error>,
    ) -> Result<DevicePtr, Error> {
        self.blocks.require_same_process()?;
        let block = allocate()?;
        if !layout.is_empty() {
            self.blocks.insert(block, LiveBlock::new(layout, ()));
        }
        Ok(block)
    }

    /// Frees a block, behind the work that is on `stream` and on the streams that were recorded for it. Returns the bytes that it was asked for with.
    ///
    /// # Errors
    ///
    /// `Misuse` if no block that is out begins at `block`; `DeviceMismatch` for a stream of another device; as
    /// [`StreamRef::wait_for`] if a recorded stream cannot be waited for. Nothing is freed then, and the block stays out.
    ///
    /// # Safety
    ///
    /// If the block is out, every use of it, its allocation included, is ordered before this point of `stream`, or is work on a stream
    /// that was recorded for it.
    #[inline]
    pub unsafe fn free(&self, block: DevicePtr, stream: StreamRef<'_>) -> Result<usize, Error> {
        self.resource.device().require(stream.device())?;
        self.blocks.require_same_process()?;
        let Some(live) = self.blocks.take_settled(block, |live| live.settle(stream))? else { return Ok(0) };
        // SAFETY:
        // - the block came from this resource, and is live: it was in the ledger, which it has left, so nobody else frees it;
        // - the layout is the one that it was asked for with;
        // - its uses come before this point of the stream: the caller's promise, and the waits for the streams that were recorded.
        unsafe { self.resource.deallocate(block, live.layout, stream) };
        Ok(live.layout.bytes())
    }

    /// Frees a block that no work uses any more, but for that of the streams that were recorded, which the host waits for. Returns
    /// the bytes that it was asked for with.
    ///
    /// # Errors
    ///
    /// As [`free`](Self::free).
    ///
    /// # Safety
    ///
    /// If the block is out, every use of it is over, or is work on a stream that was recorded for it.
    pub unsafe fn free_sync(&self, block: DevicePtr) -> Result<usize, Error> {
        self.blocks.require_same_process()?;
        let Some(live) = self.blocks.take_settled(block, LiveBlock::settle_on_host)? else { return Ok(0) };
        // SAFETY: as in `free`; the uses are over, by the caller's promise and the waits.
        unsafe { self.resource.deallocate_sync(block, live.layout) };
        Ok(live.layout.bytes())
    }

    /// Notes that work on `stream` uses the block that `address` lies in, besides the stream that it will be freed on. The free waits
    /// for what is on `stream` by then, on the device. The stream is held until the block is free.
    ///
    /// # Errors
    ///
    /// `Misuse` if no block that is out is there; `DeviceMismatch` for a stream of another machine.
    pub fn record_stream(&self, address: DevicePtr, stream: StreamRef<'_>) -> Result<(), Error> {
        self.resource.device().require_machine(stream.device())?;
        self.blocks.require_same_process()?;
        self.blocks.record_stream(address, stream)
    }
}

impl<R> Ledger<R> {
    /// The resource that the blocks come from.
    #[must_use]
    pub fn resource(&self) -> &R {
        &self.resource
    }

    /// The resource, out of its ledger.
    ///
    /// # Errors
    ///
    /// The ledger as it was, while blocks are out, and in a child of the process that it was made in.
    pub fn into_resource(self) -> Result<R, Self> {
        if self.blocks.require_same_process().is_ok() && self.live_blocks() == 0 {
            Ok(self.resource)
        } else {
            Err(self)
        }
    }

    /// The block that is out and that an address lies in: for its start, its middle and its last byte. `None` for any other address.
    ///
    /// The start of a block is found by one step of a table, the middle by one for each of 64 shards: with a million blocks some 30
    /// comparisons in each.
    #[must_use]
    pub fn containing(&self, address: DevicePtr) -> Option<LedgerBlock> {
        self.blocks.require_same_process().ok()?;
        self.blocks.containing(address)
    }

    /// Takes a block out of the ledger without freeing it. It stays live in the resource: whoever knows its layout may free it there, or it
    /// leaks. Streams that were recorded are forgotten, too.
    ///
    /// # Errors
    ///
    /// `Misuse` if no block that is out begins there; `ShutDown` in a child of the process that it was made in.
    pub fn forget(&self, block: DevicePtr) -> Result<LedgerBlock, Error> {
        self.blocks.require_same_process()?;
        self.blocks.forget(block)
    }

    /// Returns `true` if a block that is out begins there: one step of a table. `false` in a child of the process that it was made in.
    #[must_use]
    pub fn is_out(&self, block: DevicePtr) -> bool {
        self.blocks.require_same_process().is_ok() && self.blocks.is_out(block)
    }

    /// As [`containing`](Self::containing), with the reason where there is none.
    ///
    /// # Errors
    ///
    /// `Misuse` if no block that is out is there; `ShutDown` in a child of the process that it was made in.
    pub fn block_at(&self, address: DevicePtr) -> Result<LedgerBlock, Error> {
        self.blocks.require_same_process()?;
        self.blocks.containing(address).ok_or_else(|| not_out(address))
    }

    /// The number of blocks that are out; 0 in a child of the process that it was made in.
    #[must_use]
    pub fn live_blocks(&self) -> usize {
        self.blocks.require_same_process().map_or(0, |()| self.blocks.blocks())
    }

    /// The bytes that were asked for in the blocks that are out; 0 in a child of the process that it was made in.
    #[must_use]
    pub fn live_bytes(&self) -> usize {
        self.blocks.require_same_process().map_or(0, |()| self.blocks.bytes())
    }

    /// The blocks that are out, in the order of their addresses. Other threads may allocate and free meanwhile: each shard of the ledger
    /// is looked at in its turn. Empty in a child of the process that it was made in.
    #[must_use]
    pub fn outstanding(&self) -> Vec<LedgerBlock> {
        self.blocks.require_same_process().map_or_else(|_| Vec::new(), |()| self.blocks.all())
    }
}

impl<R: Resource> fmt::Debug for Ledger<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ledger({:?}) over {}", self.blocks, Describe::new(&self.resource))
    }
}
