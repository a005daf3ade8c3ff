//! A collection over a borrowed resource ends before the resource does.

use allocator_api2::vec::Vec;
use alluvion::source::Pinned;
use alluvion::{OnHost, Sim};

fn main() {
    let sim = Sim::new();
    let mut vector = {
        let pinned = Pinned::new(&sim.device(0)).unwrap();
        Vec::new_in(OnHost::new(&pinned))
    };
    vector.push(1);
}
