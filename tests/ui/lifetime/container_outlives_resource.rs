//! A container cannot outlive its resource.

use alluvion::source::CudaAsync;
use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let vector = {
        let resource = CudaAsync::new(&sim.device(0)).unwrap();
        DeviceVec::from_slice_in(&[1, 2, 3], stream.as_ref(), &resource).unwrap()
    };
    drop(vector);
}
