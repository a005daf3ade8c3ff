//! A log as text.

use std::fmt;
use std::io;

use super::rows::{End, Entry, Event};

const HEADER: &str = "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,\
    Current Allocs,Start,End,Elapsed,Location\n";

/// Writes rows as CSV, below the header row. `live` blocks are before the first.
pub(super) fn write<'r>(
    mut live: i64,
    rows: impl Iterator<Item = &'r Entry>,
    to: &mut impl io::Write,
) -> io::Result<()> {
    to.write_all(HEADER.as_bytes())?;
    rows.filter(|entry| !entry.is_out).try_for_each(|entry| {
        live += i64::from(entry.change);
        write_row(entry, live, to)
    })
}

fn write_row(entry: &Entry, live: i64, to: &mut impl io::Write) -> io::Result<()> {
    let row = &entry.row;
    let event = match row.event {
        Event::Alloc => "Alloc",
        Event::Realloc => "Realloc",
        Event::Free => "Free",
    };
    let End { end, memory } = entry.at_end;
    write!(
        to,
        "{event},{},{},{},{},{},{},{},{},{},{},",
        row.device,
        Pointer(row.address),
        Pointer(row.stream),
        row.bytes,
        memory.free,
        memory.total,
        live,
        Seconds(row.start),
        Seconds(end),
        Seconds(end.saturating_sub(row.start)),
    )?;
    write_location(&entry.file, entry.line, to)?;
    to.write_all(b"\n")
}

/// `file:line`, in double quotes if a reader of CSV would not see the end of the name otherwise.
fn write_location(file: &[u8], line: u32, to: &mut impl io::Write) -> io::Result<()> {
    if !file.iter().any(|byte| b",\"\r\n".contains(byte)) {
        to.write_all(file)?;
        return write!(to, ":{line}");
    }
    to.write_all(b"\"")?;
    for piece in file.split_inclusive(|&byte| byte == b'"') {
        to.write_all(piece)?;
        if piece.ends_with(b"\"") {
            to.write_all(b"\"")?;
        }
    }
    write!(to, ":{line}\"")
}

/// A pointer as streams of C++ write it.
struct Pointer(u64);

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 { f.write_str("0") } else { write!(f, "{:#x}", self.0) }
    }
}

/// Nanoseconds as seconds.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}
