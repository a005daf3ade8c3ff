//! `Import`: how something of another process is opened.

#![expect(unsafe_code, reason = "makes containers of memory of other processes")]

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use super::device_side::{SharedEvent, key_of, sharing_of};
use super::imported::{Imported, ImportedMut};
use super::imported_memory::ImportedMemory;
use super::imports::Opened;
use super::message::{Element, Message};
use crate::container::{DeviceCopy, DeviceVec, RawParts};
use crate::device::Device;
use crate::driver::{Call, Code, DriverError, RelaxedCapture};
use crate::error::Error;
use crate::joint;
use crate::resource::{DevicePtr, ExportWay, Layout};
use crate::stream::{Frontier, OnStream, StreamRef};

/// How something of another process is opened, set by chaining.
///
/// ```
/// use alluvion::share::{Import, Message};
/// use alluvion::{DeviceVec, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice_in(&[1.0_f32, 2.0], &stream, Cuda::new(&sim.device(0)))?;
/// let shared = vector.share(&stream)?;
///
/// // Another process, which got these bytes:
/// let message = Message::from_bytes(&shared.message().to_bytes())?;
/// let other = sim.process();
/// let its_stream = other.device(0).stream()?;
/// let bytes = Import::new(&message).open_bytes(&its_stream)?;
/// assert_eq!(bytes.to_vec(&its_stream)?, [0, 0, 128, 63, 0, 0, 0, 64]);
/// assert!(Import::new(&message).open::<u32>(&its_stream).is_err(), "they are `f32`");
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing is opened yet"]
pub struct Import<'m> {
    message: &'m Message,
    descriptor: Option<OwnedFd>,
    directory: PathBuf,
    may_be_peer: bool,
}

impl<'m> Import<'m> {
    /// What this message describes.
    pub fn new(message: &'m Message) -> Self {
        Self { message, descriptor: None, directory: PathBuf::from(joint::DIRECTORY), may_be_peer: false }
    }

    /// The descriptor that came with the message, if it [needs one](Message::needs_descriptor). It is closed in the end.
    pub fn descriptor(mut self, descriptor: OwnedFd) -> Self {
        self.descriptor = Some(descriptor);
        self
    }

    /// The directory that the exporter [named](super::ShareConfig::directory).
    pub fn directory(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = directory.as_ref().to_owned();
        self
    }

    /// Lets memory of another device be opened: the stream's device reaches it over the bus. Without this, it is an error. A block of a
    /// pool of the driver is imported for its own device alone.
    pub fn peer(mut self) -> Self {
        self.may_be_peer = true;
        self
    }

    /// Opens it, to be read. Waits, on the host, for what the exporter had done with it when it shared it.
    ///
    /// The home of the container is `stream`. Opening the same again, or something that lies in the same segment, opens no memory a
    /// second time.
    ///
    /// # Errors
    ///
    /// - `Stale` if the exporter has ended, or has taken it back;
    /// - `OwnProcess` in the process that shares it;
    /// - `InvalidArgument` for elements of another type than were shared, and if the descriptor is missing;
    /// - `Malformed` if the message is not the one that the exporter made;
    /// - `DeviceMismatch` or `NoDevice`, with the device that it is on, if that is not the stream's;
    /// - `Capture` if the stream captures; `Unwritable`; as the driver says;
    /// - `InUse` if too many processes have it, or, for a block of a pool of the driver, if another machine of this process has it open,
    ///   such as that of another library.
    ///
    /// Nothing is left open then.
    pub fn open<'s, T: DeviceCopy>(self, stream: impl OnStream<'s>) -> Result<Imported<T>, Error> {
        self.require::<T>()?;
        self.vector(stream.stream_ref()).map(Imported::new)
    }

    /// As [`open`](Self::open), to be read and written.
    ///
    /// # Errors
    ///
    /// As there; `InvalidArgument` if it was shared to be read.
    pub fn open_mut<'s, T: DeviceCopy>(self, stream: impl OnStream<'s>) -> Result<ImportedMut<T>, Error> {
        self.require::<T>()?;
        self.require_writable()?;
        self.vector(stream.stream_ref()).map(ImportedMut::new)
    }

    /// As [`open`](Self::open), as bytes, whatever the elements are.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open_bytes<'s>(self, stream: impl OnStream<'s>) -> Result<Imported<u8>, Error> {
        self.vector(stream.stream_ref()).map(Imported::new)
    }

    /// As [`open_mut`](Self::open_mut), as bytes, whatever the elements are.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open_bytes_mut<'s>(self, stream: impl OnStream<'s>) -> Result<ImportedMut<u8>, Error> {
        self.require_writable()?;
        self.vector(stream.stream_ref()).map(ImportedMut::new)
    }

    fn require<T>(&self) -> Result<(), Error> {
        let (wanted, found) = (Element::of::<T>(), &self.message.element);
        if wanted == *found {
            return Ok(());
        }
        Err(Error::invalid_argument_that(format!(
            "elements `{}` of {} bytes were shared, and `{}` of {} are to be opened: name the type that was shared, or open bytes",
            found.name(),
            found.size,
            wanted.name(),
            wanted.size
        )))
    }

    fn require_writable(&self) -> Result<(), Error> {
        if self.message.is_writable {
            return Ok(());
        }
        Err(Error::invalid_argument(
            "memory to be written",
            "its exporter shares it to be read",
            "open it to be read, or have it shared with `ShareConfig::writable`",
        ))
    }

    /// Checks that the memory is on this device, or that this device reaches it and may.
    fn require_device(&self, device: &Device) -> Result<(), Error> {
        let sharing = sharing_of(device)?;
        let _relaxed = RelaxedCapture::enter(&**device.driver())?;
        if sharing.device_uuid(device.ordinal())? == self.message.device {
            return Ok(());
        }
        for other in device.machine().devices() {
            if sharing.device_uuid(other.ordinal())? != self.message.device {
                continue;
            }
            if !self.may_be_peer {
                return Err(Error::device_mismatch_that(format!(
                    "the memory is on {other}, and the stream on {device}: open it on a stream of {other}, or as a `peer`"
                )));
            }
            if matches!(self.message.way, ExportWay::PoolByDescriptor | ExportWay::PoolByFabric) {
                return Err(Error::unsupported(
                    "a block of another process's pool on another device",
                    "the driver imports it for its own device alone",
                    "open it on a stream of its device, or share memory of `Cuda` or `Mapped`",
                ));
            }
            if !sharing.can_reach(device.ordinal(), other.ordinal())? {
                return Err(Error::device_mismatch_that(format!(
                    "the memory is on {other}, which {device} does not reach: open it on a stream of {other}"
                )));
            }
            return Ok(());
        }
        Err(Error::device_mismatch_that(
            "the memory is on a device that this process does not see: it may be hidden by CUDA_VISIBLE_DEVICES".to_owned(),
        ))
    }

    fn vector<T: DeviceCopy>(self, stream: StreamRef<'_>) -> Result<DeviceVec<T, ImportedMemory>, Error> {
        let (message, device) = (self.message, stream.device());
        device.machine().require_same_process()?;
        if key_of(device.machine())? == message.exporter {
            return Err(Error::own_process());
        }
        if stream.is_capturing()? {
            return Err(DriverError::new(Call::StreamCaptureStatus, Code::CAPTURE_UNSUPPORTED).into());
        }
        self.require_device(device)?;
        if message.needs_descriptor() && self.descriptor.is_none() {
            return Err(Error::invalid_argument(
                "a message without its descriptor",
                "the memory is had by a descriptor alone",
                "send `Shared::descriptor` over a Unix socket, and pass it to `Import::descriptor`",
            ));
        }
        let opened = Opened::open(device, message, self.descriptor, &self.directory)?;
        let place = opened.address(message);
        let layout = Layout::new(message.bytes(), message.element.align as usize).and_then(|layout| {
            let block = place.map_or(Some(layout.dangling()), DevicePtr::new);
            let block = block.filter(|block| block.is_aligned_to(layout.block_align()));
            block.map(|block| (block, layout)).ok_or_else(|| {
                Error::unsupported_alignment(layout.align(), 1 << place.unwrap_or(1).trailing_zeros().min(63))
            })
        });
        let behind = layout.and_then(|layout| {
            if let Some(event) = message.event {
                // SAFETY: the exporter keeps its event until its lease ends, which it does not while this process has its part.
                unsafe { SharedEvent::wait_for(device, event, || opened.require_exporter()) }?;
            }
            Ok(layout)
        });
        let (block, layout) = match behind {
            Ok(block) => block,
            Err(error) => {
                let error = opened.explain(error);
                // SAFETY: its address was not handed out.
                unsafe { opened.close() };
                return Err(error);
            }
        };
        let parts = RawParts {
            block,
            layout,
            len_bytes: layout.bytes(),
            home: stream.to_stream(),
            frontier: Frontier::quiescent(),
            resource: ImportedMemory::new(device, opened),
        };
        // SAFETY: the block is open, from its first byte to its last, until the resource is given it back; it has no uses yet but the
        // exporter's, which are over. The length is a whole number of elements: the message was checked, for elements
        // of its size, of which bytes are another form.
        Ok(unsafe { DeviceVec::from_raw_parts(parts) })
    }
}
