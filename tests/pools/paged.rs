//! What the tests of pools over pages have in common.

use alluvion::source::Mapped;
use alluvion::suballoc::Growth;
use alluvion::testing::Bench;
use alluvion::{Pool, PoolConfig, Resource, ResourceExt, Sim, Stream};

use crate::raw_block::Held;

pub(crate) const MIB: usize = 1 << 20;
/// The page of the simulated machine; on one with so little memory a page of the pool is no longer.
pub(crate) const PAGE: usize = 2 * MIB;

/// A machine with one device of so many pages.
pub(crate) fn machine(pages: usize) -> Sim {
    Sim::with_config(Bench::config().devices(1).memory_bytes(pages * PAGE))
}

/// The same, where no page has two addresses.
pub(crate) fn machine_without_aliases(pages: usize) -> Sim {
    Sim::with_config(Bench::config().devices(1).memory_bytes(pages * PAGE).aliases(false))
}

/// A pool that maps what a request lacks, and no more.
pub(crate) fn exact() -> PoolConfig {
    PoolConfig::default().growth(Growth::Exact)
}

pub(crate) fn pool(sim: &Sim, config: PoolConfig) -> Pool<Mapped> {
    Mapped::new(&sim.device(0)).and_then(|source| source.pool(config)).expect("the device maps pages")
}

pub(crate) fn free_all<R: Resource>(blocks: Vec<Held<'_, R>>, stream: &Stream) {
    blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
}
