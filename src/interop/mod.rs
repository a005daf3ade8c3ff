//! How do other libraries use this memory?

#[cfg(feature = "cuda")]
pub mod cudarc;
