//! Who carves memory up?

#![allow(dead_code, missing_docs, unsafe_code, clippy::undocumented_unsafe_blocks)]

pub(crate) mod core;
mod growth;
mod out_of_memory;
mod pool;
mod pool_config;
mod reuse;
mod size;
mod snapshot;
mod status;

pub use growth::Growth;
pub use out_of_memory::{Cause, OutOfMemory, Relief};
pub use pool::Pool;
pub use pool_config::PoolConfig;
pub use reuse::Reuse;
pub use snapshot::{BlockState, BlockView, SegmentView, Snapshot};
pub use status::Status;
