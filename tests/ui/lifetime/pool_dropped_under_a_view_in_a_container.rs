//! A container that owns a view of a pool keeps the pool borrowed.

use alluvion::source::CudaAsync;
use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let owner = CudaAsync::new(&sim.device(0)).unwrap();
    let vector = DeviceVec::from_slice_in(&[1, 2, 3], stream.as_ref(), owner.view()).unwrap();
    drop(owner);
    drop(vector);
}
