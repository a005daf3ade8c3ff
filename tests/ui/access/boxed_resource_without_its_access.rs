//! "`dyn Resource` does not say that the device may touch its blocks": `AnyResource` does, and `Box<dyn DeviceAccessible>`.

use alluvion::source::Cuda;
use alluvion::{DeviceVec, Resource, Sim};

fn main() {
    let sim = Sim::new();
    let device = sim.device(0);
    let stream = device.stream().unwrap();
    let resource: Box<dyn Resource + Send + Sync> = Box::new(Cuda::new(&device));
    let _ = DeviceVec::filled_in(8, 0_u8, &stream, resource);
}
