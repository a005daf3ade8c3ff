//! "A raw handle becomes a stream by `Stream::from_raw`".

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let vector = DeviceVec::<u32>::zeroed(8, &stream).unwrap();
    let _ = vector.to_vec(stream.raw());
    let _ = vector.to_vec(0x7f00_usize as *mut u8);
}
