//! `WriteGuard`: "alone: nothing else borrows the elements while it is there".

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let mut vector = DeviceVec::from_slice(&[1, 2, 3], stream).unwrap();
    let first = vector.write_on(stream).unwrap();
    let second = vector.write_on(stream).unwrap();
    assert_eq!(first.as_device_ptr(), second.as_device_ptr());
}
