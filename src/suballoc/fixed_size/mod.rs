//! `FixedSize`: a suballocator for blocks of one size.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use core::fmt;
use std::path::PathBuf;

use super::engine::resource_by_engine;
use super::engine::{Engine, EngineConfig};
use super::snapshot::SnapshotFiles;
use super::{Growth, Snapshot, Status};
use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, HostAccessible, Layer, LayerBook, Layout, Resource, ResourceId,
};
use crate::size::Size;
use crate::stream::{OnStream, StreamRef};
use crate::suballoc::ledger::Ledger;

/// Blocks of one size, taken from the upstream many at a time. Every request up to that size gets a whole block.
///
/// For programs that request one size all the time, and as a bin of [`Binning`](super::Binning). No block is split
/// unless a request has an alignment above 256, so there is no fragmentation and nothing to merge. A stream first gets
/// back the blocks that it has freed, as with a [`Pool`](super::Pool).
///
/// # Stream ordering, thread safety, the end
///
/// As a pool's.
///
/// # Examples
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::suballoc::FixedSizeConfig;
/// use alluvion::{Layout, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let tiles = Cuda::new(&device).fixed_size(FixedSizeConfig::default().block(64 << 10).blocks(32))?;
/// assert_eq!((tiles.block_bytes(), tiles.status().reserved_bytes), (64 << 10, 2 << 20));
/// let block = tiles.allocate(Layout::from_bytes(1000)?, stream.as_ref())?;
/// assert_eq!(tiles.status().live_bytes, 64 << 10);
/// assert!(tiles.allocate(Layout::from_bytes(65 << 10)?, stream.as_ref()).unwrap_err().is_out_of_memory());
/// // SAFETY: the block came from `tiles` with this layout, and nothing uses it.
/// unsafe { tiles.deallocate(block, Layout::from_bytes(1000)?, stream.as_ref()) };
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct FixedSize<U: Resource = AnyResource> {
    engine: Engine<U>,
    id: ResourceId,
    block_units: u32,
}

/// The block size and the limits of a [`FixedSize`]. The defaults are RMM's.
///
/// ```
/// use alluvion::suballoc::FixedSizeConfig;
/// use alluvion::{Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// // Sixteen blocks of 4 KiB at a time, sixty-four in all, and wrong frees are refused.
/// let config = FixedSizeConfig::default().block(4096).blocks(16).maximum(256 << 10).checked(true);
/// assert_eq!(Cuda::new(&sim.device(0)).fixed_size(config.clone())?.status().free_bytes, 64 << 10);
/// assert!(Cuda::new(&sim.device(0)).fixed_size(config.maximum(4096)).is_err(), "not even the first sixteen");
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a configuration does nothing until a suballocator is made with it"]
pub struct FixedSizeConfig {
    engine: EngineConfig,
    block_bytes: usize,
    blocks: usize,
}

impl Default for FixedSizeConfig {
    fn default() -> Self {
        Self { engine: EngineConfig::default(), block_bytes: 1 << 20, blocks: 128 }
    }
}

impl FixedSizeConfig {
    /// The size of a block, rounded up to units of 256 bytes. Default: 1 MiB.
    pub fn block(mut self, bytes: usize) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// How many blocks to take from the upstream at a time: once at the start, and whenever there is none left. Default: 128.
    pub fn blocks(mut self, blocks: usize) -> Self {
        self.blocks = blocks;
        self
    }

    /// Never has more than this from the upstream. Default: no limit.
    pub fn maximum(mut self, bytes: usize) -> Self {
        self.engine.maximum_bytes = bytes;
        self
    }

    /// As [`PoolConfig::checked`](super::PoolConfig::checked).
    pub fn checked(mut self, checked: bool) -> Self {
        self.engine.checked = Some(checked);
        self
    }

    /// As [`PoolConfig::snapshot_on_out_of_memory`](super::PoolConfig::snapshot_on_out_of_memory).
    pub fn snapshot_on_out_of_memory(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.snapshots = Some(SnapshotFiles::new(path.into()));
        self
    }

    /// The units of a block, and of all blocks that are taken at a time.
    fn units(&self) -> Result<(u32, u32), Error> {
        let refuse = |what, why, instead| Err(Error::invalid_argument(what, why, instead));
        if self.block_bytes == 0 {
            return refuse("a block size of zero", "there is nothing to hand out", "pass at least one byte");
        }
        if self.blocks == 0 {
            return refuse("no blocks at a time", "there is nothing to hand out", "pass at least one");
        }
        let units = Layout::from_bytes(self.block_bytes)?.rounded_bytes() / Layout::MIN_ALIGN;
        let chunk = units.checked_mul(self.blocks).and_then(|chunk| u32::try_from(chunk).ok());
        match (u32::try_from(units), chunk) {
            (Ok(units), Some(chunk)) if chunk as usize * Layout::MIN_ALIGN <= self.engine.maximum_bytes => {
                Ok((units, chunk))
            }
            (Ok(_), Some(_)) => refuse(
                "a maximum below the blocks that are taken at a time",
                "not even the first would fit",
                "raise the maximum, or take fewer at a time",
            ),
            _ => refuse("1 TiB or more at a time", "a segment holds less", "take fewer blocks at a time"),
        }
    }
}

impl FixedSize {
    pub(crate) const CARD: Card = Card {
        name: "fixed-size",
        about: "Serves every request with blocks of one size; larger requests fail.",
        parameters: &[
            Parameter::new("block", ArgumentKind::Size, "the size of a block; 1MiB if left out"),
            Parameter::new(
                "blocks",
                ArgumentKind::Count,
                "how many blocks it takes at a time; 128 if left out",
            ),
            Parameter::new(
                "maximum",
                ArgumentKind::Size,
                "the most bytes that it takes; no limit if left out",
            ),
            Ledger::CHECKED,
            SnapshotFiles::ON_OUT_OF_MEMORY,
        ],
    };
}

impl<U: Resource> FixedSize<U> {
    /// Blocks over `upstream`; the first are taken at once.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a block size or a number of blocks of zero, for a product of 1 TiB or more, and for one above the
    /// maximum; as the upstream says.
    pub fn new(upstream: U, config: FixedSizeConfig) -> Result<Self, Error> {
        let (block_units, chunk_units) = config.units()?;
        let engine = Engine::new(
            upstream,
            EngineConfig {
                name: "FixedSize",
                only_units: Some(block_units),
                growth: Growth::Step(chunk_units as usize * Layout::MIN_ALIGN),
                ..config.engine
            },
        );
        engine.take_initial(chunk_units)?;
        Ok(Self { engine, id: ResourceId::unique(), block_units })
    }

    /// The size of every block.
    #[must_use]
    pub fn block_bytes(&self) -> usize {
        self.block_units as usize * Layout::MIN_ALIGN
    }
}

resource_by_engine!(FixedSize, |this, f| {
    write!(f, "FixedSize({} of {})", Size(this.engine.reserved_bytes()), Size(this.block_bytes()))
});
