//! Memory that host and device have in common.

#![expect(unsafe_code, reason = "calls the driver, and reads what it allocates")]

use core::ptr;

use alluvion::Device;
use alluvion::driver::Location;

use super::{BYTES, PATTERN, Patient, WRONG};
use crate::doctor::finding::Trouble;
use crate::doctor::undo::Undo;

pub(super) fn allocate(device: &Device) -> Result<String, Trouble> {
    write_and_read(device, false)?;
    Ok("64 KiB allocated, written by the device and read by the host".to_owned())
}

pub(super) fn send_to_and_fro(device: &Device) -> Result<String, Trouble> {
    write_and_read(device, true)?;
    Ok("64 KiB sent to the device, written there, sent back and read".to_owned())
}

fn write_and_read(device: &Device, send: bool) -> Result<(), Trouble> {
    let Patient { driver, ordinal } = Patient::of(device);
    let stream = device.stream()?;
    let raw = stream.as_ref().raw();
    let address = driver.allocate_managed(ordinal, BYTES)?;
    let allocated = Undo::new(|| {
        // SAFETY: it was allocated above; the free waits for the device, and nobody uses it afterwards.
        unsafe { driver.free_device(ordinal, address) }
    });
    let prefetch = |to| {
        if !send {
            return Ok(());
        }
        // SAFETY: the block is live until the stream has been waited for.
        unsafe { driver.prefetch_async(ordinal, address, BYTES, to, raw) }
    };
    prefetch(Location::Device(ordinal))?;
    // SAFETY: the block is live until then, and nobody else uses it.
    unsafe { driver.fill_async(ordinal, address, Patient::pattern(), BYTES, raw) }?;
    prefetch(Location::Host)?;
    // Of the whole device: on some, the host may touch the block only when nothing runs there.
    device.synchronize()?;
    let start = ptr::with_exposed_provenance::<u8>(address as usize);
    let is_right = (0..BYTES).step_by(509).all(|offset| {
        // SAFETY: the offset is within the block.
        let at = unsafe { start.add(offset) };
        // SAFETY: the host may read managed memory at its address, and all work is over.
        let byte = unsafe { at.read_volatile() };
        byte == PATTERN
    });
    allocated.now()?;
    if is_right { Ok(()) } else { Err(WRONG) }
}
