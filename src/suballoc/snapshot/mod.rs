//! `Snapshot`: every block at one moment.

mod files;
mod json;

pub(super) use files::SnapshotFiles;

use std::io;
use std::time::SystemTime;

use super::Status;
use crate::device::Device;
use crate::resource::DevicePtr;
use crate::stream::{Stamp, StreamId};
use crate::tag::{BlockTags, Tag};

/// Every segment and every block of a suballocator at one moment.
///
/// [`write_json`](Self::write_json) writes it down for `alluvion viz` and `alluvion export`;
/// [`snapshot_on_out_of_memory`](super::PoolConfig::snapshot_on_out_of_memory) has that done when memory runs out.
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::suballoc::BlockState;
/// use alluvion::{Layout, PoolConfig, Resource, ResourceExt, Sim};
///
/// let sim = Sim::new();
/// let (device, stream) = (sim.device(0), sim.device(0).stream()?);
/// let pool = Cuda::new(&device).pool(PoolConfig::default().initial(2 << 20))?;
/// assert_eq!(pool.snapshot().segments[0].bytes, 2 << 20);
/// let layout = Layout::from_bytes(1 << 20)?;
/// let block = pool.allocate(layout, stream.as_ref())?;
/// let states = |pool: &alluvion::Pool<Cuda>| pool.snapshot().blocks.iter().map(|block| block.state).collect::<Vec<_>>();
/// assert_eq!(states(&pool), [BlockState::Live, BlockState::Free]);
/// // SAFETY: the block came from `pool` with this layout, and nothing uses it.
/// unsafe { pool.deallocate(block, layout, stream.as_ref()) };
/// assert_eq!(states(&pool), [BlockState::Cached(Some(stream.id())), BlockState::Free]);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The time of the snapshot.
    pub time: SystemTime,
    /// The device that the memory belongs to.
    pub device: Device,
    /// The figures of the same moment.
    pub status: Status,
    /// In the order of their addresses.
    pub segments: Vec<SegmentView>,
    /// In the order of their addresses. They tile the segments, without gaps.
    pub blocks: Vec<BlockView>,
}

impl Snapshot {
    /// Writes it as JSON, with one line for each segment and each block: see `docs/snapshot-format.md`.
    ///
    /// ```
    /// use alluvion::{PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default().initial(2 << 20))?;
    /// let mut json = Vec::new();
    /// pool.snapshot().write_json(&mut json).expect("a vector takes what it is given");
    /// assert!(json.starts_with(b"{\n\"format\": \"alluvion-snapshot\",\n\"version\": 1,\n"));
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `to`, as they are.
    pub fn write_json(&self, to: impl io::Write) -> io::Result<()> {
        json::write(self, None, to)
    }

    /// Gives each live block the tag that `tag_of` returns. In a snapshot of a suballocator with a ledger, because it
    /// is [checked](super::PoolConfig::checked), each block has the tag of the allocating thread already.
    ///
    /// ```
    /// use alluvion::tag::{Tag, with_tag};
    /// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?;
    /// let numbers = DeviceVec::<f32, _>::zeroed_in(1000, &stream, &pool)?;
    /// let mut snapshot = pool.snapshot();
    /// let join = with_tag("join", Tag::current);
    /// snapshot.label(|block| if block == numbers.as_device_ptr() { join } else { Tag::NONE });
    /// assert_eq!(snapshot.blocks[0].tag, join);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn label(&mut self, mut tag_of: impl FnMut(DevicePtr) -> Tag) {
        for block in self.blocks.iter_mut().filter(|block| block.state == BlockState::Live) {
            block.tag = tag_of(block.address);
        }
    }

    /// As [`label`](Self::label), from the book of a [`Tracking`](crate::adaptor::Tracking) layer above. Layers between
    /// the two may shift the beginning of a block: a block gets the tag of the tracked block that begins in it.
    ///
    /// ```
    /// use alluvion::tag::with_tag;
    /// use alluvion::{DeviceVec, PoolConfig, Resource, ResourceExt, Sim, source::Cuda};
    ///
    /// let sim = Sim::new();
    /// let stream = sim.device(0).stream()?;
    /// let tracking = Cuda::new(&sim.device(0)).pool(PoolConfig::default())?.tracking();
    /// let _numbers = with_tag("join", || DeviceVec::<f32, _>::zeroed_in(1000, &stream, &tracking))?;
    /// let mut snapshot = tracking.upstream().snapshot();
    /// snapshot.label_by(tracking.book());
    /// assert_eq!(snapshot.blocks[0].tag.name(), "join");
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    pub fn label_by(&mut self, book: &(impl BlockTags + ?Sized)) {
        let mut held = book.block_tags();
        held.sort_unstable();
        for block in self.blocks.iter_mut().filter(|block| block.state == BlockState::Live) {
            let first = held.partition_point(|(address, _)| *address < block.address.address());
            let end = block.address.address() + block.bytes as u64;
            if let Some((_, tag)) = held.get(first).filter(|(address, _)| *address < end) {
                block.tag = *tag;
            }
        }
    }
}

/// A segment: memory taken from the upstream in one piece. Part of a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentView {
    /// Where it begins.
    pub address: DevicePtr,
    /// Its length.
    pub bytes: usize,
}

/// A piece of a segment. Part of a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockView {
    /// Where it begins.
    pub address: DevicePtr,
    /// Its length: at least the bytes of the request.
    pub bytes: usize,
    /// Its state.
    pub state: BlockState,
    /// Its tag, if it has one: see [`Snapshot::label`].
    pub tag: Tag,
}

/// The state of a block. Part of a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockState {
    /// Allocated, and not freed.
    Live,
    /// Free, in the cache of a stream, or of synchronous calls (`None`).
    Cached(Option<StreamId>),
    /// Free, once work up to this point of a stream is completed.
    Pending(Stamp),
    /// Free for every stream.
    Free,
}
