//! Two `DeviceSliceMut` of one container come from `split_at_mut`, and do not overlap.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let mut vector = DeviceVec::from_slice(&[1, 2, 3], stream).unwrap();
    let mut low = vector.slice_mut(..2).unwrap();
    let mut high = vector.slice_mut(1..).unwrap();
    low.fill(0, stream).unwrap();
    high.fill(0, stream).unwrap();
}
