//! The sources, on a real GPU: the same clauses as on the simulated machine.

mod source_contract;

use alluvion::{Device, Error};

fn on_the_gpu(clause: fn(&Device) -> Result<(), Error>) {
    let device = Device::cuda(0).unwrap();
    clause(&device).unwrap();
}

source_contract::sources!(on_the_gpu);
