//! `Null`: "nobody may touch its blocks, so no container takes it".

use alluvion::source::Null;
use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let null = Null::new(&sim.device(0));
    let _ = DeviceVec::from_slice_in(&[1, 2, 3], stream.as_ref(), &null);
}
