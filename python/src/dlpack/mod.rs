//! How do other libraries take and lend tensors by DLPack?
//!
//! A tensor that is lent is a capsule with a struct of C. Who takes it renames the capsule, and calls the struct's deleter when done;
//! a capsule that nobody took calls it itself. A tensor of ours holds a handle of its memory and nothing of Python's, so its
//! deleter may be called by any thread at any time.

mod export;
mod import;
mod layout;

pub(crate) use export::{Wish, device_of, export};
pub(crate) use import::{from_dlpack, import};
