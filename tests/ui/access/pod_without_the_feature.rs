//! "With the feature `bytemuck`, a type that is `Pod` is declared by that alone."

use alluvion::device_copy;

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Angle(f32);

device_copy!(Angle: Pod);

fn main() {}
