//! Columns of a dataframe in memory of a GPU: what a library over `alluvion` looks like.
//!
//! - The owner of memory is generic over its resource `R`, and holds a handle of it: `&Pool<_>`, `Arc<Pool<_>>`, a
//!   [`ResourceRef`](alluvion::ResourceRef) or an [`AnyResource`](alluvion::AnyResource). The caller chooses.
//! - Every call that works on the device takes `impl OnStream<'_>`, and any stream will do: containers keep the order.
//! - What comes from the host is staged in pinned memory, of an allocator that the caller passes.
//! - Scratch memory comes from a [`ResourceRef`](alluvion::ResourceRef) that the caller may limit, and goes back before the
//!   call returns.
//! - Errors are [`alluvion::Error`]. Whatever fails has changed nothing and lost nothing.
//! - The kernels are behind a trait, [`Kernels`], so that all of this is tested without a GPU.
//!
//! ```
//! use alluvion::prelude::*;
//! use alluvion::source::{Cuda, CudaAsync};
//! use alluvion::{DeviceVec, PinnedAlloc, PoolConfig, Sim};
//! use columns::{Categories, Simulated};
//!
//! let sim = Sim::new();
//! let device = sim.device(0);
//! let (loads, computes) = (device.stream()?, device.stream()?);
//! let (kernels, staging) = (Simulated::new(&sim), PinnedAlloc::new(&device)?);
//! let pool = CudaAsync::new(&device)?.pool(PoolConfig::default())?;
//! let scratch = Cuda::new(&device).limiting(1 << 20);
//!
//! let sold = Categories::from_host(&[Some("pear"), None, Some("fig"), Some("pear")], &staging, &loads, &pool)?;
//! let prices = DeviceVec::from_slice_in(&[0.5, 2.25], &loads, &pool)?; // One for each name: pear, fig.
//! let income = sold.look_up(prices.as_slice(), &kernels, &computes, &pool)?;
//! drop((sold, prices)); // At once: the kernel on the other stream comes first.
//! assert_eq!(income.sum(&kernels, &computes, (&scratch).into())?, 3.25);
//! assert_eq!(income.to_host(&loads)?, [Some(0.5), None, Some(2.25), Some(0.5)]);
//! # assert!(sim.hazards().is_empty());
//! # Ok::<(), alluvion::Error>(())
//! ```

mod categories;
mod column;
mod kernels;
mod simulated;
mod staging;
mod strings;

pub use categories::Categories;
pub use column::Column;
pub use kernels::{CHUNK_ROWS, Kernels};
pub use simulated::Simulated;
pub use strings::Strings;
