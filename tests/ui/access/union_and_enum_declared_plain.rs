//! `device_copy!` is for structs: of a union nobody knows which field is there, of an enum which bits are a value.

use alluvion::device_copy;

#[derive(Clone, Copy)]
#[repr(C)]
union Either {
    number: u8,
    flag: bool,
}

device_copy!(Either { number });

#[derive(Clone, Copy)]
#[repr(u8)]
enum Kind {
    Star { mass: u8 },
}

device_copy!(Kind { mass });

fn main() {}
