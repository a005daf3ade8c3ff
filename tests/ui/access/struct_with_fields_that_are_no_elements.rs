//! `device_copy!` checks "that each is plain data": a field of invalid bits is none, nor a reference, nor a field that no value has.

use alluvion::device_copy;
use std::convert::Infallible;

#[derive(Clone, Copy)]
#[repr(C)]
struct Flag {
    set: bool,
}

device_copy!(Flag { set });

#[derive(Clone, Copy)]
#[repr(C)]
struct Name {
    text: &'static [u8; 8],
}

device_copy!(Name { text });

#[derive(Clone, Copy)]
#[repr(C)]
struct Nobody {
    word: u32,
    never: Infallible,
}

device_copy!(Nobody { word, never });

/// How a stable compiler is made to name the type `!`.
trait Returns {
    type Value;
}

impl<R> Returns for fn() -> R {
    type Value = R;
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Never {
    word: u32,
    never: <fn() -> ! as Returns>::Value,
}

device_copy!(Never { word, never });

fn main() {}
