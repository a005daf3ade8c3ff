//! A snapshot as JSON: what `docs/snapshot-format.md` describes.
//!
//! Written by hand, because it is two lists of numbers: a serializer would be a dependency of every program for this.

use core::fmt;
use std::io::{self, BufWriter, Write};
use std::time::UNIX_EPOCH;

use super::{BlockState, BlockView, SegmentView, Snapshot};
use crate::driver::MemoryInfo;
use crate::error::{Cause, OutOfMemory};
use crate::suballoc::Status;
use crate::tag::Tag;

/// The version of the format. A change that older readers may not understand raises it.
const VERSION: u32 = 1;

pub(super) fn write(snapshot: &Snapshot, report: Option<&OutOfMemory>, to: impl Write) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    // A time before 1970 is wrong anyway.
    let microseconds = snapshot.time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    let device = &snapshot.device;
    writeln!(to, "{{\n\"format\": \"alluvion-snapshot\",\n\"version\": {VERSION},")?;
    writeln!(to, "\"unix_microseconds\": {microseconds},")?;
    let driver = Text(device.machine().driver().name());
    writeln!(to, "\"device\": {{\"driver\": {driver}, \"ordinal\": {}}},", device.ordinal())?;
    write_status(&snapshot.status, &mut to)?;
    if let Some(report) = report {
        write_report(report, &mut to)?;
    }
    write_list("segments", &snapshot.segments, write_segment, &mut to)?;
    to.write_all(b",\n")?;
    write_list("blocks", &snapshot.blocks, write_block, &mut to)?;
    to.write_all(b"\n}\n")?;
    to.flush()
}

fn write_status(status: &Status, to: &mut impl Write) -> io::Result<()> {
    let Status {
        live_bytes,
        live_blocks,
        free_bytes,
        cached_bytes,
        pending_bytes,
        graph_bytes,
        asleep_bytes,
        reserved_bytes,
        peak_reserved_bytes,
        largest_free_bytes,
        metadata_bytes,
        hits,
        misses,
        steals,
        pages,
        moves,
        moved_bytes,
        waits,
        events_recorded,
        upstream_calls,
        wrong_frees,
    } = *status;
    let bytes = [
        ("live_bytes", live_bytes),
        ("live_blocks", live_blocks),
        ("free_bytes", free_bytes),
        ("cached_bytes", cached_bytes),
        ("pending_bytes", pending_bytes),
        ("reserved_bytes", reserved_bytes),
        ("peak_reserved_bytes", peak_reserved_bytes),
        ("largest_free_bytes", largest_free_bytes),
        ("metadata_bytes", metadata_bytes),
    ];
    let counts = [
        ("hits", hits),
        ("misses", misses),
        ("steals", steals),
        ("pages", pages as u64),
        ("moves", moves),
        ("moved_bytes", moved_bytes),
        ("waits", waits),
        ("events_recorded", events_recorded),
    ];
    to.write_all(b"\"status\": {")?;
    for (name, value) in bytes {
        write!(to, "\"{name}\": {value}, ")?;
    }
    if graph_bytes > 0 {
        write!(to, "\"graph_bytes\": {graph_bytes}, ")?;
    }
    if asleep_bytes > 0 {
        write!(to, "\"asleep_bytes\": {asleep_bytes}, ")?;
    }
    if wrong_frees > 0 {
        write!(to, "\"wrong_frees\": {wrong_frees}, ")?;
    }
    for (name, value) in counts {
        write!(to, "\"{name}\": {value}, ")?;
    }
    writeln!(to, "\"upstream_calls\": {upstream_calls}}},")
}

fn write_report(report: &OutOfMemory, to: &mut impl Write) -> io::Result<()> {
    let cause = match report.cause {
        Cause::TooLarge => "too_large",
        Cause::Limit => "limit",
        Cause::Fragmentation => "fragmentation",
        Cause::Pending => "pending",
        Cause::Full => "full",
        Cause::Others => "others",
        Cause::Frozen => "frozen",
    };
    write!(to, "\"out_of_memory\": {{\"cause\": \"{cause}\", \"refused_by\": {}, ", Text(report.refused_by))?;
    write!(to, "\"requested_bytes\": {}, \"align\": {}, ", report.requested_bytes, report.align)?;
    if let Some(stream) = report.stream {
        write!(to, "\"stream\": \"{stream}\", ")?;
    }
    write!(to, "\"attempt\": {}, \"live_bytes\": {}, ", report.attempt, report.live_bytes)?;
    write!(to, "\"free_bytes\": {}, \"pending_bytes\": {}, ", report.free_bytes, report.pending_bytes)?;
    write!(
        to,
        "\"reserved_bytes\": {}, \"largest_bytes\": {}, ",
        report.reserved_bytes, report.largest_bytes
    )?;
    if let Some(maximum) = report.maximum_bytes {
        write!(to, "\"maximum_bytes\": {maximum}, ")?;
    }
    if let Some(MemoryInfo { free_bytes, total_bytes }) = report.upstream_memory {
        write!(to, "\"upstream_free_bytes\": {free_bytes}, \"upstream_total_bytes\": {total_bytes}, ")?;
    }
    if let Some(error) = &report.upstream_error {
        write!(to, "\"upstream_error\": {}, ", Text(&error.to_string()))?;
    }
    writeln!(to, "\"message\": {}}},", Text(&report.to_string()))
}

fn write_list<T, W: Write>(
    name: &str,
    items: &[T],
    write_item: impl Fn(&T, &mut W) -> io::Result<()>,
    to: &mut W,
) -> io::Result<()> {
    write!(to, "\"{name}\": [")?;
    for (at, item) in items.iter().enumerate() {
        to.write_all(if at == 0 { b"\n" } else { b",\n" })?;
        write_item(item, to)?;
    }
    to.write_all(b"]")
}

fn write_segment(segment: &SegmentView, to: &mut impl Write) -> io::Result<()> {
    write!(to, "{{\"address\": \"{:#x}\", \"bytes\": {}}}", segment.address.address(), segment.bytes)
}

fn write_block(block: &BlockView, to: &mut impl Write) -> io::Result<()> {
    write!(to, "{{\"address\": \"{:#x}\", \"bytes\": {}, ", block.address.address(), block.bytes)?;
    match block.state {
        BlockState::Live => write!(to, "\"state\": \"live\"")?,
        BlockState::Cached(None) => write!(to, "\"state\": \"cached\"")?,
        BlockState::Cached(Some(stream)) => write!(to, "\"state\": \"cached\", \"stream\": \"{stream}\"")?,
        BlockState::Pending(point) => {
            let (stream, epoch) = (point.stream(), point.epoch().0);
            write!(to, "\"state\": \"pending\", \"stream\": \"{stream}\", \"epoch\": {epoch}")?;
        }
        BlockState::Free => write!(to, "\"state\": \"free\"")?,
    }
    if block.tag != Tag::NONE {
        write!(to, ", \"tag\": {}", Text(&block.tag.to_string()))?;
    }
    to.write_all(b"}")
}

/// A string of JSON: quoted, and escaped where it must be.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' | '\\' => write!(f, "\\{character}")?,
                '\u{0}'..='\u{1f}' => write!(f, "\\u{:04x}", u32::from(character))?,
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_where_it_must_be() {
        let cases = [
            ("", r#""""#),
            ("plain; ärger", r#""plain; ärger""#),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("line\nend\t\u{1}\u{1f}", r#""line\u000aend\u0009\u0001\u001f""#),
        ];
        for (text, written) in cases {
            assert_eq!(Text(text).to_string(), written);
        }
    }
}
