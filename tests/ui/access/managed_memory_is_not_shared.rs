//! "A resource that cannot be shared does not compile where sharing is asked for": managed memory.

use alluvion::source::Managed;
use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pool = Managed::new(&sim.device(0)).unwrap().pool(PoolConfig::default()).unwrap();
    let vector = DeviceVec::from_slice_in(&[1_u8], &stream, pool).unwrap();
    let _ = vector.share(&stream);
}
