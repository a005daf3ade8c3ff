//! Sources: resources that get memory from a driver or from the host.
//!
//! | Source | Driver call | Device | Host | Stream-ordered |
//! |---|---|---|---|---|
//! | [`Cuda`] | `cuMemAlloc` | yes | | |
//! | [`CudaAsync`] | `cuMemAllocFromPoolAsync`, a pool of its own | yes | | yes |
//! | [`CudaAsyncView`] | the same, a pool with another owner | yes | | yes |
//! | [`CudaAsyncManaged`] | the same, the driver's managed pool | yes | yes | yes |
//! | [`Mapped`] | `cuMemCreate`, `cuMemMap` | yes | | |
//! | [`Managed`] | `cuMemAllocManaged` | yes | yes | |
//! | [`Pinned`] | `cuMemHostAlloc`, or pages registered by `cuMemHostRegister` | yes | yes | |
//! | `System` (Linux) | none: pages of the host | yes | yes | |
//! | [`Callback`] | two closures | yes | | as they are |
//! | [`Null`] | none: addresses without memory | | | |
//!
//! [`Cuda`], [`CudaAsync`] and [`Mapped`] hand out memory of one device; `peers` of their configurations names other devices that may
//! access it, too.
//!
//! A source calls the driver for each block. To call it seldom, put a [`pool`](crate::ResourceExt::pool) over one: over [`Mapped`],
//! [`Cuda`] or [`CudaAsync`] for device memory, over [`Pinned`] for memory that host and device both access.

mod block_range;
mod callback;
mod cuda;
mod cuda_async;
mod cuda_async_config;
mod cuda_async_managed;
mod cuda_async_view;
mod cuda_config;
mod driver_pool;
mod exporting;
mod host_wait;
mod managed;
mod mapped;
mod migration;
mod null;
#[cfg(unix)]
mod pages;
pub(crate) mod peers;
mod pinned;
mod postponed_frees;
mod refusal;
#[cfg(target_os = "linux")]
mod system;

pub use block_range::BlockRange;
pub use callback::Callback;
pub use cuda::Cuda;
pub use cuda_async::CudaAsync;
pub use cuda_async_config::CudaAsyncConfig;
pub use cuda_async_managed::CudaAsyncManaged;
pub use cuda_async_view::CudaAsyncView;
pub use cuda_config::CudaConfig;
pub use managed::Managed;
pub use mapped::{Mapped, MappedConfig};
pub use null::Null;
pub use pinned::{NumaPolicy, Pinned, PinnedConfig};
#[cfg(target_os = "linux")]
pub use system::{System, SystemConfig};
