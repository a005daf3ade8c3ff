//! What may a caller pass?

mod bytes;

pub(crate) use bytes::{Bytes, parse_bytes};
