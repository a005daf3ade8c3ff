//! Stream-ordered GPU and pinned memory in composable, typed layers, with a simulated GPU to test them.
//!
//! ```
//! use alluvion::prelude::*;
//! use alluvion::{DeviceVec, PoolConfig, Sim, source::CudaAsync};
//!
//! let sim = Sim::new();
//! let device = sim.device(0); // With a GPU: `alluvion::Device::cuda(0)?`.
//! let (copies, computes) = (device.stream()?, device.stream()?);
//! let pool = CudaAsync::new(&device)?.pool(PoolConfig::default())?;
//! let mut numbers = DeviceVec::from_slice_in(&[1_u32, 2, 3], &copies, &pool)?;
//! numbers.fill(7, &computes)?; // On another stream: it waits for the upload, on the device.
//! assert_eq!(numbers.to_vec(&copies)?, [7, 7, 7]);
//! drop(numbers); // At once: the memory goes back to the pool, behind the work of both streams.
//! assert!(sim.hazards().is_empty()); // The simulator has watched every access.
//! # Ok::<(), alluvion::Error>(())
//! ```
//!
//! # The rooms
//!
//! Each module is a room with one question, and names only those that stand below it here. `ARCHITECTURE.md` has all of them, and
//! walks an allocation through.
//!
//! | Room | Question | Start with |
//! |---|---|---|
//! | `testing` | How do I test mine? | `resource_suite!`, `testing::Shadow` (feature `testing`) |
//! | [`interop`] | How do other libraries use this memory? | `DeviceVec::from_cudarc`, `ReadGuard::for_cudarc` |
//! | [`saved`] | What outlives its process? | [`saved::Saver`], [`saved::SavedFile`] |
//! | [`container`] | What does a user hold? | [`DeviceVec`], [`DeviceBuffer`], [`DeviceScalar`], [`Transfer`] |
//! | [`host`] | What can `Vec` use? | [`PinnedAlloc`], [`host::Vec`], [`OnHost`] |
//! | [`current`] | What does a device allocate from when nobody says? | [`Device::current_resource`] |
//! | [`metrics`] | How is it doing now? | [`metrics::Metrics`] |
//! | [`recipe`] | How is a stack written down? | [`Recipe`] |
//! | [`compose`] | How is a stack built, and asked? | [`ResourceExt`], [`prelude`] |
//! | [`adaptor`] | Who watches, who forbids? | [`adaptor::Stats`], [`adaptor::Logging`], [`adaptor::Limiting`] |
//! | [`suballoc`] | Who carves memory up? | [`Pool`], [`Arena`], [`FixedSize`], [`Binning`] |
//! | [`source`] | Where do bytes come from? | [`source::CudaAsync`], [`source::Pinned`], [`source::Cuda`] |
//! | [`trace`] | What happened? | [`trace::Trace`] |
//! | [`relief`] | Who is asked when memory runs out? | [`relief::Relief`] |
//! | [`ledger`] | Who frees without a size? | [`Ledger`], [`Device::ledger`] |
//! | [`resource`] | What is a resource? | [`Resource`], [`AnyResource`], [`ResourceRef`], [`Layout`] |
//! | [`stream`] | When may memory be reused? | [`Stream`], [`StreamRef`], [`Event`], [`Frontier`] |
//! | [`device`] | Which machine, and which GPU of it? | [`Device`], [`Machine`], [`Sim`] |
//! | [`error`] | What went wrong? | [`Error`], [`error::OutOfMemory`] |
//! | [`sim`] | What would a GPU have done? | [`sim::SimConfig`], [`sim::Fault`] |
//! | [`driver`] | Who talks to the hardware? | [`driver::Driver`], `driver::cuda` |
//! | [`tag`] | What is an allocation for? | [`tag::with_tag`] |
//! | `nvtx` | Which tool watches this process? | `nvtx::start` (feature `nvtx`) |
//!
//! # Three rules
//!
//! **Every call names a stream.** Memory that is allocated on a stream may be used by work ordered after the
//! call on that stream; it is given back behind the work on the stream that it is freed on. Containers keep
//! that order for you, on any number of streams.
//!
//! **A type says who may touch memory.** [`DeviceAccessible`] and [`HostAccessible`] are forwarded from layer
//! to layer. What the host may not touch has no pointer: a [`DevicePtr`] is a number, and `Vec` over device
//! memory does not compile.
//!
//! **Nothing outlives what it names.** A container borrows or owns its resource, a [`StreamRef`] borrows its
//! stream, a transfer owns or borrows its buffer until it is done. What remains to be promised, about kernels
//! and raw handles, is `unsafe` and says what.
//!
//! Errors are one type, [`Error`]. A call that fails has changed nothing and lost nothing; a `drop` that fails
//! leaks, in silence.
//!
//! # Features
//!
//! - `cuda` (default): the CUDA driver, through cudarc, loaded at run time. Without it only simulated machines exist.
//! - `runtime` (default): runtime libraries as drivers, loaded at run time: NVIDIA's cudart, AMD's HIP, MetaX's MACA. The last two have
//!   not been run on hardware.
//! - `sim` (default): the simulated machine.
//! - `backtrace`: [`adaptor::Tracking`] can capture call stacks, all of them or samples.
//! - `testing`: the conformance suite, the shadow heap and the fault sweep.
//! - `gzip`: logs whose name ends in `.gz` are packed.
//! - `tracing`: debug events of suballocators, of the target `alluvion`: grow, steal, wait, trim, and the strategies of running out.
//! - `nvtx`: NVIDIA's tools see into suballocators, through NVTX: `compute-sanitizer` each block, Nsight Systems growth, waits and tags.
//! - `half`: the `f16` and `bf16` of half can be elements of containers.
//! - `bytemuck`: what is `Pod` can be an element of a container, see `container::Plain` and [`device_copy!`].
//! - `allocator-api2-04`: [`OnHost`] also implements the `Allocator` of allocator-api2 0.4, beside that of 0.2.
//! - `nightly`: [`OnHost`] also implements the standard library's unstable `Allocator`.
//! - `gpu-tests`: tests that need a GPU. With this feature a missing GPU is a failure, not a skip.

#![cfg_attr(feature = "nightly", feature(allocator_api))]

pub mod adaptor;
mod blocks;
pub mod compose;
mod contain;
pub mod container;
pub mod current;
pub mod device;
pub mod driver;
mod environment;
pub mod error;
pub mod host;
pub mod interop;
mod joint;
pub mod ledger;
pub mod metrics;
#[cfg(feature = "nvtx")]
pub mod nvtx;
#[cfg(not(feature = "nvtx"))]
#[path = "nvtx/off.rs"]
mod nvtx;
mod order;
pub mod prelude;
pub mod recipe;
pub mod relief;
pub mod resource;
pub mod saved;
#[cfg(unix)]
pub mod share;
#[cfg(feature = "sim")]
pub mod sim;
mod size;
pub mod source;
pub mod stream;
pub mod suballoc;
mod sync;
pub mod tag;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trace;
mod whole_file;

pub use compose::{PerDevice, ResourceExt};
pub use container::{
    Asleep, DeviceBuffer, DeviceCopy, DeviceScalar, DeviceSlice, DeviceSliceMut, DeviceVec, GuardedPtr,
    HostBuffer, RawParts, ReadGuard, Transfer, TransferScope, WriteGuard,
};
#[cfg(feature = "sim")]
pub use device::Sim;
pub use device::{Capabilities, Device, Machine};
pub use driver::MemoryInfo;
pub use error::{Error, ErrorKind, Misuse, MisuseKind, Returned, Unsupported};
pub use host::{NewDelete, OnHost, PinnedAlloc, PinnedVec};
pub use ledger::Ledger;
pub use recipe::Recipe;
pub use resource::{
    AnyResource, Describe, DeviceAccessible, DevicePtr, HostAccessible, Layout, Resource, ResourceId,
    ResourceRef, Shareable,
};
pub use stream::{
    Epoch, Event, Frontier, OnStream, PerThreadStream, Stamp, Stream, StreamFlags, StreamPool, StreamRef,
};
pub use suballoc::{Arena, Binning, FixedSize, GraphMemory, Pool, PoolConfig, SleepConfig, Sleeper};

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "sim"))]
#[doc = include_str!("../README.md")]
struct Readme;
