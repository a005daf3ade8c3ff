//! What sources that export memory have in common.

use crate::device::Device;
use crate::driver::{Code, DriverError, HandleType, Sharing};
use crate::error::Error;
use crate::resource::no_export;

/// The calls of the machine by which it lends memory.
pub(super) fn sharing_of(device: &Device) -> Result<&dyn Sharing, Error> {
    device.machine().require_same_process()?;
    device.driver().sharing().ok_or_else(|| no_export("the driver lends none"))
}

/// The type of handle that memory is exported as, of those that it was made for: a descriptor rather than a fabric handle, because
/// it keeps the memory alive.
pub(super) fn handle_type_of(types: HandleType) -> Result<HandleType, Error> {
    let known = [HandleType::POSIX_FILE_DESCRIPTOR, HandleType::FABRIC];
    known.into_iter().find(|known| types.contains(*known)).ok_or_else(|| {
        Error::unsupported(
            "memory for other processes",
            "its source was made without a handle type",
            "make it with `handle_types(HandleType::POSIX_FILE_DESCRIPTOR)`",
        )
    })
}

/// The refusal of a driver, where the device cannot do it at all.
#[cold]
pub(super) fn refused_export(error: DriverError) -> Error {
    match error.code {
        Code::NOT_SUPPORTED => no_export("the device or the machine does not export such memory"),
        Code::NOT_PERMITTED => no_export("the machine is not set up for it"),
        _ => error.into(),
    }
}
