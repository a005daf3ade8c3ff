//! Which stream owns each free block, and which block fits?
//!
//! The plain data behind every suballocator: no driver, no lock, no resource, no unsafe code. The engine holds it under
//! one lock and acts on its decisions. All sizes are counts of [`UNIT`]s.
//!
//! - A *segment* is a range of addresses that the core may carve. Its *blocks* tile it and are linked in the order of
//!   their addresses; each is either out or free. Nothing is written to the memory itself.
//! - A free block has an [`Owner`]: the stream on which it was freed, with the epoch of the free; or none (*unowned*),
//!   if all its work is completed. Free neighbours of one owner are always merged. Neighbours of different owners are
//!   merged by [`Core::gather`] only, into a block of a stream that may reuse both: waiting comes first, merging
//!   second.
//! - Each owner has a two-level segregated fit of its own ([`Bins`](bins::Bins)): a search is a few bit operations and a
//!   bounded number of blocks, however many holes there are.
//!
//! A block costs one [`BlockNode`](node::BlockNode) of 40 bytes, and one that is out 11 to 16 more in the index of addresses.
#![forbid(unsafe_code)]

mod alias;
mod allocate;
mod bins;
mod cache;
mod disown;
mod fit;
mod gather;
mod index;
mod join;
mod large_blocks;
mod mapping;
mod node;
mod nodes;
mod owner;
mod plan;
mod range;
mod recent;
mod release;
mod segment;
mod site;
mod size_class;
mod sleeping;
mod span;
mod survey;
#[cfg(all(test, not(loom)))]
mod tests;
mod unmapping;

pub(crate) use alias::{Return, Stale};
pub(crate) use cache::{Cache, LONG_UNITS, Spilled};
pub(crate) use disown::Disowning;
pub(crate) use mapping::Growing;
pub(crate) use owner::{Owned, Owner};
pub(crate) use range::Extent;
pub(crate) use segment::{Around, Segment};
pub(crate) use size_class::{MAX_UNITS, Want};
pub(crate) use sleeping::FreedAsleep;
pub(crate) use span::Span;
pub(crate) use survey::{Inspected, SeenState};
#[cfg(all(test, not(loom)))]
pub(crate) use {release::NotOut, survey::BlockSeen};

use index::Index;
use nodes::Nodes;
use owner::Owners;
use range::Ranges;
use segment::Segments;

/// What all sizes count, in bytes: the smallest alignment of a block.
pub(crate) const UNIT: u64 = 256;

/// The blocks of one suballocator.
#[derive(Debug, Default)]
pub(crate) struct Core {
    nodes: Nodes,
    /// The blocks that are out, by address. A free one is reached from its neighbours and its owner.
    index: Index,
    owners: Owners,
    segments: Segments,
    ranges: Ranges,
    /// The free units of all owners.
    free_units: u64,
    /// The number of frees so far.
    released: u64,
    /// The number of calls of `gather` so far.
    gathered: u64,
    /// The number of growths in place that have begun or were abandoned so far: either cuts or returns free blocks.
    regrown: u64,
    /// Unowned memory stays unowned, even while there is only one stream.
    apart: bool,
    /// Blocks were freed as unowned while there was one stream: only then can its free memory lie beside unowned
    /// memory.
    mixed: bool,
}

impl Core {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The same, where streams take of unowned memory only what they need.
    pub(crate) fn keeping_apart() -> Self {
        Self { apart: true, ..Self::default() }
    }
}
