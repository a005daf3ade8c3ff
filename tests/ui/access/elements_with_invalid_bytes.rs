//! What the device writes must be a value, whatever the bytes: not every byte is a `bool`.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let _ = DeviceVec::from_slice(&[true], stream);
}
