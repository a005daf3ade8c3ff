//! "The address borrows the guard": a launch with an address whose guard is gone is ordered with nothing.

use alluvion::{DeviceVec, Sim};

fn launch(_address: alluvion::GuardedPtr<'_>) {}

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let mut vector = DeviceVec::<f32>::zeroed(8, &stream).unwrap();
    let address = vector.write_on(&stream).unwrap().as_device_ptr();
    launch(address);

    let read = vector.read_on(&stream).unwrap();
    let address = read.as_device_ptr().offset(4);
    drop(read);
    launch(address);
}
