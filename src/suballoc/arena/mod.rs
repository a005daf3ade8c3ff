//! `Arena`: a fixed piece of memory, shared out to streams in large parts.

#![expect(unsafe_code, reason = "implements the contract of resources")]

use core::fmt;
use std::path::PathBuf;

use super::core::MAX_UNITS;
use super::engine::resource_by_engine;
use super::engine::{Engine, EngineConfig};
use super::snapshot::SnapshotFiles;
use super::{Growth, Snapshot, Status};
use crate::device::Device;
use crate::driver::MemoryInfo;
use crate::error::Error;
use crate::error::OutOfMemory;
use crate::relief::Relief;
use crate::resource::card::{ArgumentKind, Card, Parameter};
use crate::resource::{
    AnyResource, DeviceAccessible, DevicePtr, HostAccessible, Layer, LayerBook, Layout, Resource, ResourceId,
};
use crate::size::Size;
use crate::stream::{OnStream, StreamRef};
use crate::suballoc::ledger::Ledger;

/// The memory that a stream reserves for its small blocks, as RMM's superblock: 1 MiB.
const SUPERBLOCK_BYTES: usize = 1 << 20;

/// Takes a fixed amount of its upstream at once, and never more. A stream that needs small blocks takes a *superblock*
/// of 1 MiB from the whole and carves it alone, so the small blocks of streams do not mix; larger requests come from
/// the whole. An arena that has no superblock left, as one of less than 1 MiB, gives small blocks out of the whole, too. The
/// default stream of each thread is a stream of its own, so threads that use it have an arena each.
///
/// When a request does not fit, the memory that other streams have freed is merged, after a wait for work that is not
/// completed.
///
/// The memory goes back when the arena is dropped, or when [`trim`](Resource::trim) finds all of it unused; then the next
/// request takes it anew.
///
/// # Stream ordering, thread safety, the end
///
/// As a [`Pool`](super::Pool)'s.
///
/// # Examples
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::suballoc::ArenaConfig;
/// use alluvion::{Layout, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let arena = Cuda::new(&device).arena(ArenaConfig::default().bytes(16 << 20))?;
/// assert_eq!(arena.bytes(), 16 << 20);
/// let layout = Layout::from_bytes(10_000)?;
/// let block = arena.allocate(layout, stream.as_ref())?;
/// assert!(arena.allocate(Layout::from_bytes(17 << 20)?, stream.as_ref()).unwrap_err().is_out_of_memory());
/// // SAFETY: the block came from `arena` with this layout, and nothing uses it.
/// unsafe { arena.deallocate(block, layout, stream.as_ref()) };
/// # Ok::<(), alluvion::Error>(())
/// ```
pub struct Arena<U: Resource = AnyResource> {
    engine: Engine<U>,
    id: ResourceId,
    bytes: usize,
}

/// The size of an [`Arena`], and the function that it calls when it has run out.
///
/// ```
/// use std::sync::mpsc;
///
/// use alluvion::suballoc::ArenaConfig;
/// use alluvion::error::Cause;
/// use alluvion::{Layout, Resource, ResourceExt, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let (tell, told) = mpsc::channel();
/// let config = ArenaConfig::default().bytes(4 << 20).dump_on_failure(move |report| {
///     let _ = tell.send(report.cause);
/// });
/// let arena = Cuda::new(&sim.device(0)).arena(config)?;
/// assert!(arena.allocate_sync(Layout::from_bytes(5 << 20)?).is_err());
/// assert_eq!(told.try_recv(), Ok(Cause::TooLarge));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a configuration does nothing until a suballocator is made with it"]
pub struct ArenaConfig {
    engine: EngineConfig,
    bytes: Option<usize>,
}

impl ArenaConfig {
    /// How much to take, rounded down to units of 256 bytes. Default: half of what is free.
    pub fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// As [`PoolConfig::checked`](super::PoolConfig::checked).
    pub fn checked(mut self, checked: bool) -> Self {
        self.engine.checked = Some(checked);
        self
    }

    /// Calls `dump` with the report of every request that fails, before the handlers are asked. No lock is held, so it
    /// may take a [`snapshot`](Arena::snapshot) of the arena.
    pub fn dump_on_failure(mut self, dump: impl Fn(&OutOfMemory) + Send + Sync + 'static) -> Self {
        self.engine.handlers.push_witness(dump);
        self
    }

    /// As [`PoolConfig::on_out_of_memory`](super::PoolConfig::on_out_of_memory).
    pub fn on_out_of_memory(
        mut self,
        handler: impl Fn(&OutOfMemory) -> Relief + Send + Sync + 'static,
    ) -> Self {
        self.engine.handlers.push(handler);
        self
    }

    /// As [`PoolConfig::snapshot_on_out_of_memory`](super::PoolConfig::snapshot_on_out_of_memory).
    pub fn snapshot_on_out_of_memory(mut self, path: impl Into<PathBuf>) -> Self {
        self.engine.snapshots = Some(SnapshotFiles::new(path.into()));
        self
    }
}

impl Arena {
    pub(crate) const CARD: Card = Card {
        name: "arena",
        about: "Takes a fixed amount when it is made, and gives streams large parts of it.",
        parameters: &[
            Parameter::new("bytes", ArgumentKind::Size, "the amount; half of what is free if left out"),
            Ledger::CHECKED,
            SnapshotFiles::ON_OUT_OF_MEMORY,
        ],
    };
}

impl<U: Resource> Arena<U> {
    /// An arena over `upstream`; its memory is taken at once.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` below 256 bytes and from 1 TiB; as the upstream says.
    pub fn new(upstream: U, config: ArenaConfig) -> Result<Self, Error> {
        let bytes = match config.bytes {
            Some(bytes) => bytes,
            None => upstream.memory_info()?.free_bytes / 2,
        };
        let bytes = bytes & !(Layout::MIN_ALIGN - 1);
        if bytes < Layout::MIN_ALIGN {
            return Err(Error::invalid_argument(
                "an arena below 256 bytes",
                "no block is smaller",
                "make it larger, or use a `Pool`",
            ));
        }
        let units = u32::try_from(bytes / Layout::MIN_ALIGN).ok().filter(|units| *units < MAX_UNITS);
        let Some(units) = units else {
            return Err(Error::invalid_argument(
                "an arena of 1 TiB or more",
                "a segment holds less",
                "make it smaller, or use a `Pool`",
            ));
        };
        let engine = Engine::new(
            upstream,
            EngineConfig {
                name: "Arena",
                maximum_bytes: bytes,
                claim_units: (SUPERBLOCK_BYTES / Layout::MIN_ALIGN) as u32,
                growth: Growth::Step(bytes),
                ..config.engine
            },
        );
        engine.take_initial(units)?;
        Ok(Self { engine, id: ResourceId::unique(), bytes })
    }

    /// How large it is.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

resource_by_engine!(Arena, |this, f| write!(f, "Arena({})", Size(this.bytes)));
