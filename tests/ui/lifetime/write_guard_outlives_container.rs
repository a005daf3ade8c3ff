//! A guard ends before the container whose address it gives.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let guard = {
        let mut vector = DeviceVec::from_slice(&[1, 2, 3], stream).unwrap();
        vector.write_on(stream).unwrap()
    };
    let _ = guard.as_device_ptr();
}
