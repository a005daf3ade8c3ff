//! What the room asks of a device: the calls by which it lends memory, its number, and shared events.

#![expect(unsafe_code, reason = "records, queries and destroys events that processes share")]

use std::fs::File;
use std::io::Read;
use std::sync::OnceLock;

use crate::device::{Attachment, Device, Machine};
use crate::driver::{EventHandle, RawEvent, RelaxedCapture, Sharing};
use crate::error::Error;
use crate::resource::no_export;
use crate::stream::StreamRef;
use crate::sync::nap;

/// The calls of a machine by which it lends memory.
pub(super) fn sharing_of(device: &Device) -> Result<&dyn Sharing, Error> {
    device.machine().require_same_process()?;
    device.driver().sharing().ok_or_else(|| no_export("the driver lends none"))
}

/// Whether the driver says that nothing runs any more on a device, and nothing ever will.
pub(super) fn has_stopped(device: &Device) -> bool {
    let (driver, ordinal) = (&**device.driver(), device.ordinal());
    let _relaxed = RelaxedCapture::attempt(driver);
    driver.memory_info(ordinal).is_err_and(|error| driver.proves_stopped(ordinal, error))
}

/// A random number that stands for a machine in its messages.
#[derive(Default)]
struct MachineKey(OnceLock<[u8; 16]>);

impl Attachment for MachineKey {
    fn release(&self) {}
}

/// The number of a machine in its messages.
pub(super) fn key_of(machine: &Machine) -> Result<[u8; 16], Error> {
    let first = machine.device(0)?;
    let known = &first.attached::<MachineKey>().0;
    if let Some(key) = known.get() {
        return Ok(*key);
    }
    let mut key = [0; 16];
    let read = File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut key));
    read.map_err(|error| Error::unwritable("the key of a machine", &error))?;
    Ok(*known.get_or_init(|| key))
}

/// An event that other processes have opened, or may.
#[derive(Debug)]
pub(super) struct SharedEvent {
    device: Device,
    raw: RawEvent,
}

impl SharedEvent {
    /// Records a new event, and makes a handle of it. `None` where the driver gives none, or none any more: the host has waited for the
    /// stream then.
    pub(super) fn record(stream: StreamRef<'_>) -> Result<Option<(Self, EventHandle)>, Error> {
        let (device, ordinal) = (stream.device(), stream.device().ordinal());
        let sharing = sharing_of(device)?;
        let _relaxed = RelaxedCapture::enter(&**device.driver())?;
        // Some devices have no such events, and a process cannot have any number of them: each share that has not ended keeps one.
        let wait_instead = || stream.synchronize().map(|()| None);
        let event = match sharing.event_create_shared(ordinal) {
            Ok(raw) => Self { device: device.clone(), raw },
            Err(_) => return wait_instead(),
        };
        // SAFETY: the event was made for this device above; the stream is live, because it is borrowed, and of it.
        unsafe { stream.driver().event_record(ordinal, event.raw, stream.raw()) }?;
        // SAFETY: the event was made above, for this.
        match unsafe { sharing.event_handle(ordinal, event.raw) } {
            Ok(handle) => Ok(Some((event, handle))),
            Err(_) => wait_instead(),
        }
    }

    /// Waits, on the host, for another process's event. A device that waits for the event of a process which is killed meanwhile
    /// waits for ever, so none does.
    ///
    /// # Safety
    ///
    /// The exporter keeps its event until this returns, or ends.
    pub(super) unsafe fn wait_for(
        device: &Device,
        handle: EventHandle,
        still_there: impl Fn() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (driver, ordinal) = (&**device.driver(), device.ordinal());
        let sharing = sharing_of(device)?;
        let event = {
            let _relaxed = RelaxedCapture::enter(driver)?;
            // SAFETY: the caller's promise.
            Self { device: device.clone(), raw: unsafe { sharing.event_open(ordinal, handle) }? }
        };
        loop {
            let is_over = {
                let _relaxed = RelaxedCapture::enter(driver)?;
                // SAFETY: the event was opened above, for this device.
                unsafe { driver.event_query(ordinal, event.raw) }?
            };
            if is_over {
                return Ok(());
            }
            still_there()?;
            nap();
        }
    }
}

impl Drop for SharedEvent {
    fn drop(&mut self) {
        if self.device.machine().is_inherited() {
            return;
        }
        let driver = &**self.device.driver();
        let _relaxed = RelaxedCapture::attempt(driver);
        // SAFETY: it was made or opened for this device, and this value alone has it. A failure leaks it.
        let _ = unsafe { driver.event_destroy(self.device.ordinal(), self.raw) };
    }
}
