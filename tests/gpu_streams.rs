//! What streams, events and frontiers promise, on a real GPU.

#![expect(unsafe_code, reason = "queues functions, and wraps streams that it makes beside the crate")]

mod stream_contract;

use alluvion::{Device, Error};

fn on_gpu(clause: fn(&Device) -> Result<(), Error>) {
    let device = Device::cuda(0).expect("these tests need a GPU");
    clause(&device).unwrap();
}

stream_contract::clauses!(on_gpu);
