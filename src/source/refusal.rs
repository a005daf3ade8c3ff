//! The errors of a source: without memory, and of a block that the driver does not know.

use crate::device::Device;
use crate::driver::{Code, DriverError, DriverResult, MemoryInfo};
use crate::error::{Error, Misuse, MisuseKind, OutOfMemory};
use crate::resource::{DevicePtr, Layout};

/// The error of `source`, a source of this device, after a driver call failed. Only an out-of-memory error calls `memory`, for its
/// report.
#[cold]
pub(super) fn failed(
    source: &'static str,
    device: &Device,
    layout: Layout,
    error: DriverError,
    memory: impl FnOnce() -> Result<MemoryInfo, Error>,
) -> Error {
    let error = Error::of_driver(error, layout.bytes());
    if error.is_out_of_memory() { report(source, device, layout, Some(error), memory().ok()) } else { error }
}

/// The block at the address that the driver answered, or the error of `source`. Address 0 is no block.
pub(super) fn block_of(
    source: &'static str,
    device: &Device,
    layout: Layout,
    answer: DriverResult<u64>,
    memory: impl FnOnce() -> Result<MemoryInfo, Error>,
) -> Result<DevicePtr, Error> {
    match answer {
        Ok(address) => DevicePtr::new(address).ok_or_else(|| refused(source, device, layout, memory)),
        Err(error) => Err(failed(source, device, layout, error, memory)),
    }
}

/// Tells whoever frees that the driver knows no such block. Other failures mean that the context is lost, and the block with it.
pub(super) fn of_free(freed: DriverResult<()>, block: DevicePtr, layout: Layout) {
    if let Err(DriverError { code: Code::INVALID_VALUE, .. }) = freed {
        Error::of_misuse(Misuse { block, bytes: layout.bytes(), what: MisuseKind::NotOut }).tell_of_refusal();
    }
}

/// The out-of-memory error of `source` without an error of the driver.
#[cold]
pub(super) fn refused(
    source: &'static str,
    device: &Device,
    layout: Layout,
    memory: impl FnOnce() -> Result<MemoryInfo, Error>,
) -> Error {
    report(source, device, layout, None, memory().ok())
}

fn report(
    source: &'static str,
    device: &Device,
    layout: Layout,
    said: Option<Error>,
    memory: Option<MemoryInfo>,
) -> Error {
    let live_bytes = memory.map_or(0, |memory| memory.total_bytes.saturating_sub(memory.free_bytes));
    let mut report = OutOfMemory::new(source, layout.bytes());
    report.device = Some(device.ordinal());
    report.align = layout.align();
    (report.live_bytes, report.reserved_bytes) = (live_bytes, live_bytes);
    report.free_bytes = memory.map_or(0, |memory| memory.free_bytes);
    report.upstream_memory = memory;
    report.upstream_error = said;
    report.explained().into()
}
