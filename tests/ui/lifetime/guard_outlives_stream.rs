//! A guard names the stream that it was opened for, and ends before the stream does.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let home = sim.device(0).stream().unwrap();
    let vector = DeviceVec::from_slice(&[1, 2, 3], home.as_ref()).unwrap();
    let guard = {
        let stream = sim.device(0).stream().unwrap();
        vector.read_on(stream.as_ref()).unwrap()
    };
    let _ = guard.as_device_ptr();
}
