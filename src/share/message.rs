//! `Message`: what an exporter sends.

use core::fmt;
use core::ops::Range;

use super::lease::LeaseName;
use crate::driver::{EventHandle, MemoryHandle, PointerHandle};
use crate::error::Error;
use crate::resource::ExportWay;
use crate::size::Size;

/// What an exporter sends, and an importer [opens](super::Import): some 400 bytes, which say what the memory is and how it is had.
///
/// It is no secret and no right: without the exporter's lease, a file of the same user, nothing is opened. With the feature
/// `serde` it is serialized as its [bytes](Self::to_bytes).
///
/// ```
/// use alluvion::share::Message;
/// use alluvion::{DeviceVec, Sim, source::Cuda};
///
/// let sim = Sim::new();
/// let stream = sim.device(0).stream()?;
/// let vector = DeviceVec::from_slice_in(&[1.0_f32, 2.0], &stream, Cuda::new(&sim.device(0)))?;
/// let shared = vector.share(&stream)?;
/// let sent = shared.message().to_bytes();
/// let message = Message::from_bytes(&sent)?;
/// assert_eq!((message.bytes(), message.element_name()), (8, "f32"));
/// assert!(Message::from_bytes(&sent[1..]).is_err());
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    pub(super) lease: LeaseName,
    pub(super) way: ExportWay,
    pub(super) is_writable: bool,
    /// The device that the memory is of.
    pub(super) device: [u8; 16],
    /// The machine that exports it.
    pub(super) exporter: [u8; 16],
    /// Where the segment is at the exporter: together with the exporter, what tells segments apart.
    pub(super) segment: u64,
    pub(super) segment_bytes: u64,
    /// Where the memory begins in the segment.
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) element: Element,
    /// An event behind all that the importer has to follow, unless the exporter has waited for it.
    pub(super) event: Option<EventHandle>,
    /// Of the memory, or of the block of a pool; zeros where a descriptor stands for all.
    pub(super) handle: [u8; 64],
    /// Of a pool or of pages that a fabric handle stands for; zeros where a descriptor does.
    pub(super) fabric: [u8; 64],
}

/// The type of the elements.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) size: u32,
    pub(super) align: u32,
    name: [u8; NAME_BYTES],
}

/// The longest name of a type that is sent; of longer ones the end is.
const NAME_BYTES: usize = 64;

impl Element {
    pub(super) fn of<T>() -> Self {
        Self::named(core::any::type_name::<T>(), size_of::<T>() as u32, align_of::<T>() as u32)
    }

    fn named(full: &str, size: u32, align: u32) -> Self {
        let mut from = full.len().saturating_sub(NAME_BYTES);
        while !full.is_char_boundary(from) {
            from += 1;
        }
        let mut name = [0; NAME_BYTES];
        let end = &full.as_bytes()[from..];
        name[..end.len()].copy_from_slice(end);
        Self { size, align, name }
    }

    pub(super) fn name(&self) -> &str {
        let len = self.name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        core::str::from_utf8(&self.name[..len]).unwrap_or("?")
    }
}

impl fmt::Debug for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.name(), self.size)
    }
}

const MAGIC: [u8; 4] = *b"ALVS";
/// Of the bytes. A library reads the version that it writes.
const VERSION: u16 = 1;
const WRITABLE: u8 = 1;
const HAS_EVENT: u8 = 2;

// Where each part is. Numbers are little-endian.
const AT_VERSION: Range<usize> = 4..6;
const AT_WAY: usize = 6;
const AT_FLAGS: usize = 7;
const AT_LEASE: Range<usize> = 8..24;
const AT_DEVICE: Range<usize> = 24..40;
const AT_EXPORTER: Range<usize> = 40..56;
const AT_SEGMENT: Range<usize> = 56..64;
const AT_SEGMENT_BYTES: Range<usize> = 64..72;
const AT_OFFSET: Range<usize> = 72..80;
const AT_BYTES: Range<usize> = 80..88;
const AT_SIZE: Range<usize> = 88..92;
const AT_ALIGN: Range<usize> = 92..96;
const AT_NAME: Range<usize> = 96..160;
const AT_EVENT: Range<usize> = 160..224;
const AT_HANDLE: Range<usize> = 224..288;
const AT_FABRIC: Range<usize> = 288..352;
pub(super) const BYTES: usize = 352;

const _: () = assert!(BYTES <= super::lease::MESSAGE_BYTES);

/// The bytes of [`contents`].
pub(super) const CONTENTS_BYTES: usize = 40;

/// What a parcel says that it has, by which a message finds its own: a segment of an exporter, and which of his parcels it is. Other pages
/// may lie at the same addresses later, while somebody still has the first ones.
pub(super) fn contents(
    exporter: [u8; 16],
    segment: u64,
    segment_bytes: u64,
    parcel: u64,
) -> [u8; CONTENTS_BYTES] {
    let mut contents = [0; CONTENTS_BYTES];
    contents[..16].copy_from_slice(&exporter);
    contents[16..24].copy_from_slice(&segment.to_le_bytes());
    contents[24..32].copy_from_slice(&segment_bytes.to_le_bytes());
    contents[32..].copy_from_slice(&parcel.to_le_bytes());
    contents
}

/// The handle of a message whose memory is in a parcel: the number of that.
pub(super) fn handle_of_parcel(number: u64) -> [u8; 64] {
    let mut handle = [0; 64];
    handle[..8].copy_from_slice(&number.to_le_bytes());
    handle
}

impl Message {
    /// The bytes to send.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[AT_VERSION].copy_from_slice(&VERSION.to_le_bytes());
        bytes[AT_WAY] = number_of(self.way);
        bytes[AT_FLAGS] = u8::from(self.is_writable) * WRITABLE + u8::from(self.event.is_some()) * HAS_EVENT;
        bytes[AT_LEASE].copy_from_slice(&self.lease.0);
        bytes[AT_DEVICE].copy_from_slice(&self.device);
        bytes[AT_EXPORTER].copy_from_slice(&self.exporter);
        bytes[AT_SEGMENT].copy_from_slice(&self.segment.to_le_bytes());
        bytes[AT_SEGMENT_BYTES].copy_from_slice(&self.segment_bytes.to_le_bytes());
        bytes[AT_OFFSET].copy_from_slice(&self.offset.to_le_bytes());
        bytes[AT_BYTES].copy_from_slice(&self.bytes.to_le_bytes());
        bytes[AT_SIZE].copy_from_slice(&self.element.size.to_le_bytes());
        bytes[AT_ALIGN].copy_from_slice(&self.element.align.to_le_bytes());
        bytes[AT_NAME].copy_from_slice(&self.element.name);
        if let Some(event) = self.event {
            bytes[AT_EVENT].copy_from_slice(&event.0);
        }
        bytes[AT_HANDLE].copy_from_slice(&self.handle);
        bytes[AT_FABRIC].copy_from_slice(&self.fabric);
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has written.
    ///
    /// # Errors
    ///
    /// `Malformed`, with what is wrong.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let wrong = |why: String| Err(Error::malformed_file(format!("a message of shared memory: {why}")));
        if bytes.get(..4) != Some(&MAGIC) {
            return wrong("it does not begin as one".to_owned());
        }
        let version = bytes.get(AT_VERSION).map(|version| u16::from_le_bytes(part(version)));
        if version.is_some_and(|version| version != VERSION) {
            return wrong(format!(
                "it is of version {}, and this library reads {VERSION}",
                version.unwrap_or(0)
            ));
        }
        if bytes.len() != BYTES {
            return wrong(format!("it has {} bytes in place of {BYTES}", bytes.len()));
        }
        let flags = bytes[AT_FLAGS];
        let Some(way) = WAYS.get(usize::from(bytes[AT_WAY])).copied() else {
            return wrong(format!("it names the way {} of sharing", bytes[AT_WAY]));
        };
        if flags & !(WRITABLE | HAS_EVENT) != 0 {
            return wrong(format!("it has the flags {flags:#x}"));
        }
        let number = |at: Range<usize>| u64::from_le_bytes(part(&bytes[at]));
        let small = |at: Range<usize>| u32::from_le_bytes(part(&bytes[at]));
        let message = Self {
            lease: LeaseName(part(&bytes[AT_LEASE])),
            way,
            is_writable: flags & WRITABLE != 0,
            device: part(&bytes[AT_DEVICE]),
            exporter: part(&bytes[AT_EXPORTER]),
            segment: number(AT_SEGMENT),
            segment_bytes: number(AT_SEGMENT_BYTES),
            offset: number(AT_OFFSET),
            bytes: number(AT_BYTES),
            element: Element { size: small(AT_SIZE), align: small(AT_ALIGN), name: part(&bytes[AT_NAME]) },
            event: (flags & HAS_EVENT != 0).then(|| EventHandle(part(&bytes[AT_EVENT]))),
            handle: part(&bytes[AT_HANDLE]),
            fabric: part(&bytes[AT_FABRIC]),
        };
        let end = message.offset.checked_add(message.bytes);
        if end.is_none_or(|end| end > message.segment_bytes || message.segment_bytes > isize::MAX as u64) {
            return wrong("its memory is not in its segment".to_owned());
        }
        let Element { size, align, .. } = message.element;
        if size == 0 || !align.is_power_of_two() || !message.bytes.is_multiple_of(u64::from(size)) {
            return wrong("its elements have no such size".to_owned());
        }
        // It is shown to people, and no type has such a name.
        if message.element.name().chars().any(char::is_control) {
            return wrong("the name of its elements has characters that steer a terminal".to_owned());
        }
        Ok(message)
    }

    /// The bytes that are shared.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// The bytes that become visible to an importer, or the fewest: the whole allocation, or the whole pages, that the memory lies in.
    /// An importer that computes wrong addresses meets its neighbours. CUDA may serve an allocation that is no multiple of 2 MiB from a
    /// block which others lie in too, and lends that whole.
    #[must_use]
    pub fn visible_bytes(&self) -> usize {
        self.segment_bytes as usize
    }

    /// Whether importers may write.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Which of the ways that CUDA has.
    #[must_use]
    pub fn way(&self) -> ExportWay {
        self.way
    }

    /// Whether a descriptor has to be sent beside the bytes, over a Unix socket.
    #[must_use]
    pub fn needs_descriptor(&self) -> bool {
        matches!(
            self.way,
            ExportWay::PoolByDescriptor | ExportWay::PagesByDescriptor | ExportWay::AdjacentPagesByDescriptor
        )
    }

    /// The bytes of an element.
    #[must_use]
    pub fn element_bytes(&self) -> usize {
        self.element.size as usize
    }

    /// The name of the elements' type at the exporter: of one with more than 64 letters the end.
    #[must_use]
    pub fn element_name(&self) -> &str {
        self.element.name()
    }

    /// The number by which every process knows the device.
    #[must_use]
    pub fn device_uuid(&self) -> [u8; 16] {
        self.device
    }

    /// What the parcel has that is sent beside it, if it is one.
    pub(super) fn contents(&self) -> [u8; CONTENTS_BYTES] {
        contents(self.exporter, self.segment, self.segment_bytes, u64::from_le_bytes(part(&self.handle[..8])))
    }

    pub(super) fn memory(&self) -> MemoryHandle {
        MemoryHandle(self.handle)
    }

    pub(super) fn pointer(&self) -> PointerHandle {
        PointerHandle(self.handle)
    }
}

/// Which number stands for which way.
const WAYS: [ExportWay; 7] = [
    ExportWay::Nothing,
    ExportWay::Allocation,
    ExportWay::PoolByDescriptor,
    ExportWay::PoolByFabric,
    ExportWay::PagesByDescriptor,
    ExportWay::PagesByFabric,
    ExportWay::AdjacentPagesByDescriptor,
];

fn number_of(way: ExportWay) -> u8 {
    WAYS.iter().position(|known| *known == way).map_or(u8::MAX, |number| number as u8)
}

/// A part of that length, which the caller has checked.
fn part<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(bytes);
    part
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let access = if self.is_writable { "to be written" } else { "to be read" };
        write!(f, "Message({} of {:?} {access}, by {:?}", Size(self.bytes()), self.element, self.way)?;
        write!(f, ", lease {:?})", self.lease)
    }
}
