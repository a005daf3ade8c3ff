//! Memory of the device, at once and in the order of a stream.

use alluvion::Device;
use alluvion::source::{Cuda, CudaAsync};

use super::round_trip;
use crate::doctor::finding::Trouble;

pub(super) fn device_memory(device: &Device) -> Result<String, Trouble> {
    round_trip(device, Cuda::new(device))?;
    Ok("64 KiB allocated, written and read back".to_owned())
}

pub(super) fn memory_pools(device: &Device) -> Result<String, Trouble> {
    // The resource goes when the block does, and the library destroys its pool when all frees have run.
    round_trip(device, CudaAsync::new(device)?)?;
    Ok("a pool made, 64 KiB of it written and read back".to_owned())
}
