//! A transfer that is forgotten keeps its buffer for ever, so the memory under the buffer must not be borrowed.

use allocator_api2::vec::Vec;
use alluvion::source::Pinned;
use alluvion::{DeviceVec, OnHost, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pinned = Pinned::new(&sim.device(0)).unwrap();
    let mut host = Vec::new_in(OnHost::new(&pinned));
    host.extend([1_u8, 2, 3]);
    let mut vector = DeviceVec::<u8>::uninit(3, stream.as_ref()).unwrap();
    std::mem::forget(vector.upload(host, stream.as_ref()));
}
