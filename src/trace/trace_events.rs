//! `TraceEvents`: the events of a log, one at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::io::BufRead;

use super::{Action, Event, EventKind, Moment, Refusal, RmmCsv, Row, Trace};
use crate::error::Error;
use crate::resource::Layout;

/// The events of a log in RMM's format, one at a time. [`Trace::from_rmm_csv`] collects them, at 64 bytes an event; this iterator
/// does not keep them.
///
/// Rows are matched as [`Trace::from_rmm_csv`] says. After an error there are no more events.
///
/// # Examples
///
/// ```
/// use alluvion::trace::TraceEvents;
///
/// let log = "Thread,Time,Action,Pointer,Size,Stream
/// 590,09:12:19.353101,allocate,0x302000000,1000,0
/// 590,09:12:19.354200,allocate failure,(nil),99999999999,0
/// 590,09:12:19.540106,free,0x302000000,1000,0x7f653d
/// ";
/// let mut events = TraceEvents::new(log.as_bytes())?;
/// let mut bytes = 0;
/// for event in events.by_ref() {
///     let (event, _) = event?;
///     bytes += event.bytes;
/// }
/// let rest = events.into_rest();
/// assert_eq!((bytes, rest.blocks, rest.streams, rest.failures), (2000, 1, 2, 1));
/// # Ok::<(), alluvion::Error>(())
/// ```
#[derive(Debug)]
pub struct TraceEvents<B> {
    rows: RmmCsv<B>,
    is_over: bool,
    /// All fields but events and moments.
    rest: Trace,
    /// The number of events so far.
    count: usize,
    devices: Numbering<u32>,
    /// By their devices, because two of them may have one handle.
    streams: Numbering<(u32, u64)>,
    threads: Numbering<u64>,
    tags: Numbering<Box<str>>,
    /// The block at each address of each device, and its bytes. Addresses of two devices differ, unless nothing is behind them.
    live: HashMap<(u32, u64), (u32, u64)>,
    clock: LogClock,
}

impl<B: BufRead> TraceEvents<B> {
    /// Reads the heading.
    ///
    /// # Errors
    ///
    /// As [`RmmCsv::new`].
    pub fn new(log: B) -> Result<Self, Error> {
        let mut tags = Numbering::default();
        tags.known.insert(Box::default(), 0);
        Ok(Self {
            rows: RmmCsv::new(log)?,
            is_over: false,
            rest: Trace { tags: vec![String::new()], ..Trace::default() },
            count: 0,
            devices: Numbering::default(),
            streams: Numbering::default(),
            threads: Numbering::default(),
            tags,
            live: HashMap::new(),
            clock: LogClock::default(),
        })
    }

    /// The other fields of the trace, as far as the log has been read: `events` and `moments` are empty.
    #[must_use]
    pub const fn rest(&self) -> &Trace {
        &self.rest
    }

    /// As [`rest`](Self::rest), to keep.
    #[must_use]
    pub fn into_rest(self) -> Trace {
        self.rest
    }

    /// The event of a row, if it is one.
    fn event_of(&mut self, row: &Row) -> Result<Option<(Event, Moment)>, Error> {
        let rest = &mut self.rest;
        let device = row.device.unwrap_or(0);
        let device = self.devices.number(&device, row, |ordinal| rest.device_ordinals.push(ordinal))?;
        let stream = self.streams.number(&(device, row.stream), row, |(device, handle)| {
            rest.stream_handles.push(handle);
            rest.stream_devices.push(device);
        })?;
        let thread = self.threads.number(&row.thread, row, |number| rest.thread_numbers.push(number))?;
        let tag = self.tags.number(&row.tag, row, |tag| rest.tags.push(tag.into()))?;
        (rest.streams, rest.threads) = (self.streams.known.len() as u32, self.threads.known.len() as u32);
        rest.devices = self.devices.known.len() as u32;
        let moment = Moment {
            microseconds: self.clock.at(row.microseconds),
            address: row.address,
            reserved_bytes: row.reserved_bytes,
            tag,
        };
        let event = match row.action {
            Action::AllocateFailure => {
                rest.failures += 1;
                let after_events = self.count;
                rest.refusals.push(Refusal { after_events, stream, thread, bytes: row.bytes, moment });
                return Ok(None);
            }
            Action::Allocate if row.bytes == 0 => return Ok(None),
            Action::Allocate => {
                usize::try_from(row.bytes)
                    .ok()
                    .and_then(|bytes| Layout::from_bytes(bytes).ok())
                    .ok_or_else(|| Error::malformed(row.line, "Size is more than an allocation can have"))?;
                let block = rest.blocks;
                rest.blocks = block.checked_add(1).ok_or_else(|| too_many(row))?;
                self.live.insert((device, row.address), (block, row.bytes));
                Event { kind: EventKind::Allocate, block, stream, thread, bytes: row.bytes }
            }
            Action::Free => match self.live.entry((device, row.address)) {
                Entry::Vacant(_) if row.bytes == 0 => return Ok(None),
                Entry::Vacant(_) => {
                    rest.strays += 1;
                    return Ok(None);
                }
                Entry::Occupied(entry) => {
                    let (block, bytes) = entry.remove();
                    Event { kind: EventKind::Free, block, stream, thread, bytes }
                }
            },
        };
        self.count += 1;
        Ok(Some((event, moment)))
    }

    fn next_event(&mut self) -> Result<Option<(Event, Moment)>, Error> {
        while let Some(row) = self.rows.next() {
            let event = self.event_of(&row?)?;
            if event.is_some() {
                return Ok(event);
            }
        }
        self.rest.cut = self.rows.cut().cloned();
        Ok(None)
    }
}

impl<B: BufRead> Iterator for TraceEvents<B> {
    type Item = Result<(Event, Moment), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let event = self.next_event().transpose();
        self.is_over = !matches!(event, Some(Ok(_)));
        event
    }
}

/// Numbers names in the order in which they first appear.
#[derive(Debug)]
struct Numbering<N> {
    known: HashMap<N, u32>,
    /// The name of the row before, which most rows repeat.
    last: Option<(N, u32)>,
}

impl<N> Default for Numbering<N> {
    fn default() -> Self {
        Self { known: HashMap::new(), last: None }
    }
}

impl<N: Clone + Eq + Hash> Numbering<N> {
    /// `note` is told of a name that is new.
    fn number(&mut self, name: &N, row: &Row, note: impl FnOnce(N)) -> Result<u32, Error> {
        if let Some((last, number)) = &self.last
            && last == name
        {
            return Ok(*number);
        }
        let number = match self.known.get(name) {
            Some(&number) => number,
            None => {
                let next = u32::try_from(self.known.len()).map_err(|_| too_many(row))?;
                self.known.insert(name.clone(), next);
                note(name.clone());
                next
            }
        };
        self.last = Some((name.clone(), number));
        Ok(number)
    }
}

fn too_many(row: &Row) -> Error {
    Error::malformed(row.line, "it is one more than 4294967295 of a kind")
}

/// Converts times of day into times that increase over days.
#[derive(Debug, Default)]
struct LogClock {
    before: u64,
    midnight: u64,
}

impl LogClock {
    const DAY: u64 = 24 * 60 * 60 * 1_000_000;

    /// Rows of two threads may come late by this much. A minute is long for that, and a pause of a whole day less a minute is
    /// rare.
    const LITTLE: u64 = 60 * 1_000_000;

    /// Rows of two threads may be slightly out of order: that is no new day, and a late row after midnight belongs to the day
    /// before.
    fn at(&mut self, microseconds: u64) -> u64 {
        if self.midnight >= Self::DAY && microseconds + Self::LITTLE >= self.before + Self::DAY {
            return self.midnight - Self::DAY + microseconds;
        }
        if microseconds + Self::DAY / 2 < self.before {
            self.midnight += Self::DAY;
        }
        self.before = microseconds;
        self.midnight + microseconds
    }
}
