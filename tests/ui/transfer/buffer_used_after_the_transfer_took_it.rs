//! A transfer owns the buffer until it is done.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let mut vector = DeviceVec::<u8>::uninit(3, stream).unwrap();
    let host = vec![1, 2, 3];
    let upload = vector.upload(host, stream).unwrap();
    let _ = host[0];
    drop(upload);
}
