//! Addresses, memory, and the mapping between them.

#![expect(unsafe_code, reason = "calls the driver")]

use core::cell::Cell;

use alluvion::Device;
use alluvion::driver::{HandleType, Location, MapAccess};
use alluvion::source::Mapped;

use super::{BYTES, PATTERN, Patient, WRONG};
use crate::doctor::finding::Trouble;
use crate::doctor::undo::Undo;

/// Makes the source that maps pages, then maps one page by hand, writes to it, reads it back, and takes everything apart again.
pub(super) fn map_a_page(device: &Device) -> Result<String, Trouble> {
    // Making the source asks the device for all that it needs; a block of its own would be lost if a wait failed.
    drop(Mapped::new(device)?);
    let Patient { driver, ordinal } = Patient::of(device);
    let stream = device.stream()?;
    let bytes = driver.virtual_granularity(ordinal)?;
    let used = bytes.min(BYTES);
    let address = driver.virtual_reserve(ordinal, bytes, 0)?;
    // Guards are dropped in the order that is needed: the mapping before the memory and the addresses.
    // Addresses with something behind them stay: if the page cannot be taken away, both are lost.
    let is_mapped = Cell::new(false);
    let reserved = Undo::new(|| {
        if is_mapped.get() {
            return Ok(());
        }
        // SAFETY: it is the whole reservation, nothing is mapped there, and it is not used again.
        unsafe { driver.virtual_free(ordinal, address, bytes) }
    });
    let memory = driver.memory_create(ordinal, bytes, HandleType::NONE)?;
    // SAFETY: it was made above, and its handle is not used afterwards.
    let created = Undo::new(|| unsafe { driver.memory_release(ordinal, memory) });
    // SAFETY: the memory is live and of this size.
    unsafe { driver.memory_map(ordinal, address, bytes, memory) }?;
    is_mapped.set(true);
    let mapped = Undo::new(|| {
        // Queued work must not find the page gone. Where there is no waiting, the context is lost and nothing runs.
        let _ = stream.synchronize();
        // SAFETY: the only work that touches the range was on the stream.
        unsafe { driver.memory_unmap(ordinal, address, bytes) }?;
        is_mapped.set(false);
        Ok(())
    });
    // SAFETY: nothing uses the range yet.
    unsafe {
        driver.memory_set_access(ordinal, address, bytes, Location::Device(ordinal), MapAccess::ReadWrite)
    }?;
    // SAFETY: the range stays mapped until the stream has been waited for, and nobody else knows of it.
    unsafe { driver.fill_async(ordinal, address, Patient::pattern(), used, stream.as_ref().raw()) }?;
    stream.synchronize()?;
    let mut back = vec![0_u8; used];
    let to = back.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: both ranges are live and as long, and nobody else uses them.
    unsafe { driver.copy(ordinal, to, address, used) }?;
    mapped.now()?;
    created.now()?;
    reserved.now()?;
    if back.iter().any(|byte| *byte != PATTERN) {
        return Err(WRONG);
    }
    Ok(format!(
        "a page of {} KiB, the smallest, mapped, written and read back: `Mapped` can be used",
        bytes >> 10
    ))
}
