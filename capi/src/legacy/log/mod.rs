//! What was called, when, and from where?
//!
//! The rows are held in memory until the session ends. Their order is one that the blocks had: the row of a free is put in before
//! the block goes back, and that of an allocation after the block came out, so that an address is never out twice.

mod rows;
mod text;

use std::ffi::c_char;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rows::{End, Rows};
pub(super) use rows::{Event, Memory, Row};

/// Longer names of files are cut: those of systems end at 4096 bytes.
const MOST_FILE_BYTES: usize = 4096;

/// Where a call comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    file: *const c_char,
    line: u32,
}

impl Caller {
    pub(super) fn new(file: *const c_char, line: u32) -> Self {
        Self { file, line }
    }

    /// # Safety
    ///
    /// The file is null, or ends in 0, or has [`MOST_FILE_BYTES`] readable bytes, and stays as it is during the call.
    #[expect(unsafe_code, reason = "reads a string of C")]
    unsafe fn file(&self) -> &[u8] {
        if self.file.is_null() {
            return &[];
        }
        // SAFETY: not null, so it has so many readable bytes, or ends before, as the caller promises.
        let bytes = unsafe { libc::strnlen(self.file, MOST_FILE_BYTES) };
        // SAFETY: so many bytes are readable, as the call before has found, and they stay, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.file.cast(), bytes) }
    }
}

/// The log of a session.
#[derive(Debug)]
pub(super) struct Log {
    /// What the times of rows count from.
    start: Instant,
    /// Whether rows tell the free and the total memory, which takes a driver call each.
    asks_memory: bool,
    rows: Mutex<Rows>,
}

/// A row that is in the log, of a call that goes on.
#[derive(Clone, Copy, Debug)]
#[must_use = "the row has no end yet"]
pub(super) struct Pending(u64);

impl Log {
    pub(super) fn new() -> Self {
        let asks_memory = std::env::var_os("ALLUVION_RMM_LOG_MEMORY").is_some_and(|value| value == "1");
        Self { start: Instant::now(), asks_memory, rows: Mutex::default() }
    }

    pub(super) fn asks_memory(&self) -> bool {
        self.asks_memory
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds since the start: enough for 584 years.
    pub(super) fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Says how many blocks are live when the log begins.
    pub(super) fn begin_with(&self, live: usize) {
        self.rows().begin_with(live);
    }

    /// Puts the row of a call in that ends now; `change` is by how many blocks more are live.
    ///
    /// # Safety
    ///
    /// As [`Caller::file`].
    #[expect(unsafe_code, reason = "reads a string of C")]
    pub(super) unsafe fn add(&self, row: Row, memory: Memory, change: i8, caller: Caller) {
        // SAFETY: the caller's promise.
        let file = unsafe { caller.file() };
        let end = self.now();
        self.rows().push(row, End { end, memory }, change, (file, caller.line));
    }

    /// Puts the row of a call in that goes on.
    ///
    /// # Safety
    ///
    /// As [`Caller::file`].
    #[expect(unsafe_code, reason = "reads a string of C")]
    pub(super) unsafe fn begin(&self, row: Row, change: i8, caller: Caller) -> Pending {
        // SAFETY: the caller's promise.
        let file = unsafe { caller.file() };
        let open = End { end: row.start, memory: Memory::default() };
        Pending(self.rows().push(row, open, change, (file, caller.line)))
    }

    /// Ends a row.
    pub(super) fn end(&self, pending: Pending, memory: Memory) {
        let end = self.now();
        self.rows().change(pending.0, |entry| entry.at_end = End { end, memory });
    }

    /// Takes a row out: the call has changed nothing. `change` as it was put in.
    pub(super) fn take_out(&self, pending: Pending, change: i8) {
        self.rows().take_out(pending.0, change);
    }

    /// Writes the log as CSV.
    pub(super) fn write(&self, to: &mut impl io::Write) -> io::Result<()> {
        // In a statement of its own: the lock is not held while `to` is written to.
        let (live, rows) = self.rows().copy();
        text::write(live, rows.iter().flat_map(|some| some.iter()), to)
    }
}

/// Writes a log without rows, which is what there is where none is kept.
pub(super) fn write_none(to: &mut impl io::Write) -> io::Result<()> {
    text::write(0, std::iter::empty(), to)
}

#[cfg(test)]
mod tests;
