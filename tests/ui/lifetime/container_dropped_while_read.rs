//! A container cannot be dropped while kernels are launched with its address.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let vector = DeviceVec::from_slice(&[1, 2, 3], stream).unwrap();
    let guard = vector.read_on(stream).unwrap();
    drop(vector);
    let _ = guard.as_device_ptr();
}
