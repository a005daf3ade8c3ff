//! Memory of a graph is not released while a container has a part of it.

use alluvion::driver::CaptureMode;
use alluvion::source::Cuda;
use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
    sim.begin_capture(0, stream.raw(), CaptureMode::Global).unwrap();
    let mut memory = pool.capture(&stream).unwrap();
    let output = DeviceVec::<u32, _>::zeroed_in(8, &stream, &memory).unwrap();
    drop(sim.end_capture(0, stream.raw()));
    unsafe { memory.release() }.unwrap();
    drop(output);
}
