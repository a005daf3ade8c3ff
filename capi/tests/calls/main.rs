//! What the functions answer, called from Rust as C calls them, on a simulated machine.

#![expect(unsafe_code, reason = "calls functions of C")]
#![allow(
    clippy::disallowed_types,
    clippy::multiple_unsafe_ops_per_block,
    reason = "no model of the scheduler covers these tests; every call is unsafe, with handles that the test holds"
)]

mod allocation;
mod allowance;
mod figures;
mod graph_memory;
mod ledger;
mod machines;
mod many;
mod resources;
mod saved;
mod segments;
mod share;
mod share_ends;
mod shared_pair;
mod sleep;
mod sources;
mod streams;
mod support;
mod violation;
