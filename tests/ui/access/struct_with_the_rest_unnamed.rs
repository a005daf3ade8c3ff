//! `device_copy!`: "all fields are named".

use alluvion::device_copy;

#[derive(Clone, Copy)]
#[repr(C)]
struct Particle {
    kind: u32,
    dead: [bool; 4],
}

device_copy!(Particle { kind, .. });

fn main() {}
