//! A resource cannot be moved under its containers, nor a stack be re-plugged while blocks are live.

use alluvion::source::CudaAsync;
use alluvion::{AnyResource, DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let resource = CudaAsync::new(&sim.device(0)).unwrap();
    let vector = DeviceVec::from_slice_in(&[1, 2, 3], stream.as_ref(), &resource).unwrap();
    let _moved = AnyResource::new(resource);
    drop(vector);
}
