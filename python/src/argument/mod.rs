//! What may a caller pass?

mod bytes;
mod held_buffer;

pub(crate) use bytes::{Bytes, parse_bytes};
pub(crate) use held_buffer::HeldBuffer;
