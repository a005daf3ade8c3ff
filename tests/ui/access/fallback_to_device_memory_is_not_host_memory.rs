//! Who may touch the blocks of a `Fallback` is who may touch those of both: pinned memory that falls back to device memory is no
//! memory for `Vec`.

use allocator_api2::alloc::Allocator;
use alluvion::OnHost;
use alluvion::adaptor::Fallback;
use alluvion::source::{Cuda, Managed, Pinned};

/// What `Vec::new_in` asks for.
fn vec_over<A: Allocator>() {}

fn main() {
    vec_over::<OnHost<&Fallback<Pinned, Managed>>>();
    vec_over::<OnHost<&Fallback<Pinned, Cuda>>>();
}
