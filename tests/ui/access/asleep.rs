//! "It has its address and no memory, so that nothing can be done with it but to wake it."

use alluvion::source::Mapped;
use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, SleepConfig};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pool = Mapped::new(&sim.device(0)).unwrap().pool(PoolConfig::default()).unwrap();
    let vector = DeviceVec::from_slice_in(&[1_u8], &stream, &pool).unwrap();
    let asleep = vector.sleep(SleepConfig::default()).unwrap();
    let _ = asleep.to_vec(&stream);
}
