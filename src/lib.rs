//! Stream-ordered GPU and pinned memory in composable, typed layers.

#![cfg_attr(feature = "nightly", feature(allocator_api))]

pub mod driver;
mod error;
mod sync;

pub use error::{Error, ErrorKind, Unsupported};
