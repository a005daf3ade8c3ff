//! `device_copy!` checks "that there is no padding between or behind" the fields.

use alluvion::device_copy;

#[derive(Clone, Copy)]
#[repr(C)]
struct Between {
    small: u8,
    large: u32,
}

device_copy!(Between { small, large });

#[derive(Clone, Copy)]
#[repr(C)]
struct Behind {
    large: u32,
    small: u8,
}

device_copy!(Behind { large, small });

fn main() {}
