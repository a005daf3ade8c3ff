//! `Writer`: the thread that formats rows and writes them.

use core::cell::Cell;
use core::mem;
use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::record::Record;
use super::shared::Shared;
use super::sink::Sink;
use super::{FailureHook, os};
use crate::adaptor::Tag;
use crate::error::Error;
use crate::sync::{Arc, Ordering, yield_now};
use crate::trace::{Fields, LONGEST_TAG, RowFormat};

/// So many bytes are formatted before they are written: a write of the system takes as long as formatting twenty rows.
const GATHERED: usize = 64 << 10;

/// How long it waits for more when there was nothing: by then rows have come together, and while it looks by itself nobody has
/// to wake it, which is 2 µs and more on a thread that allocates.
const NAP: Duration = Duration::from_millis(1);

/// After so many naps with nothing to do it sleeps until it is woken: a program that allocates no more has no thread that runs.
const NAPS: u32 = 100;

const DAY: i64 = 24 * 60 * 60 * 1_000_000;

thread_local! {
    static IS_WRITER: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` on a thread that writes a log, this or another. What runs on it must not wait for one.
pub(super) fn is_writer() -> bool {
    IS_WRITER.get()
}

/// The thread that formats rows and writes them, alone: it is the only one that calls the sink.
pub(super) struct Writer {
    shared: Arc<Shared>,
    sink: Box<dyn Sink>,
    format: RowFormat,
    failure_hook: FailureHook,
    microseconds_ahead_of_utc: i64,
    gathered: Vec<u8>,
    /// The rows below that ticket are formatted.
    formatted: u64,
    tags: HashMap<Tag, Box<str>>,
}

impl Writer {
    pub(super) fn new(
        shared: &Arc<Shared>,
        sink: Box<dyn Sink>,
        format: RowFormat,
        failure_hook: FailureHook,
    ) -> Self {
        let mut gathered = Vec::with_capacity(GATHERED + 4096);
        format.heading(&mut gathered);
        let seconds = super::record::nanoseconds_now() / 1_000_000_000;
        Self {
            shared: Arc::clone(shared),
            sink,
            format,
            failure_hook,
            microseconds_ahead_of_utc: os::seconds_ahead_of_utc(seconds) * 1_000_000,
            gathered,
            formatted: 0,
            tags: HashMap::new(),
        }
    }

    pub(super) fn run(mut self) {
        IS_WRITER.set(true);
        self.shared.introduce_writer(thread::current());
        // The sink may be anybody's, and may panic.
        let written = catch_unwind(AssertUnwindSafe(|| self.write()));
        let failure = match written {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(thrown) => {
                // Dropping it runs code of the user's, which may panic in its turn.
                mem::forget(thrown);
                Some(io::Error::other("the writer panicked"))
            }
        };
        let Self { shared, sink, failure_hook, .. } = self;
        if let Some(error) = failure {
            let error = Error::unwritable(&shared.name, &error);
            shared.fail(error.clone());
            forget_panic(|| failure_hook(&error));
        }
        forget_panic(|| drop(sink));
    }

    /// Writes until the log is over.
    fn write(&mut self) -> io::Result<()> {
        let mut naps = 0;
        loop {
            // Acquire: pairs with the release in `Shared::stop`. In that order: after it no row is pushed.
            let is_last = self.shared.is_over.load(Ordering::Acquire) != 0;
            let asked = self.shared.flushes_asked();
            let count = self.format_what_is_there()?;
            let flushes = asked.is_some() || is_last;
            if count > 0 || flushes || self.formatted == 0 {
                self.pass_on()?;
            }
            if flushes {
                self.sink.flush()?;
            }
            if let Some(asked) = asked {
                self.shared.flushed(asked);
            }
            if is_last {
                // Who asked behind that has nothing left to wait for.
                self.shared.flushed(u64::MAX);
                return Ok(());
            }
            // After a call of the sink it looks again before it sleeps: what the sink waited for may have taken the call that was to
            // wake this thread, for a flush or for the end.
            naps = if count == 0 && !flushes { naps + 1 } else { 0 };
            if naps < NAPS {
                thread::park_timeout(NAP);
            } else if self.shared.records.is_empty_for_sleep(self.formatted) {
                thread::park();
                self.shared.records.wake_up();
                naps = 0;
            }
        }
    }

    /// Formats the rows that have been pushed by now, and passes on what is a lot. Returns how many there were.
    fn format_what_is_there(&mut self) -> io::Result<u64> {
        let drawn = self.shared.records.drawn();
        let count = drawn - self.formatted;
        while self.formatted < drawn {
            let Some(words) = self.shared.records.pop(self.formatted) else {
                // Its thread has drawn the ticket and has not filled the place yet. It waits for nobody.
                yield_now();
                continue;
            };
            self.format(&Record::unpack(words));
            self.formatted += 1;
            if self.gathered.len() >= GATHERED {
                self.pass_on()?;
            }
        }
        Ok(count)
    }

    fn format(&mut self, record: &Record) {
        let Self { format, gathered, tags, .. } = self;
        let tag = match record.tag {
            Tag::NONE => "",
            _ if !format.tags => "",
            tag => tags.entry(tag).or_insert_with(|| column_of(tag)),
        };
        let microseconds = i64::try_from(record.nanoseconds / 1000).unwrap_or(0);
        let fields = Fields {
            thread: record.thread,
            microseconds: (microseconds + self.microseconds_ahead_of_utc).rem_euclid(DAY).unsigned_abs(),
            action: record.action,
            address: record.address,
            bytes: record.bytes,
            stream: record.stream,
            tag,
            reserved_bytes: record.reserved_bytes,
        };
        format.row(&fields, gathered);
    }

    fn pass_on(&mut self) -> io::Result<()> {
        self.sink.write(&self.gathered)?;
        self.gathered.clear();
        self.shared.note_written(self.formatted);
        Ok(())
    }
}

/// A tag as its column has it: no longer than readers take, and without spaces around it, which they drop.
fn column_of(tag: Tag) -> Box<str> {
    let path = tag.to_string();
    let end = path.floor_char_boundary(LONGEST_TAG);
    path[..end].trim().into()
}

/// Runs something of the user's, and lets a panic end there.
fn forget_panic(body: impl FnOnce()) {
    if let Err(thrown) = catch_unwind(AssertUnwindSafe(body)) {
        mem::forget(thrown);
    }
}
