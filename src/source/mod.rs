//! Where do bytes come from?

mod cuda;
mod cuda_async;
mod null;
mod pinned;

pub use cuda::Cuda;
pub use cuda_async::CudaAsync;
pub use null::Null;
pub use pinned::{NumaPolicy, Pinned, PinnedConfig};
