//! What the device writes must be a value: no references, which it would forge.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let _ = DeviceVec::from_slice(&["a pointer of the host"], stream);
}
