//! Memory for other processes.

#![expect(unsafe_code, reason = "calls the driver")]

use alluvion::Device;
use alluvion::driver::{Code, Driver, ExportedMemory, HandleType, PoolProperties, Sharing};

use super::{BYTES, Patient};
use crate::doctor::finding::Trouble;
use crate::doctor::undo::Undo;

/// A handle of a block, and one of an event: who imports the block waits for the event.
pub(super) fn plain_memory(device: &Device) -> Result<String, Trouble> {
    let Patient { driver, ordinal } = Patient::of(device);
    let sharing = sharing_of(driver)?;
    let address = driver.allocate_device(ordinal, BYTES)?;
    // SAFETY: it was allocated above, and nobody uses it afterwards.
    let allocated = Undo::new(|| unsafe { driver.free_device(ordinal, address) });
    // SAFETY: the block is live.
    unsafe { sharing.memory_handle(ordinal, address) }?;
    let event = sharing.event_create_shared(ordinal)?;
    // SAFETY: it was made above, and nobody uses it afterwards.
    let made = Undo::new(|| unsafe { driver.event_destroy(ordinal, event) });
    // SAFETY: the event is live.
    unsafe { sharing.event_handle(ordinal, event) }?;
    made.now()?;
    allocated.now()?;
    Ok("handles made of 64 KiB and of an event".to_owned())
}

pub(super) fn pool(device: &Device) -> Result<String, Trouble> {
    let Patient { driver, ordinal } = Patient::of(device);
    let sharing = sharing_of(driver)?;
    let way = HandleType::POSIX_FILE_DESCRIPTOR;
    let pool = driver.pool_create(ordinal, PoolProperties { handle_types: way, max_bytes: 0 })?;
    // SAFETY: it was made above, none of its memory is out, and nobody uses it afterwards.
    let made = Undo::new(|| unsafe { driver.pool_destroy(ordinal, pool) });
    // SAFETY: the pool is live.
    drop(unsafe { sharing.pool_export(ordinal, pool, way) }?);
    made.now()?;
    Ok("a pool exported, and its descriptor closed".to_owned())
}

fn sharing_of(driver: &dyn Driver) -> Result<&dyn Sharing, Trouble> {
    driver.sharing().ok_or(Trouble::Wrong("the driver has no calls for it"))
}

pub(super) fn file_descriptor(device: &Device) -> Result<String, Trouble> {
    let way = HandleType::POSIX_FILE_DESCRIPTOR;
    match export(device, way)? {
        #[cfg(unix)]
        ExportedMemory::FileDescriptor(_) => Ok("a page exported, and its descriptor closed".to_owned()),
        _ => Err(Trouble::Wrong("it was exported as something else")),
    }
}

/// The device's word is not enough: without a channel of nvidia-imex, which few machines have, the driver permits none.
pub(super) fn fabric_handle(device: &Device) -> Result<String, Trouble> {
    let exported = export(device, HandleType::FABRIC).map_err(|trouble| match trouble {
        Trouble::Driver(error) if error.code == Code::NOT_PERMITTED => Trouble::Forbidden(error),
        other => other,
    });
    match exported? {
        ExportedMemory::Fabric(_) => Ok("a page exported".to_owned()),
        _ => Err(Trouble::Wrong("it was exported as something else")),
    }
}

fn export(device: &Device, way: HandleType) -> Result<ExportedMemory, Trouble> {
    let Patient { driver, ordinal } = Patient::of(device);
    let bytes = driver.virtual_granularity(ordinal)?;
    let memory = driver.memory_create(ordinal, bytes, way)?;
    // SAFETY: it was made above, and its handle is not used afterwards.
    let created = Undo::new(|| unsafe { driver.memory_release(ordinal, memory) });
    // SAFETY: the memory is live.
    let exported = unsafe { driver.memory_export(ordinal, memory, way) }?;
    created.now()?;
    Ok(exported)
}
