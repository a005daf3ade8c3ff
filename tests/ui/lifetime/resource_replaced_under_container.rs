//! A resource cannot be overwritten by another under its containers.

use alluvion::source::CudaAsync;
use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let mut resource = CudaAsync::new(&sim.device(0)).unwrap();
    let vector = DeviceVec::from_slice_in(&[1, 2, 3], stream.as_ref(), &resource).unwrap();
    resource = CudaAsync::new(&sim.device(0)).unwrap();
    drop(vector);
    drop(resource);
}
