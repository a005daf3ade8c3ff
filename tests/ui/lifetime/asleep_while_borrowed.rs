//! "The container was given by value, without a borrow of it": neither it nor a slice of it is left.

use alluvion::source::Mapped;
use alluvion::{DeviceVec, PoolConfig, ResourceExt, Sim, SleepConfig};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let pool = Mapped::new(&sim.device(0)).unwrap().pool(PoolConfig::default()).unwrap();
    let vector = DeviceVec::from_slice_in(&[1_u8], &stream, &pool).unwrap();
    let slice = vector.as_slice();
    let _asleep = vector.sleep(SleepConfig::default()).unwrap();
    let _ = slice.to_vec(&stream);
    let _ = vector.to_vec(&stream);
}
