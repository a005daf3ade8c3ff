//! `TransferScope`: "what is borrowed comes from outside of the scope".

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let mut vector = DeviceVec::<u8>::uninit(3, stream).unwrap();
    let _ = stream.scope(|scope| {
        let host = vec![1, 2, 3];
        scope.upload(&mut vector, &host)
    });
}
