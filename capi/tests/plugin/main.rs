//! Functions that others load by name, called as they call them, on a simulated machine.

#![expect(unsafe_code, reason = "calls functions of C")]
#![allow(
    clippy::disallowed_types,
    clippy::multiple_unsafe_ops_per_block,
    reason = "no model of the scheduler covers these tests; every call is unsafe, with handles that the test holds"
)]

mod chosen;
mod cupy;
mod ends;
mod handler;
mod ort;
#[allow(dead_code, reason = "of the tests of all functions")]
#[path = "../calls/support.rs"]
mod support;
mod torch;
mod torch_ledger;
