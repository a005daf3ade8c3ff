//! `device_copy!`: "a generic struct is not accepted".

use alluvion::device_copy;

#[derive(Clone, Copy)]
#[repr(C)]
struct Pair<T> {
    first: T,
    second: T,
}

device_copy!(Pair { first, second });

device_copy!(Pair<T> { first, second });

fn main() {}
