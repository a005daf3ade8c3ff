//! `Trace`: the allocations and frees of a program.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::apart::Apart;
use super::{Cut, Event, EventKind, Moment, Refusal, TraceEvents, Unpacked};
use crate::error::Error;
use crate::resource::Layout;

/// The allocations and frees of a program, in the order in which they were logged.
///
/// # Examples
///
/// ```
/// use alluvion::trace::{EventKind, Trace};
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream
/// 590,09:12:19.353101,allocate,0x302000000,1000,0
/// 590,09:12:19.357194,allocate,0x302000400,10,0x7f653d
/// 590,09:12:19.540106,free,0x302000000,1000,0x7f653d
/// ";
/// let trace = Trace::from_rmm_csv(log.as_bytes())?;
/// assert_eq!((trace.events.len(), trace.blocks, trace.streams, trace.threads), (3, 2, 2, 1));
/// assert_eq!((trace.events[2].kind, trace.events[2].block), (EventKind::Free, 0));
/// assert_eq!((trace.moments[0].address, trace.stream_handles[1]), (0x3_0200_0000, 0x7f_653d));
/// assert_eq!(trace.peak_live_bytes(), 1024 + 256);
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The events, in order. Each `block` is below [`blocks`](Self::blocks), and so on.
    pub events: Vec<Event>,
    /// The time and the tag of each event.
    pub moments: Vec<Moment>,
    /// The tags of blocks, as paths of names with semicolons between them. The first is empty: no tag.
    pub tags: Vec<String>,
    /// The handle of each stream.
    pub stream_handles: Vec<u64>,
    /// The device of each stream, as an index into [`device_ordinals`](Self::device_ordinals). A handle that two devices have, as that
    /// of the default stream, is a stream of each.
    pub stream_devices: Vec<u32>,
    /// The number that each device had in its machine: 0, where the log does not say. In the order in which they appear.
    pub device_ordinals: Vec<u32>,
    /// The number that the operating system had given each thread.
    pub thread_numbers: Vec<u64>,
    /// The number of blocks.
    pub blocks: u32,
    /// The number of streams.
    pub streams: u32,
    /// The number of devices.
    pub devices: u32,
    /// The number of threads.
    pub threads: u32,
    /// The number of failed allocations. They are no events, because nothing was allocated.
    pub failures: usize,
    /// The failed allocations, in order.
    pub refusals: Vec<Refusal>,
    /// Frees of blocks that were not allocated in the log, because it began later. They are no events.
    pub strays: usize,
    /// The place where the log was cut off, if it was: this trace ends there.
    pub cut: Option<Cut>,
}

impl Trace {
    /// Reads the log in that file: as [`from_rmm_csv`](Self::from_rmm_csv), and packed by gzip too, whatever its name.
    ///
    /// # Errors
    ///
    /// As [`from_rmm_csv`](Self::from_rmm_csv); `Unreadable` at line 0 if it cannot be opened; `Unsupported` for gzip without
    /// the feature `gzip`.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let unreadable = |error: &io::Error| {
            Error::unreadable(0, &io::Error::new(error.kind(), format!("{}: {error}", path.display())))
        };
        let mut file = BufReader::new(File::open(path).map_err(|error| unreadable(&error))?);
        file.fill_buf().map_err(|error| unreadable(&error))?;
        Self::from_rmm_csv(Unpacked::new(file)?)
    }

    /// Reads a log in RMM's format, and matches its rows.
    ///
    /// Rows of zero bytes are left out, as no resource sees them. A block whose address is allocated again without a logged free
    /// stays live to the end. The size in a free is ignored. A log that was cut off is read up to its last complete line:
    /// [`cut`](Self::cut) says where it ends.
    ///
    /// # Errors
    ///
    /// `Malformed` with the line and the reason, as [`RmmCsv`](super::RmmCsv), and for a size that no allocation can have. `Unreadable` as
    /// `log` says.
    pub fn from_rmm_csv(log: impl BufRead) -> Result<Self, Error> {
        let mut read = TraceEvents::new(log)?;
        let (mut events, mut moments) = (Vec::new(), Vec::new());
        for event in read.by_ref() {
            let (event, moment) = event?;
            events.push(event);
            moments.push(moment);
        }
        Ok(Self { events, moments, ..read.into_rest() })
    }

    /// The device whose memory the block of an event is, as an index into [`device_ordinals`](Self::device_ordinals).
    #[must_use]
    pub fn device_of(&self, event: &Event) -> u32 {
        self.stream_devices.get(event.stream as usize).copied().unwrap_or_default()
    }

    /// The most bytes that were live at once, each block rounded up to whole units of 256: of all devices together.
    #[must_use]
    pub fn peak_live_bytes(&self) -> u64 {
        Self::peak_of(self.events.iter())
    }

    /// As [`peak_live_bytes`](Self::peak_live_bytes), of one device, as an index into [`device_ordinals`](Self::device_ordinals).
    #[must_use]
    pub fn peak_live_bytes_of(&self, device: u32) -> u64 {
        Self::peak_of(self.events.iter().filter(|event| self.device_of(event) == device))
    }

    /// The part of the trace that one device has, as an index into [`device_ordinals`](Self::device_ordinals): a trace of that device
    /// alone. Blocks, streams, threads and tags are numbered anew. Frees of blocks that were not allocated in the log are of no device:
    /// there are none in it.
    ///
    /// ```
    /// use alluvion::trace::Trace;
    ///
    /// let log = "Thread,Time,Action,Pointer,Size,Stream,Device
    /// 590,09:12:19.353101,allocate,0x302000000,1000,0,0
    /// 590,09:12:19.357194,allocate,0x402000000,10,0,1
    /// 590,09:12:19.540106,free,0x402000000,10,0,1
    /// ";
    /// let trace = Trace::from_rmm_csv(log.as_bytes())?;
    /// let second = trace.of_device(1);
    /// assert_eq!((trace.events.len(), second.events.len(), second.blocks), (3, 2, 1));
    /// assert_eq!(second.device_ordinals, [1]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no such device.
    #[must_use]
    pub fn of_device(&self, device: u32) -> Self {
        assert!(self.device_ordinals.len() > device as usize, "the trace has no device {device}");
        Apart::of(self, device..device + 1).take(self.events.iter().zip(&self.moments)).swap_remove(0)
    }

    /// The parts of the trace that its devices have: of each what [`of_device`](Self::of_device) answers, in the order of
    /// [`device_ordinals`](Self::device_ordinals). The trace is gone through once, however many there are.
    ///
    /// ```
    /// use alluvion::trace::Trace;
    ///
    /// let log = "Thread,Time,Action,Pointer,Size,Stream,Device
    /// 590,09:12:19.353101,allocate,0x302000000,1000,0,0
    /// 590,09:12:19.357194,allocate,0x402000000,10,0,1
    /// 590,09:12:19.540106,free,0x402000000,10,0,1
    /// ";
    /// let trace = Trace::from_rmm_csv(log.as_bytes())?;
    /// assert_eq!(trace.by_device(), [trace.of_device(0), trace.of_device(1)]);
    /// # Ok::<(), alluvion::Error>(())
    /// ```
    #[must_use]
    pub fn by_device(&self) -> Vec<Self> {
        let devices = self.device_ordinals.len() as u32;
        Apart::of(self, 0..devices).take(self.events.iter().zip(&self.moments))
    }

    fn peak_of<'t>(events: impl Iterator<Item = &'t Event>) -> u64 {
        let (mut live, mut peak) = (0_u64, 0);
        for event in events {
            let bytes = event.bytes.next_multiple_of(Layout::MIN_ALIGN as u64);
            match event.kind {
                EventKind::Allocate => live = live.saturating_add(bytes),
                EventKind::Free => live = live.saturating_sub(bytes),
            }
            peak = peak.max(live);
        }
        peak
    }
}
