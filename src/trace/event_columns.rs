//! `EventColumns`: the log of RMM's C interface, up to 0.13.

use super::columns::{DEVICE, address, ordinal_of, wrong};
use super::{Action, Row};

const COUNT: usize = 12;

/// A year, in seconds: no log is longer.
const LONGEST: f64 = 366.0 * 24.0 * 60.0 * 60.0;

/// The columns of a log that RMM kept in memory while its interface was one of C: always the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventColumns;

impl EventColumns {
    /// The heading of such a log.
    pub(super) const HEADING: &str = "Event Type,Device ID,Address,Stream,Size (bytes),Free Memory,Total Memory,Current Allocs,Start,End,Elapsed,Location";

    /// The columns, if the heading is that of such a log.
    pub(super) fn of_heading(heading: &str) -> Option<Self> {
        (heading == Self::HEADING).then_some(Self)
    }

    pub(super) fn row(self, line: usize, text: &str) -> Result<Row, String> {
        // The last column is the name of a source file, which may have commas in it.
        let fields: Vec<&str> = text.splitn(COUNT, ',').map(str::trim).collect();
        let [event, device, pointer, stream, size, _, _, _, start, ..] = fields[..] else {
            return Err(format!("it has {} columns where the heading has {COUNT}", fields.len()));
        };
        if fields.len() < COUNT {
            return Err(format!("it has {} columns where the heading has {COUNT}", fields.len()));
        }
        let address = address(pointer)
            .ok_or_else(|| wrong("Address", pointer, "an address, 0x and sixteen digits at most"))?;
        let bytes = size.parse().map_err(|_| wrong("Size (bytes)", size, "a number of bytes"))?;
        let action = match event {
            // A row was written whether the call succeeded or not; only the address shows which.
            "Alloc" if address == 0 && bytes > 0 => Action::AllocateFailure,
            "Alloc" => Action::Allocate,
            "Free" => Action::Free,
            "Realloc" => {
                return Err("it is a Realloc, and such rows name neither the old nor the new address: what was live from here on is not known".to_owned());
            }
            _ => return Err(wrong("Event Type", event, "one of Alloc, Free")),
        };
        Ok(Row {
            line,
            // The log does not name the thread.
            thread: 0,
            microseconds: microseconds(start).ok_or_else(|| wrong("Start", start, "a number of seconds"))?,
            action,
            address,
            bytes,
            stream: super::columns::address(stream).ok_or_else(|| {
                wrong("Stream", stream, "the handle of a stream, 0x and sixteen digits at most")
            })?,
            device: Some(ordinal_of(device).ok_or_else(|| wrong("Device ID", device, DEVICE))?),
            tag: Box::default(),
            reserved_bytes: None,
        })
    }
}

/// Seconds since the log began, as C++ prints them: `1.10549`, `2.5e-05`.
fn microseconds(field: &str) -> Option<u64> {
    let is_number = field.starts_with(|first: char| first.is_ascii_digit());
    let seconds: f64 = is_number.then(|| field.parse().ok())??;
    (0.0..LONGEST).contains(&seconds).then(|| (seconds * 1e6).round() as u64)
}
