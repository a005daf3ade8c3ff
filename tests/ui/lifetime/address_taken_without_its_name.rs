//! "What has to have the plain number asks for it by name": `unguarded`.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let mut vector = DeviceVec::<f32>::zeroed(8, &stream).unwrap();
    let _address: u64 = vector.write_on(&stream).unwrap().as_device_ptr().address();
}
