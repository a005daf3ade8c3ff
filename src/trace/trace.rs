//! `Trace`: everything that a program did to its memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::hash::Hash;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::{Action, Cut, Event, EventKind, Moment, Refusal, RmmCsv, Row, Unpacked};
use crate::error::Error;
use crate::resource::Layout;

/// Everything that a program did to its memory, in the order in which it was logged.
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
    /// What happened, in order. Each `block` is below [`blocks`](Self::blocks), and so on.
    pub events: Vec<Event>,
    /// Of each event, when it was and what it was for.
    pub moments: Vec<Moment>,
    /// What blocks were for, as paths of names with semicolons between them. The first is empty: nobody said.
    pub tags: Vec<String>,
    /// The handle of each stream.
    pub stream_handles: Vec<u64>,
    /// The number that the operating system had given each thread.
    pub thread_numbers: Vec<u64>,
    /// How many blocks there were.
    pub blocks: u32,
    /// How many streams there were.
    pub streams: u32,
    /// How many threads there were.
    pub threads: u32,
    /// Allocations that failed. They are no events: nothing was allocated.
    pub failures: usize,
    /// Each of them, in order.
    pub refusals: Vec<Refusal>,
    /// Frees of blocks that were not allocated in the log, because it began later. They are no events.
    pub strays: usize,
    /// Where the log ends before its end, if it does: all of this is from before that place.
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
    /// Rows of zero bytes are left out, as no resource sees them. A block whose address is handed out again though the log
    /// has no free of it stays live to the end. What a free says about the size is not believed. Of a log that was cut
    /// everything is read that is whole: [`cut`](Self::cut) says where it ends.
    ///
    /// # Errors
    ///
    /// `Malformed` with the line and the reason, as [`RmmCsv`], and for a size that no allocation can have. `Unreadable` as
    /// `log` says.
    pub fn from_rmm_csv(log: impl BufRead) -> Result<Self, Error> {
        let mut trace = Self { tags: vec![String::new()], ..Self::default() };
        let (mut streams, mut threads, mut live) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut tags = HashMap::from([(Box::default(), 0)]);
        let mut clock = Clock::default();
        let mut rows = RmmCsv::new(log)?;
        for row in rows.by_ref() {
            let row = row?;
            let stream = number(&mut streams, &row.stream, &mut trace.stream_handles, &row)?;
            let thread = number(&mut threads, &row.thread, &mut trace.thread_numbers, &row)?;
            let moment = Moment {
                microseconds: clock.at(row.microseconds),
                address: row.address,
                reserved_bytes: row.reserved_bytes,
                tag: number(&mut tags, &row.tag, &mut trace.tags, &row)?,
            };
            match row.action {
                Action::AllocateFailure => {
                    let after_events = trace.events.len();
                    trace.failures += 1;
                    trace.refusals.push(Refusal { after_events, stream, thread, bytes: row.bytes, moment });
                }
                Action::Allocate if row.bytes == 0 => {}
                Action::Allocate => {
                    usize::try_from(row.bytes)
                        .ok()
                        .and_then(|bytes| Layout::from_bytes(bytes).ok())
                        .ok_or_else(|| {
                            Error::malformed(row.line, "Size is more than an allocation can have")
                        })?;
                    let block = trace.blocks;
                    trace.blocks = block.checked_add(1).ok_or_else(|| too_many(&row))?;
                    live.insert(row.address, (block, row.bytes));
                    trace.push(
                        Event { kind: EventKind::Allocate, block, stream, thread, bytes: row.bytes },
                        moment,
                    );
                }
                Action::Free => match live.entry(row.address) {
                    Entry::Vacant(_) if row.bytes == 0 => {}
                    Entry::Vacant(_) => trace.strays += 1,
                    Entry::Occupied(entry) => {
                        let (block, bytes) = entry.remove();
                        trace.push(Event { kind: EventKind::Free, block, stream, thread, bytes }, moment);
                    }
                },
            }
        }
        trace.cut = rows.cut().cloned();
        trace.streams = streams.len() as u32;
        trace.threads = threads.len() as u32;
        Ok(trace)
    }

    fn push(&mut self, event: Event, moment: Moment) {
        self.events.push(event);
        self.moments.push(moment);
    }

    /// The most bytes that were live at once, each block rounded up to whole units of 256.
    #[must_use]
    pub fn peak_live_bytes(&self) -> u64 {
        let (mut live, mut peak) = (0_u64, 0);
        for event in &self.events {
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

/// The number of a name: those that come first have the lowest. A new one goes to the end of `names`.
fn number<N, O>(known: &mut HashMap<N, u32>, name: &N, names: &mut Vec<O>, row: &Row) -> Result<u32, Error>
where
    N: Clone + Eq + Hash + Into<O>,
{
    if let Some(&number) = known.get(name) {
        return Ok(number);
    }
    let next = u32::try_from(known.len()).map_err(|_| too_many(row))?;
    known.insert(name.clone(), next);
    names.push(name.clone().into());
    Ok(next)
}

fn too_many(row: &Row) -> Error {
    Error::malformed(row.line, "it is one more than 4294967295 of a kind")
}

/// Makes times of day into times that go on.
#[derive(Default)]
struct Clock {
    before: u64,
    midnight: u64,
}

impl Clock {
    const DAY: u64 = 24 * 60 * 60 * 1_000_000;

    /// Two threads log a row so close to each other that one comes late. A minute is long for that, and a log that does nothing
    /// for a whole day less a minute is rare.
    const LITTLE: u64 = 60 * 1_000_000;

    /// Rows of two threads may stand in another order than their times, by a little: that is no new day, and what comes late
    /// after midnight is of the day before.
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
