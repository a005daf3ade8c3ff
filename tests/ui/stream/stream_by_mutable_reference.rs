//! "A stream is passed by shared reference": `&stream`.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let mut stream = sim.device(0).stream().unwrap();
    let _ = DeviceVec::<u32>::zeroed(8, &mut stream);
}
