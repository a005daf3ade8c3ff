//! Shared code of the sources of managed memory: host access, migration and advice.

#![expect(unsafe_code, reason = "passes ranges of live blocks to the driver")]

use super::block_range::BlockRange;
use crate::device::Device;
use crate::driver::{Advice, DeviceAttribute, Location, RelaxedCapture};
use crate::error::Error;
use crate::stream::StreamRef;

/// Succeeds if the host may access managed memory whenever no work accesses *the same* memory.
///
/// Where a device lacks concurrent managed access, the host must access no managed memory at all while *any* kernel runs on that
/// device, even if the kernel uses other memory. No resource can know that, so none hands such memory out. One such device in the
/// machine is enough: managed memory belongs to all of them.
///
/// It reads two attributes of the other devices, which makes no context on them.
pub(super) fn require_host_access(device: &Device, what: &'static str) -> Result<(), Error> {
    const INSTEAD: &str = "use pinned memory, or `Cuda` with copies";
    if !device.capabilities()?.managed_memory {
        return Err(Error::unsupported(what, "the device has no managed memory", INSTEAD));
    }
    let driver = device.driver();
    for other in device.machine().devices() {
        let has = |attribute| driver.attribute(other.ordinal(), attribute).map(|value| value != 0);
        if has(DeviceAttribute::ManagedMemory)? && !has(DeviceAttribute::ConcurrentManagedAccess)? {
            let why = if other == *device {
                "the device lacks concurrent managed access: the host must not touch managed memory while it is busy"
            } else {
                "another device lacks concurrent managed access: the host must not touch managed memory while that is busy"
            };
            return Err(Error::unsupported(what, why, INSTEAD));
        }
    }
    Ok(())
}

/// Queues the migration of a range.
///
/// # Safety
///
/// The range is of a live block of managed memory, which stays live until the migration has run.
pub(super) unsafe fn migrate(
    device: &Device,
    range: BlockRange,
    to: Location,
    stream: StreamRef<'_>,
) -> Result<(), Error> {
    device.require(stream.device())?;
    require_location(device, to)?;
    if range.is_empty() {
        return Ok(());
    }
    let driver = &**device.driver();
    let (address, bytes) = (range.start().address(), range.bytes());
    // SAFETY:
    // - the range stays live until the migration has run: the caller's promise.
    // - the stream is live, because it is borrowed, and of this device: compared above.
    unsafe { driver.prefetch_async(device.ordinal(), address, bytes, to, stream.raw()) }
        .map_err(|error| Error::of_driver(error, bytes))
}

/// Advises on a range.
///
/// # Safety
///
/// The range is of a live block of managed memory.
pub(super) unsafe fn advise(device: &Device, range: BlockRange, advice: Advice) -> Result<(), Error> {
    if let Advice::PreferredLocation(Some(location)) | Advice::AccessedBy(location, _) = advice {
        require_location(device, location)?;
    }
    if range.is_empty() {
        return Ok(());
    }
    let driver = &**device.driver();
    let _relaxed = RelaxedCapture::enter(driver)?;
    let (address, bytes) = (range.start().address(), range.bytes());
    // SAFETY: the range is live: the caller's promise.
    unsafe { driver.advise(device.ordinal(), address, bytes, advice) }
        .map_err(|error| Error::of_driver(error, bytes))
}

fn require_location(device: &Device, location: Location) -> Result<(), Error> {
    match location {
        Location::Device(ordinal) => device.machine().device(ordinal).map(drop),
        Location::Host | Location::HostNuma(_) => Ok(()),
    }
}
