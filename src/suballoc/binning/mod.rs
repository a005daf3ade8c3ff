//! `Binning`: small requests to bins, the rest to the upstream.

#![expect(unsafe_code, reason = "implements the contract of resources")]

mod added;
mod bin;
mod bins;
mod builder;

pub use builder::BinningBuilder;

use core::fmt;
use std::sync::Arc;

use bin::{Bin, BinResource, whole_bytes};
use bins::{Bins, Serving};

use super::snapshot::SnapshotFiles;
use super::{FixedSize, FixedSizeConfig};
use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::{Error, is_freed_by};
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    DeviceAccessible, DevicePtr, Export, HostAccessible, LayerBook, Layout, Resource, ResourceId, Shareable,
};
use crate::size::Size;
use crate::stream::StreamRef;
use crate::suballoc::ledger::Ledger;

/// Sends each request to the smallest *bin* that serves its size, and those larger than every bin to the upstream.
///
/// A bin is a [`FixedSize`] over the same upstream, or a resource of your own. Bins can be [added](Self::add_bin) at any time. A
/// block always goes back to where it came from. Of two bins of one size, the one that was there first serves.
///
/// # Stream ordering, thread safety
///
/// As the bins' and the upstream's.
///
/// # Examples
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::suballoc::PoolConfig;
/// use alluvion::{Layout, Resource, ResourceExt, Sim};
///
/// let sim = Sim::with_config(alluvion::sim::SimConfig::default().memory_bytes(1 << 30));
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// // Bins of 4, 8 and 16 KiB, 16 blocks each at a time, over a pool.
/// let pool = Cuda::new(&device).pool(PoolConfig::default())?;
/// let bins = pool.binning().blocks(16).range(12..=14).build()?;
/// assert_eq!(bins.bins().collect::<Vec<_>>(), [4096, 8192, 16384]);
/// let layout = Layout::from_bytes(5000)?;
/// let block = bins.allocate(layout, stream.as_ref())?; // A block of 8 KiB.
/// // SAFETY: the block came from `bins` with this layout, and nothing uses it.
/// unsafe { bins.deallocate(block, layout, stream.as_ref()) };
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Binning<U: Resource, B = FixedSize<Arc<U>>> {
    upstream: Arc<U>,
    bins: Bins<U, B>,
    /// That of own bins.
    config: FixedSizeConfig,
    /// The largest alignment that the upstream and the bins of the builder honour.
    max_align: usize,
    id: ResourceId,
}

/// What a resource answers as its layer that keeps blocks of the suballocator below it, which does not see their uses.
pub(crate) struct KeepsBlocks;

impl Binning<crate::resource::AnyResource> {
    pub(crate) const CARD: Card = Card {
        name: "binning",
        about: "Serves small requests from bins, one for each power of two, and passes the others on.",
        parameters: &[
            Parameter::new(
                "from",
                ArgumentKind::Size,
                "the smallest bin, a power of two; 256KiB if left out",
            ),
            Parameter::new("to", ArgumentKind::Size, "the largest bin, a power of two; 4MiB if left out"),
            Parameter::new(
                "blocks",
                ArgumentKind::Count,
                "how many blocks a bin takes at a time; 128 if left out",
            ),
            Ledger::CHECKED,
            SnapshotFiles::ON_OUT_OF_MEMORY,
        ],
    };
}

impl<U: Resource> Binning<U> {
    /// Begins to build bins over `upstream`, as [`binning`](crate::ResourceExt::binning) does.
    pub fn over(upstream: U) -> BinningBuilder<U> {
        Binning::with_given_bins(upstream)
    }
}

impl<U: Resource, B: Resource> Binning<U, B> {
    /// As [`over`](Binning::over), for bins of your own of type `B`.
    ///
    /// ```
    /// use alluvion::suballoc::{Binning, FixedSize, FixedSizeConfig};
    /// use alluvion::{Pool, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let device = sim.device(0);
    /// let tiles = Cuda::new(&device).fixed_size(FixedSizeConfig::default().block(4096).blocks(64).maximum(1 << 20))?;
    /// let pool = Cuda::new(&device).pool(PoolConfig::default())?;
    /// let bins = Binning::<Pool<Cuda>, FixedSize<Cuda>>::with_given_bins(pool).bin_over(4096, tiles).build()?;
    /// assert_eq!(bins.bins().collect::<Vec<_>>(), [4096]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn with_given_bins(upstream: U) -> BinningBuilder<U, B> {
        BinningBuilder::new(upstream)
    }

    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// The sizes of the bins, from the smallest. Of two of one size, the one that was there first serves.
    #[must_use]
    pub fn bins(&self) -> impl ExactSizeIterator<Item = usize> + use<U, B> {
        self.bins.sizes().into_iter()
    }

    /// Adds an own bin for requests up to `bytes`, rounded up to units of 256. Its first blocks are taken at once. If there is a bin
    /// of that size, that one goes on to serve, and no memory is taken.
    ///
    /// Other threads may allocate and free meanwhile. Blocks that are out go back to where they came from. A bin that is added
    /// before the first request costs nothing more than one of the builder; a block of a bin that is added later takes an entry of a
    /// table, under a lock of its own.
    ///
    /// ```
    /// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
    /// let bins = pool.binning().blocks(4).bin(64 << 10).build()?;
    /// let layout = Layout::from_bytes(1000)?;
    /// let large = bins.allocate(layout, stream.as_ref())?; // A block of 64 KiB.
    /// bins.add_bin(1024)?;
    /// let small = bins.allocate(layout, stream.as_ref())?; // A block of 1 KiB.
    /// assert_eq!(bins.bins().collect::<Vec<_>>(), [1024, 64 << 10]);
    /// // SAFETY: the blocks came from `bins` with this layout, and nothing uses them.
    /// unsafe {
    ///     bins.deallocate(large, layout, stream.as_ref());
    ///     bins.deallocate(small, layout, stream.as_ref());
    /// }
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a size of zero; as the upstream says. Nothing has changed then.
    pub fn add_bin(&self, bytes: usize) -> Result<(), Error> {
        let bytes = whole_bytes(bytes)?;
        if self.bins().any(|known| known == bytes) {
            return Ok(());
        }
        self.bins.add(Bin::own(bytes, &self.upstream, &self.config)?)
    }

    /// As [`add_bin`](Self::add_bin), for a bin of your own, which must be able to serve requests up to `bytes`. Where there is a bin
    /// of that size, this one is kept, and never serves. Requests for an alignment that it does not honour pass it by.
    ///
    /// ```
    /// use alluvion::suballoc::{Binning, PoolConfig};
    /// use alluvion::{AnyResource, ResourceExt, Sim, source::Cuda};
    ///
    /// let device = Sim::new().device(0);
    /// let pool = || Cuda::new(&device).pool(PoolConfig::default()).map(AnyResource::new);
    /// let bins = Binning::<AnyResource, AnyResource>::with_given_bins(pool()?).build()?;
    /// bins.add_bin_over(100, pool()?)?;
    /// bins.add_bin_over(4096, pool()?)?;
    /// bins.add_bin_over(4096, pool()?)?;
    /// assert_eq!(bins.bins().collect::<Vec<_>>(), [256, 4096, 4096]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a size of zero; `DeviceMismatch` for a resource of another device.
    pub fn add_bin_over(&self, bytes: usize, resource: B) -> Result<(), Error> {
        self.bins.add(Bin::given(whole_bytes(bytes)?, resource, self.upstream.device())?)
    }
}

/// Forwards a call to a bin, or to the upstream if there is none.
macro_rules! forward {
    ($this:ident, $bin:expr, |$to:ident| $call:expr) => {
        match $bin.map(|bin| &bin.resource) {
            Some(BinResource::Own($to)) => $call,
            Some(BinResource::Given($to)) => $call,
            None => {
                let $to = &$this.upstream;
                $call
            }
        }
    };
}

// SAFETY: each request goes to one resource, and each free to the same one: the bins that were there at the first request never
// change, and a block of a bin that was added later is in a table while it is live. Each resource keeps the contract. Only the
// value itself has its id.
unsafe impl<U: Resource, B: Resource> Resource for Binning<U, B> {
    #[inline]
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align)?;
        match self.bins.serving(layout) {
            Serving::First(bin) => forward!(self, bin, |to| to.allocate(layout, stream)),
            Serving::Added(added, number, bin) => {
                added.require_same_process()?;
                let block = forward!(self, Some(bin), |to| to.allocate(layout, stream))?;
                added.enter(block, number);
                Ok(block)
            }
        }
    }

    #[inline]
    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        let Some(home) = self.bins.home_of(block, layout) else { return };
        // SAFETY: the block came from the same resource; the rest is the caller's promise.
        let free = || forward!(self, home.bin(), |to| unsafe { to.deallocate(block, layout, stream) });
        if !is_freed_by(free) {
            home.put_back(block);
        }
    }

    #[inline]
    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        if layout.align() > self.max_align {
            return None;
        }
        match self.bins.serving(layout) {
            Serving::First(bin) => forward!(self, bin, |to| to.allocate_at_once(layout, stream)),
            Serving::Added(added, number, bin) => {
                added.require_same_process().ok()?;
                let block = forward!(self, Some(bin), |to| to.allocate_at_once(layout, stream))?;
                added.enter(block, number);
                Some(block)
            }
        }
    }

    #[inline]
    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        let Some(home) = self.bins.home_of(block, layout) else { return false };
        let is_free = forward!(self, home.bin(), |to| {
            // SAFETY: as in `deallocate`.
            unsafe { to.deallocate_at_once(block, layout, stream) }
        });
        if !is_free {
            home.put_back(block);
        }
        is_free
    }

    #[inline]
    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align)?;
        match self.bins.serving(layout) {
            Serving::First(bin) => forward!(self, bin, |to| to.allocate_sync(layout)),
            Serving::Added(added, number, bin) => {
                added.require_same_process()?;
                let block = forward!(self, Some(bin), |to| to.allocate_sync(layout))?;
                added.enter(block, number);
                Ok(block)
            }
        }
    }

    #[inline]
    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        let Some(home) = self.bins.home_of(block, layout) else { return };
        // SAFETY: as in `deallocate`.
        let free = || forward!(self, home.bin(), |to| unsafe { to.deallocate_sync(block, layout) });
        if !is_freed_by(free) {
            home.put_back(block);
        }
    }

    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.bins.sizes();
        match (sizes.first(), sizes.last()) {
            (Some(first), Some(last)) => {
                write!(f, "Binning({} bins, {} to {})", sizes.len(), Size(*first), Size(*last))
            }
            _ => f.write_str("Binning(no bins)"),
        }
    }

    fn max_align(&self) -> usize {
        self.max_align
    }

    unsafe fn export(&self, block: DevicePtr, layout: Layout) -> Result<Export, Error> {
        let bin = self.bins.bin_of(block, layout)?;
        // SAFETY: the block came from that resource; the rest is the caller's promise.
        forward!(self, bin, |to| unsafe { to.export(block, layout) })
    }

    /// Asks each bin, so a bin that is added after this counts as one that was added after the first request.
    fn host_access(&self) -> bool {
        let is_given_access = |bin: &Bin<U, B>| match &bin.resource {
            BinResource::Own(_) => true,
            BinResource::Given(bin) => bin.host_access(),
        };
        self.upstream.host_access() && self.bins.largest_first().into_iter().all(is_given_access)
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        let (mut gone, mut keep_bytes) = (0, keep_bytes);
        // The largest first: what they keep at a time is the most, so that which is kept is kept whole.
        for bin in self.bins.largest_first() {
            match &bin.resource {
                BinResource::Own(bin) => {
                    gone += bin.trim(keep_bytes)?;
                    keep_bytes = keep_bytes.saturating_sub(bin.status().reserved_bytes);
                }
                // How much a given bin keeps is unknown.
                BinResource::Given(bin) => gone += bin.trim(keep_bytes)?,
            }
        }
        Ok(gone.max(self.upstream.trim(keep_bytes)?))
    }

    fn memory_info(&self) -> Result<MemoryInfo, Error> {
        self.upstream.memory_info()
    }

    fn upstream(&self) -> Option<&dyn Resource> {
        Some(&*self.upstream)
    }

    fn layer(&self) -> Option<LayerBook<'_>> {
        Some(LayerBook::unlisted(&KeepsBlocks))
    }
}

// SAFETY: its blocks are those of the bins and of the upstream.
unsafe impl<U: DeviceAccessible, B: DeviceAccessible> DeviceAccessible for Binning<U, B> {}
// SAFETY: its blocks are those of the bins and of the upstream.
unsafe impl<U: HostAccessible, B: HostAccessible> HostAccessible for Binning<U, B> {}

impl<U: Shareable, B: Shareable> Shareable for Binning<U, B> {}

impl<U: Resource, B: Resource> fmt::Debug for Binning<U, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
