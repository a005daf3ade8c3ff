//! The rows of a log.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

/// A chunk of rows is copied as one count, so a copy of the log holds the lock for 256 counts and no row.
const CHUNK_ROWS: usize = 4096;

/// The oldest chunk goes when there are more: 1,048,576 rows, of 88 bytes each, are 88 MiB.
const MOST_CHUNKS: usize = 256;

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::legacy) enum Event {
    Alloc,
    Realloc,
    Free,
}

/// What a call has to say. Numbers alone, which become text when the log is asked for.
#[derive(Clone, Copy, Debug)]
pub(in crate::legacy) struct Row {
    pub(in crate::legacy) event: Event,
    pub(in crate::legacy) device: u32,
    /// The address of the block; 0 if there is none.
    pub(in crate::legacy) address: u64,
    /// The handle of the stream, as the caller has it.
    pub(in crate::legacy) stream: u64,
    pub(in crate::legacy) bytes: usize,
    /// Nanoseconds since the start of the log.
    pub(in crate::legacy) start: u64,
}

/// The memory of a device, in bytes; 0 if nobody asked.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::legacy) struct Memory {
    pub(in crate::legacy) free: usize,
    pub(in crate::legacy) total: usize,
}

/// What is known when a call is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// Nanoseconds since the start of the log.
    pub(super) end: u64,
    pub(super) memory: Memory,
}

/// A row that is in a log.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) row: Row,
    pub(super) at_end: End,
    pub(super) file: Arc<[u8]>,
    pub(super) line: u32,
    /// By how many blocks more are live after the call than before it. A sum over the rows says how many are, so that a row which
    /// is taken out later changes those behind it.
    pub(super) change: i8,
    /// The call has changed nothing: the row is left out.
    pub(super) is_out: bool,
}

/// Rows in their order: chunks, all of them full but the last.
#[derive(Debug, Default)]
pub(super) struct Rows {
    chunks: VecDeque<Arc<Vec<Entry>>>,
    /// The number of the first row that is held; a multiple of [`CHUNK_ROWS`].
    first: u64,
    /// The blocks that are live before the first row that is held.
    live: i64,
    /// Each name once: a log has many rows and few files.
    files: HashSet<Arc<[u8]>>,
}

impl Rows {
    pub(super) fn begin_with(&mut self, live: usize) {
        self.live = i64::try_from(live).unwrap_or(i64::MAX);
    }

    /// Puts a row in, and returns its number.
    pub(super) fn push(&mut self, row: Row, at_end: End, change: i8, (file, line): (&[u8], u32)) -> u64 {
        let file = self.name(file);
        if self.chunks.back().is_none_or(|last| last.len() == CHUNK_ROWS) {
            self.chunks.push_back(Arc::default());
            if self.chunks.len() > MOST_CHUNKS {
                self.forget_oldest();
            }
        }
        let number = self.first + (self.chunks.len() as u64 - 1) * CHUNK_ROWS as u64;
        let Some(last) = self.chunks.back_mut() else { return number };
        let last = Arc::make_mut(last);
        last.push(Entry { row, at_end, file, line, change, is_out: false });
        number + last.len() as u64 - 1
    }

    fn forget_oldest(&mut self) {
        let oldest = self.chunks.pop_front();
        let kept = oldest.iter().flat_map(|rows| rows.iter()).filter(|entry| !entry.is_out);
        self.live += kept.map(|entry| i64::from(entry.change)).sum::<i64>();
        drop(oldest);
        self.first += CHUNK_ROWS as u64;
        self.files.retain(|name| Arc::strong_count(name) > 1);
    }

    fn name(&mut self, file: &[u8]) -> Arc<[u8]> {
        if let Some(known) = self.files.get(file) {
            return Arc::clone(known);
        }
        let name: Arc<[u8]> = file.into();
        self.files.insert(Arc::clone(&name));
        name
    }

    /// Changes a row, if it is still held.
    pub(super) fn change(&mut self, number: u64, change: impl FnOnce(&mut Entry)) {
        let Some(place) = number.checked_sub(self.first) else { return };
        let (chunk, place) = (place / CHUNK_ROWS as u64, place % CHUNK_ROWS as u64);
        // Copies the chunk if somebody is writing the log out just now.
        let chunk = self.chunks.get_mut(chunk as usize).map(Arc::make_mut);
        if let Some(entry) = chunk.and_then(|rows| rows.get_mut(place as usize)) {
            change(entry);
        }
    }

    /// Leaves a row out that was put in with this change.
    pub(super) fn take_out(&mut self, number: u64, change: i8) {
        if number < self.first {
            self.live -= i64::from(change);
        }
        self.change(number, |entry| entry.is_out = true);
    }

    /// The rows as they are now, and the blocks that are live before the first.
    pub(super) fn copy(&self) -> (i64, Vec<Arc<Vec<Entry>>>) {
        (self.live, self.chunks.iter().cloned().collect())
    }
}

#[cfg(test)]
pub(super) const MOST_ROWS: usize = CHUNK_ROWS * MOST_CHUNKS;
#[cfg(test)]
pub(super) const FORGOTTEN_AT_ONCE: usize = CHUNK_ROWS;
