//! `StreamRef` "does not leave the thread": the error names what to send instead.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let borrowed = stream.as_ref();
    std::thread::scope(|scope| {
        scope.spawn(|| DeviceVec::<u32>::zeroed(8, borrowed).unwrap());
    });
}
