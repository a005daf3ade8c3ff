//! `Snapshot`: every block at one moment.

use crate::resource::DevicePtr;
use crate::stream::{Stamp, StreamId};

#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Snapshot {
    /// In the order of their addresses.
    pub segments: Vec<SegmentView>,
    /// In the order of their addresses, without gaps within a segment.
    pub blocks: Vec<BlockView>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentView {
    pub address: DevicePtr,
    pub bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockView {
    pub address: DevicePtr,
    pub bytes: usize,
    pub state: BlockState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockState {
    /// Out.
    Live,
    /// In the cache of a stream, or of no stream.
    Cached(Option<StreamId>),
    /// Free, behind a point of a stream.
    Pending(Stamp),
    /// Free for anybody.
    Free,
}
