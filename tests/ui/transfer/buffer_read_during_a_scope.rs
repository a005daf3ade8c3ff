//! `TransferScope`: room that the device writes to is not read until the scope has ended.

use alluvion::{DeviceVec, Sim};

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let stream = stream.as_ref();
    let vector = DeviceVec::from_slice(&[1, 2, 3], stream).unwrap();
    let mut room = [0; 3];
    let _ = stream.scope(|scope| {
        scope.download(&vector, &mut room)?;
        assert_eq!(room, [1, 2, 3]);
        Ok(())
    });
}
