//! `device_copy!` checks that the fields "lie in memory in the order in which they are named".

use alluvion::device_copy;

#[derive(Clone, Copy)]
#[repr(C)]
struct Particle {
    position: [f32; 3],
    kind: u32,
}

device_copy!(Particle { kind, position });

fn main() {}
