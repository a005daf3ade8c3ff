//! Work that is recorded in place of being run.

#![expect(unsafe_code, reason = "calls the driver")]

use alluvion::driver::{CaptureMode, DriverResult, PoolKind, RawStream};
use alluvion::{Device, DeviceVec, source::Cuda};

use super::{BYTES, Patient};
use crate::doctor::finding::Trouble;
use crate::doctor::undo::Undo;

/// Records a fill.
pub(super) fn capture(device: &Device) -> Result<String, Trouble> {
    let stream = device.stream()?;
    let block = DeviceVec::<u8, _>::uninit_in(256, stream.as_ref(), Cuda::new(device))?;
    let address = block.as_slice().as_device_ptr().address();
    let Patient { driver, ordinal } = Patient::of(device);
    record(device, |raw| {
        // SAFETY: the block outlives the graph, which is destroyed and never launched.
        unsafe { driver.fill_async(ordinal, address, Patient::pattern(), 256, raw) }
    })?;
    Ok("a fill captured into a graph, and the graph destroyed".to_owned())
}

/// Records an allocation, a fill, and the free.
pub(super) fn capture_an_allocation(device: &Device) -> Result<String, Trouble> {
    let Patient { driver, ordinal } = Patient::of(device);
    let pool = driver.pool_default(ordinal, PoolKind::Device)?;
    record(device, |raw| {
        // SAFETY: the default pool lives as long as the process; the stream is live.
        let address = unsafe { driver.allocate_async(ordinal, BYTES, pool, raw) }?;
        // SAFETY: the block is the graph's until it is freed, below.
        unsafe { driver.fill_async(ordinal, address, Patient::pattern(), BYTES, raw) }?;
        // SAFETY: nothing comes after it.
        unsafe { driver.free_async(ordinal, address, raw) }
    })?;
    Ok("an allocation and its free captured into a graph, and the graph destroyed".to_owned())
}

/// Captures what `work` queues, on a stream of its own, and throws it away.
fn record(device: &Device, work: impl FnOnce(RawStream) -> DriverResult<()>) -> Result<(), Trouble> {
    let Patient { driver, ordinal } = Patient::of(device);
    let stream = device.stream()?;
    let raw = stream.as_ref().raw();
    // Of this thread alone: other threads of the process may be allocating.
    // SAFETY: the stream is live.
    unsafe { driver.stream_begin_capture(ordinal, raw, CaptureMode::ThreadLocal) }?;
    let capturing = Undo::new(|| {
        // SAFETY: the stream is live.
        let graph = unsafe { driver.stream_end_capture(ordinal, raw) }?;
        // SAFETY: the graph came from there, and nobody has seen it.
        unsafe { driver.graph_destroy(ordinal, graph) }
    });
    work(raw)?;
    capturing.now()?;
    Ok(())
}
