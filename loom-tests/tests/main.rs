//! The models, one protocol a file: one program, because each one links the library, and takes seconds to.

#![cfg(loom)]

// Three models are of types of the crate's own: their files are included, with the facade that they are written against.
#[path = "../../src/joint/life.rs"]
mod life;
#[expect(
    dead_code,
    unexpected_cfgs,
    unused_imports,
    reason = "the room holds more than they need, some of it behind a feature"
)]
#[path = "../../src/sync/mod.rs"]
mod sync;
mod joint {
    pub(crate) use super::life::{KinMark, Life};
}

mod aligned_address_reuse;
mod cover_vs_free;
mod current_resource;
mod deferred_cover;
mod event_pool;
mod fallback_spill;
mod guard_address_reuse;
mod host_wait_vs_free;
mod limiting_reservation;
mod logging;
mod logging_queue;
mod open_use_vs_retire;
mod pool_free_vs_steal;
mod pool_gather;
mod pool_graph;
mod pool_pages;
mod pool_remote_free;
mod pool_retire_vs_steal;
mod pool_segment_hooks;
mod pool_shutdown;
mod pool_sleep;
mod pool_snapshot;
mod pool_take_then_wait;
mod pool_trim_vs_allocate;
mod pool_two_grow;
mod raw_sweep_vs_lookup;
mod rest_vs_cover;
mod retire_vs_cover;
mod shared_table;
mod stats_counters;
mod table_sweep_vs_lookup;
mod thread_safe;
mod token;
mod tracking_address_reuse;
mod two_covers;
mod uses_of_two_threads;
mod wait_vs_reuse;
