//! `BinningBuilder`: the bins that a `Binning` begins with.

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::Binning;
use super::bin::{Bin, whole_bytes};
use super::bins::Bins;
use crate::error::Error;
use crate::resource::{Layout, Resource, ResourceId};
use crate::suballoc::{FixedSize, FixedSizeConfig};

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
    /// That of own bins.
    config: FixedSizeConfig,
    own: Vec<usize>,
    given: Vec<(usize, B)>,
    wrong: Option<Error>,
}

impl<U: Resource, B: Resource> BinningBuilder<U, B> {
    pub(super) fn new(upstream: U) -> Self {
        Self { upstream, config: FixedSizeConfig::default(), own: Vec::new(), given: Vec::new(), wrong: None }
    }
}

impl<U: Resource, B: Resource> BinningBuilder<U, B> {
    /// How many blocks an own bin takes from the upstream at a time. Default: 128.
    pub fn blocks(mut self, blocks: usize) -> Self {
        self.config = self.config.blocks(blocks);
        self
    }

    /// As [`PoolConfig::checked`](crate::PoolConfig::checked), for own bins.
    pub fn checked(mut self, checked: bool) -> Self {
        self.config = self.config.checked(checked);
        self
    }

    /// As [`PoolConfig::snapshot_on_out_of_memory`](crate::PoolConfig::snapshot_on_out_of_memory), for own bins,
    /// which share the count.
    pub fn snapshot_on_out_of_memory(mut self, path: impl Into<PathBuf>) -> Self {
        self.config = self.config.snapshot_on_out_of_memory(path);
        self
    }

    /// An own bin for requests up to `bytes`, rounded up to units of 256.
    pub fn bin(mut self, bytes: usize) -> Self {
        self.own.push(bytes);
        self
    }

    /// An own bin for each power of two in the range of exponents: `18..=22` makes bins of 256 KiB to 4 MiB. The powers up to
    /// 256 make one bin.
    pub fn range(mut self, exponents: core::ops::RangeInclusive<u32>) -> Self {
        if exponents.is_empty() || *exponents.end() >= usize::BITS - 1 {
            self.wrong = Some(Error::invalid_argument(
                "a range of bins",
                "it is empty, or ends beyond 2 to the 62nd",
                "pass exponents from low to high, such as 18..=22",
            ));
            return self;
        }
        let unit = Layout::MIN_ALIGN.ilog2();
        let (first, last) = ((*exponents.start()).max(unit), (*exponents.end()).max(unit));
        self.own.extend((first..=last).map(|exponent| 1_usize << exponent));
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
            bins.push(Bin::given(whole_bytes(bytes)?, resource, upstream.device())?);
        }
        let sizes = self.own.into_iter().map(whole_bytes).collect::<Result<Vec<_>, _>>()?;
        let mut all: Vec<usize> = bins.iter().map(|bin| bin.bytes).chain(sizes.iter().copied()).collect();
        all.sort_unstable();
        if all.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid_argument(
                "the bins",
                "two have the same size",
                "give each a size of its own, in units of 256 bytes",
            ));
        }
        for bytes in sizes {
            bins.push(Bin::own(bytes, &upstream, &self.config)?);
        }
        let max_align = bins.iter().map(|bin| bin.max_align).fold(upstream.max_align(), usize::min);
        Ok(Binning {
            upstream,
            bins: Bins::new(bins),
            config: self.config,
            max_align,
            id: ResourceId::unique(),
        })
    }
}

impl<U: Resource, B> fmt::Debug for BinningBuilder<U, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BinningBuilder")
            .field("config", &self.config)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
