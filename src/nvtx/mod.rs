//! Which tool watches this process?
//!
//! NVTX is how a program tells NVIDIA's tools what it does. A tool names a library of its own in the environment variable
//! `NVTX_INJECTION64_PATH`; [`start`] loads it and hands it tables of empty slots, which it fills with functions. Nothing of NVTX is
//! linked: `abi` has the layouts and numbers of its headers, in their third version.
//!
//! From then on, without a word from the program:
//!
//! - Suballocators announce what they have as *heaps*, and the blocks of it that are out as *regions*, with the tags of the blocks as
//!   names. So `compute-sanitizer` reports an access beyond a block, or to one that was freed, as it does for memory of the driver. It
//!   takes allocations of [`Cuda`](crate::source::Cuda), [`Managed`](crate::source::Managed) and [`Pinned`](crate::source::Pinned) for
//!   heaps; of other memory, such as that of driver pools, nothing is announced.
//! - Growth, waits, trims and sleep are ranges, steals and refusals are marks, and scopes of [`with_tag`](crate::tag::with_tag) are
//!   ranges of their thread, all in the domain `alluvion`. Nsight Systems draws them.
//!
//! A program with raised privileges loads no library that its environment names. A child of a fork tells nothing, unless nobody
//! had called on the tool by then: in the child it may begin, and hears of the child alone.
//!
//! ```
//! let heard = alluvion::nvtx::start();
//! // No tool has started this program.
//! assert!(!heard.ranges() && !heard.memory());
//! ```
//!
//! `docs/tools.md` has the commands.

mod abi;
mod load;
mod memory;
mod name;
mod piece;
mod pieces;
mod ranges;
mod slots;
mod tool;

pub(crate) use load::announces_all;
pub use load::{Announced, Heard, announce, start};
pub(crate) use memory::{Piece, divide, enter, knows, leave, listens, unite, vouch};
pub(crate) use ranges::{begin_scope, end_scopes, hears_ranges, mark, range};
