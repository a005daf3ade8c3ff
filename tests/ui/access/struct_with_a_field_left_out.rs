//! `device_copy!` checks "that none is left out": a `bool` of no name would be overlooked.

use alluvion::device_copy;

#[derive(Clone, Copy)]
#[repr(C)]
struct Particle {
    kind: u32,
    dead: [bool; 4],
}

device_copy!(Particle { kind });

#[derive(Clone, Copy)]
#[repr(C)]
struct Twice {
    kind: u32,
    dead: bool,
}

device_copy!(Twice { kind, kind });

#[derive(Clone, Copy)]
#[repr(C)]
struct Tuple(u32, bool);

device_copy!(Tuple { 0 });

fn main() {}
