//! The sources, on a real GPU: the same clauses as on the simulated machine.

use alluvion::{Device, Error};

use crate::source_contract;

fn on_the_gpu(clause: fn(&Device) -> Result<(), Error>) {
    let device = Device::named("0").unwrap();
    clause(&device).unwrap();
}

source_contract::sources!(on_the_gpu);

#[test]
fn a_pool_with_blocks_out_is_kept() {
    on_the_gpu(source_contract::a_pool_with_blocks_out_is_kept);
}
