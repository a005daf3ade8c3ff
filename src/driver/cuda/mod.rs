//! The CUDA driver, through cudarc.
