//! A transfer that is forgotten must not leave the device with a borrow: it takes only what it can own.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let mut vector = DeviceVec::<u8>::uninit(3, stream).unwrap();
    let mut host = vec![1, 2, 3];
    let _ = vector.upload(&mut host[..], stream);
}
