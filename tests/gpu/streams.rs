//! What streams, events and frontiers promise, on a real GPU.

use alluvion::{Device, Error};

use crate::stream_contract;

fn on_gpu(clause: fn(&Device) -> Result<(), Error>) {
    let device = Device::named("0").expect("these tests need a GPU");
    clause(&device).unwrap();
}

stream_contract::clauses!(on_gpu);
