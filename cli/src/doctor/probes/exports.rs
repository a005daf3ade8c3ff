//! Memory for other processes.

#![expect(unsafe_code, reason = "calls the driver")]

use alluvion::Device;
use alluvion::driver::{Code, ExportedMemory, HandleType};

use super::Patient;
use crate::doctor::finding::Trouble;
use crate::doctor::undo::Undo;

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
