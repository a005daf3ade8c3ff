//! While kernels are launched with an address to read from, nobody writes there.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let mut vector = DeviceVec::from_slice(&[1, 2, 3], stream).unwrap();
    let guard = vector.read_on(stream).unwrap();
    vector.fill(0, stream).unwrap();
    let _ = guard.as_device_ptr();
}
