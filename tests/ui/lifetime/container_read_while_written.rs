//! `WriteGuard`: "alone: nothing else borrows the elements while it is there".

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let mut vector = DeviceVec::from_slice(&[1, 2, 3], stream).unwrap();
    let guard = vector.write_on(stream).unwrap();
    let _ = vector.to_vec(stream).unwrap();
    let _ = guard.as_device_ptr();
}
