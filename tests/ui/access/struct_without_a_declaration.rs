//! "A struct of your own" is declared by `device_copy!`.

use alluvion::{DeviceVec, Sim};

#[derive(Clone, Copy)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    kind: u32,
}

fn main() {
    let sim = Sim::new();
    let stream = sim.device(0).stream().unwrap();
    let _ = DeviceVec::from_slice(&[Particle { position: [0.0; 3], kind: 1 }], &stream);
}
