//! Memory of a graph borrows its pool; `capture_owned` keeps it.

use alluvion::driver::CaptureMode;
use alluvion::source::Cuda;
use alluvion::{PoolConfig, ResourceExt, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pool = Cuda::new(&sim.device(0)).pool(PoolConfig::default()).unwrap();
    sim.begin_capture(0, stream.raw(), CaptureMode::Global).unwrap();
    let memory = pool.capture(&stream).unwrap();
    drop(pool);
    memory.end().unwrap();
}
