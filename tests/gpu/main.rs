//! What the other tests show on the simulated machine, on the GPU of this computer, mostly by the same code; and what only a GPU
//! can show. A missing GPU is a failure.

#[path = "../support/adaptor_contract/mod.rs"]
mod adaptor_contract;
#[path = "../support/child.rs"]
mod child;
#[path = "../support/container_contract/mod.rs"]
mod container_contract;
#[path = "../support/driver_contract/mod.rs"]
mod driver_contract;
#[macro_use]
#[path = "../support/every_source.rs"]
mod every_source;
#[macro_use]
#[path = "../support/every_suballocator.rs"]
mod every_suballocator;
#[path = "../support/gpu_kernels.rs"]
mod gpu_kernels;
#[path = "../support/gpu_module.rs"]
mod gpu_module;
#[path = "../support/host_contract/mod.rs"]
mod host_contract;
#[cfg(target_os = "linux")]
#[path = "../support/left_over.rs"]
mod left_over;
#[path = "../support/not_sync.rs"]
mod not_sync;
#[path = "../support/own_context.rs"]
mod own_context;
#[path = "../support/raw_block.rs"]
mod raw_block;
#[path = "../support/rerun.rs"]
mod rerun;
#[path = "../support/scenario/mod.rs"]
mod scenario;
#[cfg(target_os = "linux")]
#[path = "../support/shareable.rs"]
mod shareable;
#[cfg(target_os = "linux")]
#[path = "../support/sharing_contract/mod.rs"]
mod sharing_contract;
#[path = "../support/source_contract/mod.rs"]
mod source_contract;
#[path = "../support/stream_contract/mod.rs"]
mod stream_contract;

mod adaptors;
mod conformance;
mod containers;
mod cudarc;
mod driver;
mod graphs;
mod pinned;
mod pools;
#[cfg(target_os = "linux")]
mod processes;
mod scenarios;
mod segments;
#[cfg(target_os = "linux")]
mod shared;
mod sleep;
mod sources;
mod streams;
