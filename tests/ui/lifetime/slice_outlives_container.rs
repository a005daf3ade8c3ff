//! A `DeviceSlice` is borrowed from its container.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let slice = {
        let vector = DeviceVec::from_slice(&[1, 2, 3], stream).unwrap();
        vector.slice(1..).unwrap()
    };
    let _ = slice.len();
}
