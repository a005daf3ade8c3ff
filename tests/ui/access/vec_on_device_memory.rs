//! `OnHost` opens for memory that the host may touch: a `Vec` over device memory does not compile.

use allocator_api2::alloc::Allocator;
use alluvion::OnHost;
use alluvion::source::{Cuda, Pinned};

/// What `Vec::new_in` asks for.
fn vec_over<A: Allocator>() {}

fn main() {
    vec_over::<OnHost<&Pinned>>();
    vec_over::<OnHost<&Cuda>>();
}
