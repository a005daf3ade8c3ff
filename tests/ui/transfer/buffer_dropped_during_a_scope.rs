//! `TransferScope`: "what is borrowed comes from outside of the scope and stays borrowed until the scope has ended".

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let mut vector = DeviceVec::<u8>::uninit(3, stream).unwrap();
    let host = vec![1, 2, 3];
    let _ = stream.scope(|scope| {
        scope.upload(&mut vector, &host)?;
        drop(host);
        Ok(())
    });
}
