//! Whoever releases the memory of a graph promises that the graph is gone: `unsafe`.

use alluvion::driver::CaptureMode;
use alluvion::source::Cuda;
use alluvion::{PoolConfig, ResourceExt, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
    sim.begin_capture(0, stream.raw(), CaptureMode::Global).unwrap();
    let mut memory = pool.capture(&stream).unwrap();
    memory.release().unwrap();
}
