//! `Binning`: small requests to bins, the rest to the upstream.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::snapshot::SnapshotFiles;
use super::{FixedSize, FixedSizeConfig};
use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{DeviceAccessible, DevicePtr, HostAccessible, Layout, Resource, ResourceId};
use crate::size::Size;
use crate::stream::StreamRef;
use crate::suballoc::ledger::Ledger;

/// Sends each request to the smallest *bin* that serves its size, and those larger than every bin to the upstream.
///
/// A bin is a [`FixedSize`] over the same upstream, or a resource of your own. The bins are decided before the first
/// request, so a block always goes back to where it came from.
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
    /// By size, each once.
    bins: Box<[(usize, BinResource<U, B>)]>,
    /// The largest alignment that all of them honour.
    max_align: usize,
    id: ResourceId,
}

enum BinResource<U: Resource, B> {
    /// Boxed, because a search steps over the bins, and a suballocator has a few KiB.
    Own(Box<FixedSize<Arc<U>>>),
    Given(B),
}

/// Builds a [`Binning`]: begun by [`binning`](crate::ResourceExt::binning).
///
/// ```
/// use alluvion::{Error, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let pool = || Cuda::new(&sim.device(0)).pool(PoolConfig::default());
/// let bins = pool()?.binning().blocks(8).checked(true).bin(1000).bin(10_000).build()?;
/// assert_eq!(bins.bins().collect::<Vec<_>>(), [1024, 10_240], "in units of 256 bytes");
/// assert!(pool()?.binning().bin(1000).bin(1024).build().is_err(), "two of one size");
/// # Ok::<(), Error>(())
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct BinningBuilder<U: Resource, B = FixedSize<Arc<U>>> {
    upstream: U,
    blocks: usize,
    checked: bool,
    snapshots: Option<SnapshotFiles>,
    own: Vec<usize>,
    given: Vec<(usize, B)>,
    wrong: Option<Error>,
}

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
        BinningBuilder {
            upstream,
            blocks: 128,
            checked: cfg!(debug_assertions),
            snapshots: None,
            own: Vec::new(),
            given: Vec::new(),
            wrong: None,
        }
    }

    /// The upstream.
    #[must_use]
    pub fn upstream(&self) -> &U {
        &self.upstream
    }

    /// The sizes of the bins, from the smallest.
    #[must_use]
    pub fn bins(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.bins.iter().map(|(bytes, _)| *bytes)
    }

    /// The bin that serves this size; none if the upstream does.
    #[inline]
    fn bin(&self, bytes: usize) -> Option<&BinResource<U, B>> {
        // There are few bins, so a scan is faster than a search.
        self.bins.iter().find(|(largest, _)| bytes <= *largest).map(|(_, bin)| bin)
    }
}

impl<U: Resource, B: Resource> BinningBuilder<U, B> {
    /// How many blocks an own bin takes from the upstream at a time. Default: 128.
    pub fn blocks(mut self, blocks: usize) -> Self {
        self.blocks = blocks;
        self
    }

    /// As [`PoolConfig::checked`](super::PoolConfig::checked), for own bins.
    pub fn checked(mut self, checked: bool) -> Self {
        self.checked = checked;
        self
    }

    /// As [`PoolConfig::snapshot_on_out_of_memory`](super::PoolConfig::snapshot_on_out_of_memory), for own bins,
    /// which share the count.
    pub fn snapshot_on_out_of_memory(mut self, path: impl Into<PathBuf>) -> Self {
        self.snapshots = Some(SnapshotFiles::new(path.into()));
        self
    }

    /// An own bin for requests up to `bytes`, rounded up to units of 256.
    pub fn bin(mut self, bytes: usize) -> Self {
        self.own.push(bytes);
        self
    }

    /// An own bin for each power of two in the range of exponents: `18..=22` makes bins of 256 KiB to 4 MiB.
    pub fn range(mut self, exponents: core::ops::RangeInclusive<u32>) -> Self {
        if exponents.is_empty() || *exponents.end() >= usize::BITS - 1 {
            self.wrong = Some(Error::invalid_argument(
                "a range of bins",
                "it is empty, or ends beyond 2 to the 62nd",
                "pass exponents from low to high, such as 18..=22",
            ));
            return self;
        }
        self.own.extend(exponents.map(|exponent| 1_usize << exponent));
        self
    }

    /// A bin of your own for requests up to `bytes`, which it must be able to serve.
    pub fn bin_over(mut self, bytes: usize, resource: B) -> Self {
        self.given.push((bytes, resource));
        self
    }

    /// Makes the own bins, whose first blocks are taken at once.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a size of zero, for two bins of one size, and for a range that is none; `DeviceMismatch` for a
    /// resource of another device; as the upstream says. What was taken goes back.
    pub fn build(self) -> Result<Binning<U, B>, Error> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let upstream = Arc::new(self.upstream);
        let mut bins = Vec::with_capacity(self.own.len() + self.given.len());
        for (bytes, resource) in self.given {
            upstream.device().require(resource.device())?;
            bins.push((Layout::from_bytes(bytes)?.rounded_bytes(), BinResource::Given(resource)));
        }
        let config =
            FixedSizeConfig::default().blocks(self.blocks).checked(self.checked).snapshots(self.snapshots);
        let mut sizes: Vec<usize> = Vec::with_capacity(self.own.len());
        for bytes in self.own {
            sizes.push(Layout::from_bytes(bytes)?.rounded_bytes());
        }
        let mut all: Vec<usize> = bins.iter().map(|(bytes, _)| *bytes).chain(sizes.iter().copied()).collect();
        all.sort_unstable();
        if all.first() == Some(&0) || all.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid_argument(
                "the bins",
                "one has no size, or two have the same",
                "give each a size of its own, in units of 256 bytes",
            ));
        }
        for bytes in sizes {
            let bin = FixedSize::new(Arc::clone(&upstream), config.clone().block(bytes))?;
            bins.push((bytes, BinResource::Own(Box::new(bin))));
        }
        bins.sort_unstable_by_key(|(bytes, _)| *bytes);
        let of_bins = bins.iter().map(|(_, bin)| match bin {
            BinResource::Own(bin) => bin.max_align(),
            BinResource::Given(bin) => bin.max_align(),
        });
        let max_align = of_bins.fold(upstream.max_align(), usize::min);
        Ok(Binning { upstream, bins: bins.into_boxed_slice(), max_align, id: ResourceId::unique() })
    }
}

/// Forwards a call to whom a size belongs.
macro_rules! route {
    ($this:ident, $bytes:expr, |$to:ident| $call:expr) => {
        match $this.bin($bytes) {
            Some(BinResource::Own($to)) => $call,
            Some(BinResource::Given($to)) => $call,
            None => {
                let $to = &$this.upstream;
                $call
            }
        }
    };
}

// SAFETY: every request and its free go to one resource, by the size alone, and the bins never change; each keeps the
// contract. Only the value itself has its id.
unsafe impl<U: Resource, B: Resource> Resource for Binning<U, B> {
    #[inline]
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align)?;
        route!(self, layout.bytes(), |to| to.allocate(layout, stream))
    }

    #[inline]
    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        // SAFETY: the block came from the same resource, which the size names; the rest is the caller's promise.
        route!(self, layout.bytes(), |to| unsafe { to.deallocate(block, layout, stream) });
    }

    #[inline]
    fn allocate_at_once(&self, layout: Layout, stream: StreamRef<'_>) -> Option<DevicePtr> {
        if layout.align() > self.max_align {
            return None;
        }
        route!(self, layout.bytes(), |to| to.allocate_at_once(layout, stream))
    }

    #[inline]
    unsafe fn deallocate_at_once(&self, block: DevicePtr, layout: Layout, stream: StreamRef<'_>) -> bool {
        // SAFETY: as in `deallocate`.
        route!(self, layout.bytes(), |to| unsafe { to.deallocate_at_once(block, layout, stream) })
    }

    #[inline]
    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        layout.require_align(self.max_align)?;
        route!(self, layout.bytes(), |to| to.allocate_sync(layout))
    }

    #[inline]
    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        // SAFETY: as in `deallocate`.
        route!(self, layout.bytes(), |to| unsafe { to.deallocate_sync(block, layout) });
    }

    fn device(&self) -> &Device {
        self.upstream.device()
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.bins.first(), self.bins.last()) {
            (Some((first, _)), Some((last, _))) => {
                write!(f, "Binning({} bins, {} to {})", self.bins.len(), Size(*first), Size(*last))
            }
            _ => f.write_str("Binning(no bins)"),
        }
    }

    fn max_align(&self) -> usize {
        self.max_align
    }

    fn trim(&self, keep_bytes: usize) -> Result<usize, Error> {
        let (mut gone, mut keep_bytes) = (0, keep_bytes);
        // The largest first: what they keep at a time is the most, so that which is kept is kept whole.
        for (_, bin) in self.bins.iter().rev() {
            match bin {
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
}

// SAFETY: its blocks are those of the bins and of the upstream.
unsafe impl<U: DeviceAccessible, B: DeviceAccessible> DeviceAccessible for Binning<U, B> {}
// SAFETY: its blocks are those of the bins and of the upstream.
unsafe impl<U: HostAccessible, B: HostAccessible> HostAccessible for Binning<U, B> {}

impl<U: Resource, B: Resource> fmt::Debug for Binning<U, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}

impl<U: Resource, B> fmt::Debug for BinningBuilder<U, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BinningBuilder")
            .field("blocks", &self.blocks)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
