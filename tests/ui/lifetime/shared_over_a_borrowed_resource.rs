//! A container that is shared may have to wait for other processes when its owner is gone: "over a resource that borrows nothing".

use alluvion::source::Cuda;
use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let cuda = Cuda::new(&sim.device(0));
    let vector = DeviceVec::from_slice_in(&[1_u8], &stream, &cuda).unwrap();
    let _ = vector.share(&stream);
}
