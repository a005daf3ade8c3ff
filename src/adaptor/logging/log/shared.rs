//! `LogShared`: the state that allocating threads share with the writer.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::queue::Full;
use super::record::{Record, Records};
use super::writer_mark::is_writer;
use crate::error::Error;
use crate::sync::{AtomicU64, Condvar, MadeIn, Mutex, Ordering, Signal, nap, yield_now};

/// How often a thread that finds no room looks again before it sleeps for a millisecond. The writer makes room for a row in
/// 0.2 µs, once it runs.
const LOOKS: u32 = if cfg!(loom) { 1 } else { 64 };

/// The state that allocating threads share with the writer.
#[derive(Debug)]
pub(super) struct LogShared {
    pub(super) records: Records,
    /// The name of the log: that of its file, as a rule.
    pub(super) name: String,
    /// The fork generation that it was made in. In a later generation there is no writer.
    made_in: MadeIn,
    /// 1 once no row is written any more.
    has_failed: AtomicU64,
    failure: OnceLock<Error>,
    /// 1 once no row is pushed any more.
    pub(super) is_over: AtomicU64,
    /// The signal that wakes the writer.
    pub(super) wake: Signal,
    /// Rows that the sink has written.
    written: AtomicU64,
    /// Rows that were not even pushed.
    refused: AtomicU64,
    stalls: AtomicU64,
    flushes: Mutex<Flushes>,
    flushed: Condvar,
}

#[derive(Debug, Default)]
struct Flushes {
    asked: u64,
    done: u64,
}

impl LogShared {
    pub(super) fn new(name: String, room: usize) -> Self {
        Self {
            records: Records::new(room),
            name,
            made_in: MadeIn::this_process(),
            has_failed: AtomicU64::new(0),
            failure: OnceLock::new(),
            is_over: AtomicU64::new(0),
            wake: Signal::default(),
            written: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            flushes: Mutex::default(),
            flushed: Condvar::default(),
        }
    }

    /// Returns `true` in a child of the process that has the writer.
    #[inline]
    pub(super) fn is_forked_child(&self) -> bool {
        self.made_in.is_parent()
    }

    /// Pushes a row. Waits for room; drops the row if the log has ended.
    #[inline]
    pub(super) fn push(&self, record: Record) {
        // Relaxed: a row more or less that is pushed for nobody.
        if self.has_failed.load(Ordering::Relaxed) != 0 || self.is_forked_child() {
            return self.refuse();
        }
        match self.records.push(record.pack()) {
            Ok(false) => {}
            Ok(true) => self.wake.set(),
            Err(Full) => self.push_slowly(record),
        }
    }

    #[cold]
    fn refuse(&self) {
        // Relaxed: a figure for people.
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    #[inline(never)]
    fn push_slowly(&self, record: Record) {
        if is_writer() {
            // It would wait for itself, or two would for each other.
            return self.refuse();
        }
        // Relaxed: a figure for people.
        self.stalls.fetch_add(1, Ordering::Relaxed);
        loop {
            self.wake.set();
            for _ in 0..LOOKS {
                // Acquire: nothing is read behind it; a waiting thread shall see it soon.
                if self.has_failed.load(Ordering::Acquire) != 0 {
                    return self.refuse();
                }
                match self.records.push(record.pack()) {
                    Ok(false) => return,
                    Ok(true) => return self.wake.set(),
                    Err(Full) => yield_now(),
                }
            }
            nap();
        }
    }

    /// Ends the pushing of rows.
    pub(super) fn stop(&self) {
        // Release: pairs with the acquire in `Writer::write`, which sees all that was pushed.
        self.is_over.store(1, Ordering::Release);
        self.wake.set();
    }

    /// Ends the writing of rows.
    pub(super) fn fail(&self, error: Error) {
        let is_first = self.failure.set(error);
        debug_assert!(is_first.is_ok());
        // Release: who sees it sees the error.
        self.has_failed.store(1, Ordering::Release);
        drop(self.flushes.lock());
        self.flushed.notify_all();
    }

    pub(super) fn note_written(&self, rows: u64) {
        // Relaxed: a figure for people.
        self.written.store(rows, Ordering::Relaxed);
    }

    /// The number of the flush that was asked for last, if it is not done.
    pub(super) fn flushes_asked(&self) -> Option<u64> {
        let flushes = self.flushes.lock();
        (flushes.asked > flushes.done).then_some(flushes.asked)
    }

    pub(super) fn flushed(&self, asked: u64) {
        self.flushes.lock().done = asked;
        self.flushed.notify_all();
    }

    /// Waits until what was pushed before is written and passed on, at most so long.
    pub(super) fn flush(&self, patience: Option<Duration>) -> Result<(), Error> {
        let refused = |why| Err(Error::unwritable(&self.name, &std::io::Error::other(why)));
        if self.is_forked_child() {
            return refused("its writer is a thread of the parent process");
        }
        if is_writer() {
            return refused("a thread that writes a log cannot wait for one");
        }
        let until = patience.map(|patience| Instant::now() + patience);
        let mut flushes = self.flushes.lock();
        flushes.asked += 1;
        let asked = flushes.asked;
        self.wake.set();
        while flushes.done < asked {
            if let Some(error) = self.failure() {
                return Err(error);
            }
            flushes = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.flushed.wait(flushes),
                Some(Duration::ZERO) => return refused("it took too long"),
                Some(left) => self.flushed.wait_timeout(flushes, left),
            };
        }
        Ok(())
    }

    pub(super) fn failure(&self) -> Option<Error> {
        self.failure.get().cloned()
    }

    pub(super) fn rows(&self) -> u64 {
        self.records.drawn() + self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(super) fn dropped(&self) -> u64 {
        let refused = self.refused.load(Ordering::Relaxed);
        if self.failure.get().is_none() { refused } else { self.rows() - self.written() }
    }

    pub(super) fn stalls(&self) -> u64 {
        self.stalls.load(Ordering::Relaxed)
    }
}
