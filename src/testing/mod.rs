//! How do I test mine?
//!
//! For people who write a resource of their own, and for this crate's own tests. Nothing here needs a GPU.
//!
//! - [`resource_suite!`](crate::resource_suite) stamps the conformance [suite]: one test for each clause of the contract.
//!   For a layer over another resource it says which method is not forwarded.
//! - [`Shadow`] stands over a resource and checks every block against an interval map; [`run_ops`] drives a resource with
//!   [operations](Op) that a property test or a fuzzer makes up.
//! - [`Sweep`] fails every driver call that a program makes, one after the other. [`Faulty`] fails the n-th allocation of
//!   one resource, [`Delayed`] holds frees up to provoke races over addresses.
//! - [`locks_held`] says, in a function that the crate calls, that it is called under no lock.
//!
//! ```
//! use alluvion::source::Cuda;
//! use alluvion::testing::{Op, Shadow, run_ops};
//! use alluvion::{Resource, Sim};
//!
//! let sim = Sim::new();
//! let resource = Shadow::new(Cuda::new(&sim.device(0)));
//! let ops: Vec<Op> = Op::random(1).take(100).map(|op| op.limited(1 << 20, resource.max_align())).collect();
//! run_ops(&resource, &ops)?;
//! resource.assert_clean();
//! assert!(sim.hazards().is_empty());
//! # Ok::<(), alluvion::testing::Violation>(())
//! ```

mod bench;
mod block;
mod delayed;
mod faulty;
mod locks;
mod ops;
mod run;
mod shadow;
mod stall;
pub mod suite;
mod sweep;
mod upstream;
mod violation;

pub use bench::{Bench, Footprint};
pub use delayed::Delayed;
pub use faulty::Faulty;
pub use locks::locks_held;
pub use ops::Op;
pub use run::{Summary, run_ops, run_ops_untouched};
pub use shadow::{Shadow, ShadowHeap};
pub use stall::{Stall, stall};
pub use sweep::{Sweep, Swept};
pub use upstream::Upstream;
pub use violation::Violation;
