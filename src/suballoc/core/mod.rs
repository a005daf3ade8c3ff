//! The plain data behind every suballocator.
#![forbid(unsafe_code)]
