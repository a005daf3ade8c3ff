//! The order of uses of memory.
//!
//! The plain bookkeeping under streams: the number of a stream ([`StreamId`]), the part of its work that a free belongs to
//! ([`Epoch`], [`Stamp`]), the points that must come before the next use of a block ([`Frontier`]), the points that a stream has
//! waited for (vector clocks), and the timeline of each stream with the events that cover it. This room knows drivers, and no
//! device or stream.

mod clock;
mod cover;
mod epoch_tree;
mod event_pool;
mod frontier;
mod id;
mod past;
mod places;
mod table;
mod timeline;

pub(crate) use cover::Cover;
pub(crate) use event_pool::EventPool;
pub use frontier::Frontier;
pub use id::{Epoch, Stamp, StreamId};
pub(crate) use places::Places;
pub(crate) use table::{NotEntered, Table};
pub(crate) use timeline::{Ending, Timeline, Uncovered, Underlying};
