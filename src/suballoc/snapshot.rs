//! `Snapshot`: every block at one moment.

use crate::resource::DevicePtr;
use crate::stream::{Stamp, StreamId};

/// Every segment and every block of a suballocator at one moment.
///
/// ```
/// use alluvion::source::Cuda;
/// use alluvion::suballoc::BlockState;
/// use alluvion::{Layout, PoolConfig, Resource, Sim};
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// In the order of their addresses.
    pub segments: Vec<SegmentView>,
    /// In the order of their addresses. They tile the segments, without gaps.
    pub blocks: Vec<BlockView>,
}

/// What was taken from the upstream in one piece: part of a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentView {
    /// Where it begins.
    pub address: DevicePtr,
    /// How long it is.
    pub bytes: usize,
}

/// A piece of a segment: part of a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockView {
    /// Where it begins.
    pub address: DevicePtr,
    /// How long it is: at least what was asked for.
    pub bytes: usize,
    /// Who has it.
    pub state: BlockState,
}

/// Who has a block: part of a [`Snapshot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockState {
    /// It is out.
    Live,
    /// It is free, in the cache of a stream, or in that of synchronous calls.
    Cached(Option<StreamId>),
    /// It is free, behind a point of a stream.
    Pending(Stamp),
    /// It is free for anybody.
    Free,
}
