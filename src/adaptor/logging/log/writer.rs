//! `Writer`: the thread that formats rows and writes them.

use core::time::Duration;
use std::collections::HashMap;
use std::io;

use super::files::FileClaim;
use super::record::Record;
use super::shared::LogShared;
use super::sink::Sink;
use super::writer_mark::mark_as_writer;
use super::{FailureHook, os};
use crate::contain::contain;
use crate::error::Error;
use crate::sync::{Arc, Ordering, yield_now};
use crate::tag::Tag;
use crate::trace::{Fields, LONGEST_TAG, RowFormat};

/// The bytes that are formatted before they are written: one system call takes as long as formatting twenty rows.
const GATHERED: usize = 64 << 10;

/// The pause after a look without rows. Several rows gather meanwhile, and no allocating thread has to wake the writer,
/// which takes 2 µs and more.
const NAP: Duration = Duration::from_millis(1);

/// After this many pauses without rows it sleeps until it is woken, so that an idle program has no running thread. In a
/// model, which is about the sleep, at once.
const NAPS: u32 = if cfg!(loom) { 0 } else { 100 };

const DAY: i64 = 24 * 60 * 60 * 1_000_000;

/// The thread that formats rows and writes them: the only one that calls the sink.
pub(super) struct Writer {
    shared: Arc<LogShared>,
    sink: Box<dyn Sink>,
    /// Of the file that the sink writes, if it is one.
    claim: Option<FileClaim>,
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
        shared: &Arc<LogShared>,
        sink: Box<dyn Sink>,
        claim: Option<FileClaim>,
        format: RowFormat,
        failure_hook: FailureHook,
    ) -> Self {
        let mut gathered = Vec::with_capacity(GATHERED + 4096);
        format.heading(&mut gathered);
        let seconds = super::record::nanoseconds_now() / 1_000_000_000;
        Self {
            shared: Arc::clone(shared),
            sink,
            claim,
            format,
            failure_hook,
            microseconds_ahead_of_utc: os::seconds_ahead_of_utc(seconds) * 1_000_000,
            gathered,
            formatted: 0,
            tags: HashMap::new(),
        }
    }

    pub(super) fn run(mut self) {
        mark_as_writer();
        // The sink may be foreign code, and may panic.
        let failure = match contain(|| self.write()) {
            Some(Ok(())) => None,
            Some(Err(error)) => Some(error),
            None => Some(io::Error::other("the writer panicked")),
        };
        let Self { shared, sink, claim, failure_hook, .. } = self;
        let failure = failure.map(|error| Error::unwritable(&shared.name, &error));
        if let Some(error) = &failure {
            shared.fail(error.clone());
        }
        // A file is closed, and free for the next log, before anybody is told: they may make that log. A sink of somebody's own
        // may take for ever to go, and does so behind that.
        let of_theirs = match claim {
            Some(claim) => {
                drop(sink);
                drop(claim);
                None
            }
            None => Some(sink),
        };
        if let Some(error) = &failure {
            contain(|| failure_hook(error));
        }
        contain(|| drop(failure_hook));
        contain(|| drop(of_theirs));
    }

    /// Writes until the log is over.
    fn write(&mut self) -> io::Result<()> {
        let mut naps = 0;
        loop {
            // Acquire: pairs with the release in `LogShared::stop`. In that order: after it no row is pushed.
            let is_last = self.shared.is_over.load(Ordering::Acquire) != 0;
            let asked = self.shared.flushes_asked();
            let count = self.format_what_is_there()?;
            let flushes = asked.is_some() || is_last;
            if !self.gathered.is_empty() {
                self.pass_on()?;
            }
            if flushes {
                self.sink.flush()?;
            }
            if let Some(asked) = asked {
                self.shared.flushed(asked);
            }
            if is_last {
                // A later flush has nothing left to wait for.
                self.shared.flushed(u64::MAX);
                return Ok(());
            }
            naps = if count == 0 && !flushes { naps + 1 } else { 0 };
            if naps < NAPS {
                self.shared.wake.wait_for(NAP);
            } else if self.shared.records.is_empty_for_sleep(self.formatted) {
                self.shared.wake.wait();
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
            device: Some(record.device),
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
