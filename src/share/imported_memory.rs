//! `ImportedMemory`: where the memory of an imported container goes.

#![expect(unsafe_code, reason = "closes memory of other processes, and keeps the contract of resources")]

use core::fmt;

use super::imports::Opened;
use crate::device::Device;
use crate::driver::DriverError;
use crate::error::Error;
use crate::resource::{DeviceAccessible, DevicePtr, Layout, Resource, ResourceId};
use crate::stream::StreamRef;
use crate::sync::Mutex;

/// The resource of a container that was [imported](super::Imported): it allocates nothing, and closes the memory when the container
/// is dropped.
///
/// It waits, on the host, for all that the container was used for, as a free of device memory does; then it closes the memory, and
/// says so to the exporter. If the end of the work is unknown, as while a stream captures, the memory stays open for as long as the
/// process lives.
pub struct ImportedMemory {
    device: Device,
    id: ResourceId,
    /// Taken by the one free.
    opened: Mutex<Option<Opened>>,
}

impl ImportedMemory {
    pub(super) fn new(device: &Device, opened: Opened) -> Self {
        Self { device: device.clone(), id: ResourceId::unique(), opened: Mutex::new(Some(opened)) }
    }

    fn take(&self) -> Option<Opened> {
        self.opened.lock_unless_forked()?.take()
    }
}

#[cold]
fn no_growth() -> Error {
    Error::unsupported(
        "an allocation from memory of another process",
        "there is as much as its exporter shares",
        "copy it to a container of this process",
    )
}

// SAFETY: it hands out no block: the one that it has is another process's memory, which it was made with, and which stays open until
// it is given back. Only the value itself has its id. Nothing unwinds.
unsafe impl Resource for ImportedMemory {
    fn allocate(&self, layout: Layout, stream: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.device.require(stream.device())?;
        self.allocate_sync(layout)
    }

    unsafe fn deallocate(&self, _: DevicePtr, layout: Layout, stream: StreamRef<'_>) {
        if layout.is_empty() {
            return;
        }
        let Some(opened) = self.take() else { return };
        // The driver may be in the middle of a capture, whose graph has the address for as long as it likes.
        if !matches!(stream.is_capturing(), Ok(true)) {
            match stream.synchronize() {
                // SAFETY: every use was ordered before that point of the stream, which it has passed: the caller's promise.
                Ok(()) => return unsafe { opened.close() },
                Err(error) if self.has_stopped(&error) => return opened.abandon(),
                Err(_) => {}
            }
        }
        opened.leak();
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        if layout.is_empty() { Ok(layout.dangling()) } else { Err(no_growth()) }
    }

    unsafe fn deallocate_sync(&self, _: DevicePtr, layout: Layout) {
        if !layout.is_empty()
            && let Some(opened) = self.take()
        {
            // SAFETY: every use is over: the caller's promise.
            unsafe { opened.close() };
        }
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn id(&self) -> ResourceId {
        self.id
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImportedMemory({})", self.device)
    }

    fn max_align(&self) -> usize {
        Layout::MIN_ALIGN
    }
}

impl ImportedMemory {
    /// Whether the driver says by this error that nothing of the device runs any more.
    fn has_stopped(&self, error: &Error) -> bool {
        let (Some(call), Some(code)) = (error.call(), error.code()) else { return false };
        self.device.driver().proves_stopped(self.device.ordinal(), DriverError::new(call, code))
    }
}

// SAFETY: the memory is open to the device.
unsafe impl DeviceAccessible for ImportedMemory {}

impl Drop for ImportedMemory {
    /// What was not given back is an empty container's, or of an unknown end.
    fn drop(&mut self) {
        match self.opened.get_mut().take() {
            // SAFETY: there is no memory that work could use.
            Some(opened) if opened.is_empty() => unsafe { opened.close() },
            Some(opened) => opened.leak(),
            None => {}
        }
    }
}

impl fmt::Debug for ImportedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_layer(f)
    }
}
