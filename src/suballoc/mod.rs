//! Who carves memory up?
//!
//! A suballocator takes *segments* from its upstream and hands out *blocks* of them. All share one design: a cache for
//! each stream, one core of plain data behind the caches, and an engine around both, which locks and asks the driver
//! which work is completed.
//!
//! | Suballocator | For | Takes from its upstream |
//! |---|---|---|
//! | [`Pool`] | everything | as it needs, and some to spare: [`Growth`] |
//! | [`Arena`] | a fixed amount, of which streams have large parts each | all of it, once |
//! | [`FixedSize`] | blocks of one size | many blocks at a time |
//! | [`Binning`] | small requests to bins of one size each, the rest to the upstream | as the bins do |
//!
//! Each is a method of every resource, too: [`pool`](crate::ResourceExt::pool), [`arena`](crate::ResourceExt::arena),
//! [`fixed_size`](crate::ResourceExt::fixed_size), [`binning`](crate::ResourceExt::binning).
//!
//! The words, beside those of [`stream`](crate::stream) and [`resource`](crate::resource):
//!
//! - *unit*: 256 bytes; all sizes are multiples of it;
//! - *segment*: a block of the upstream;
//! - *owner* of a free block: the stream that it was freed on, at an epoch; a block is *unowned* if all work that used
//!   it is completed;
//! - *reach* of a stream into another: the last epoch of the other stream that the next work of this one comes after;
//! - *cached*: freed, and in the cache of the stream that freed it.

mod arena;
mod binning;
pub(crate) mod core;
mod debugger;
mod engine;
mod fixed_size;
mod growth;
mod ledger;
mod page_budget;
mod pool;
mod reuse;
mod segment_hooks;
mod sleep_config;
mod snapshot;
mod status;

pub use arena::{Arena, ArenaConfig};
pub(crate) use binning::KeepsBlocks;
pub use binning::{Binning, BinningBuilder};
pub(crate) use engine::ReservationId;
pub use engine::SuballocBook;
pub use fixed_size::{FixedSize, FixedSizeConfig};
pub use growth::Growth;
pub use page_budget::PageBudget;
pub use pool::{GraphMemory, Pool, PoolConfig, Sleeper};
pub use reuse::Reuse;
pub use segment_hooks::SegmentHooks;
pub use sleep_config::SleepConfig;
pub use snapshot::{BlockState, BlockView, SegmentView, Snapshot};
pub use status::Status;
