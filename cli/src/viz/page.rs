//! The page: one file with everything in it.

use std::io::{self, Write};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

use alluvion::trace::Refusal;

use super::address_space::AddressSpace;
use super::columns::Columns;
use super::picture::{Origin, Picture};
use super::recording::Recording;
use super::snapshot::Still;
use crate::snapshot_file::Status;

const FRAME: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");

/// In the order in which they build on each other. The page has them in one function, so that they see each other and
/// nothing else sees them.
const SCRIPTS: [&str; 15] = [
    include_str!("page/units.js"),
    include_str!("page/data.js"),
    include_str!("page/pyramid.js"),
    include_str!("page/failures.js"),
    include_str!("page/model.js"),
    include_str!("page/axis.js"),
    include_str!("page/palette.js"),
    include_str!("page/chart.js"),
    include_str!("page/lanes.js"),
    include_str!("page/map.js"),
    include_str!("page/holders.js"),
    include_str!("page/histogram.js"),
    include_str!("page/search.js"),
    include_str!("page/app.js"),
    include_str!("page/start.js"),
];

/// What the page is told beside its columns.
#[derive(Serialize)]
struct Heading<'p> {
    title: &'p str,
    kind: &'static str,
    resource: Option<&'p str>,
    notes: &'p [String],
    unit: u64,
    /// Of the first event, since midnight.
    first_microseconds: u64,
    events: usize,
    blocks: u32,
    strays: usize,
    knows_reserved: bool,
    tags: &'p [String],
    /// As numbers of JSON they would lose digits.
    streams: Vec<String>,
    threads: Vec<String>,
    /// Of each region, where it begins in the address space.
    regions: Vec<String>,
}

/// What the page of a snapshot is told beside its columns.
#[derive(Serialize)]
struct StillHeading<'p> {
    title: &'p str,
    kind: &'static str,
    notes: &'p [String],
    unit: u64,
    unix_microseconds: u64,
    driver: &'p str,
    ordinal: u32,
    status: Status,
    events: usize,
    blocks: usize,
    tags: &'p [String],
    streams: &'p [String],
    threads: [String; 0],
    regions: Vec<String>,
}

/// The page of a snapshot.
pub(super) fn of_snapshot(still: &Still) -> io::Result<Page> {
    let heading = StillHeading {
        title: &still.title,
        kind: "snapshot",
        notes: &still.notes,
        unit: 1,
        unix_microseconds: still.unix_microseconds,
        driver: &still.device.driver,
        ordinal: still.device.ordinal,
        status: still.status,
        events: 0,
        blocks: still.bytes.len(),
        tags: &still.tag_names,
        streams: &still.stream_names,
        threads: [],
        regions: starts(&still.space),
    };
    let mut columns = Columns::default();
    columns.add_u64("block.bytes", &still.bytes);
    columns.add_u64("block.place", &still.places);
    columns.add_u32("block.tag", &still.tags);
    columns.add_u32("block.state", &still.states);
    columns.add_u32("block.stream", &still.streams);
    add_regions(&mut columns, &still.space);
    columns.add_u64("segment.place", still.segments.iter().map(|(place, _)| *place).collect::<Vec<_>>());
    columns.add_u64("segment.bytes", still.segments.iter().map(|(_, bytes)| *bytes).collect::<Vec<_>>());
    columns.add_u32("segment.born", vec![0; still.segments.len()]);
    columns.add_u32("segment.died", vec![u32::MAX; still.segments.len()]);
    Ok(Page { title: still.title.clone(), pieces: columns.pack(&heading)? })
}

fn starts(space: &AddressSpace) -> Vec<String> {
    space.regions.iter().map(|region| format!("{:#x}", region.address)).collect()
}

fn add_regions(columns: &mut Columns<'_>, space: &AddressSpace) {
    columns.add_u64("region.place", space.regions.iter().map(|region| region.place).collect::<Vec<_>>());
    columns.add_u64("region.bytes", space.regions.iter().map(|region| region.bytes).collect::<Vec<_>>());
}

/// The page of a picture.
pub(super) fn of_picture(picture: &Picture) -> io::Result<Page> {
    let (log, trace) = (&picture.log, &picture.log.rest);
    let (kind, resource, knows_reserved) = match &picture.origin {
        Origin::Recorded { knows_reserved } => ("recorded", None, *knows_reserved),
        Origin::Replayed { resource } => ("replayed", Some(resource.as_str()), true),
    };
    let hex = |number: &u64| format!("{number:#x}");
    let heading = Heading {
        title: &picture.title,
        kind,
        resource,
        notes: &picture.notes,
        unit: picture.unit,
        first_microseconds: log.first_microseconds,
        events: log.len(),
        blocks: trace.blocks,
        strays: trace.strays,
        knows_reserved,
        tags: &trace.tags,
        streams: trace.stream_handles.iter().map(hex).collect(),
        threads: trace.thread_numbers.iter().map(u64::to_string).collect(),
        regions: starts(&picture.space),
    };
    let mut columns = Columns::default();
    add_events(&mut columns, picture);
    add_regions(&mut columns, &picture.space);
    let segments = &picture.segments;
    columns.add_u64("segment.place", segments.iter().map(|segment| segment.address).collect::<Vec<_>>());
    columns.add_u64("segment.bytes", segments.iter().map(|segment| segment.bytes).collect::<Vec<_>>());
    columns.add_u32("segment.born", segments.iter().map(|segment| segment.born).collect::<Vec<_>>());
    columns.add_u32("segment.died", segments.iter().map(|segment| segment.died).collect::<Vec<_>>());
    let reserved = &picture.reserved;
    columns.add_u32("reserved.step", reserved.iter().map(|reserved| reserved.step).collect::<Vec<_>>());
    columns.add_u64("reserved.bytes", reserved.iter().map(|reserved| reserved.bytes).collect::<Vec<_>>());
    let samples = &picture.samples;
    columns.add_u32("sample.step", samples.iter().map(|sample| sample.step).collect::<Vec<_>>());
    columns.add_u64("sample.cached", samples.iter().map(|sample| sample.cached_bytes).collect::<Vec<_>>());
    add_failures(&mut columns, log);
    let covered = &picture.covered;
    columns.add_u32("covered.block", covered.iter().map(|covered| covered.block).collect::<Vec<_>>());
    columns.add_u32("covered.step", covered.iter().map(|covered| covered.step).collect::<Vec<_>>());
    Ok(Page { title: picture.title.clone(), pieces: columns.pack(&heading)? })
}

/// The allocations that failed when the log was written. Those that fail in a replay are blocks that are nowhere.
fn add_failures(columns: &mut Columns<'_>, log: &Recording) {
    let (first, refusals) = (log.first_microseconds, &log.rest.refusals);
    let of = |number: fn(&Refusal) -> u32| refusals.iter().map(number).collect::<Vec<_>>();
    // A picture has no more than 2^32 events.
    columns.add_u32("failure.after", of(|refusal| refusal.after_events as u32));
    columns.add_u32("failure.stream", of(|refusal| refusal.stream));
    columns.add_u32("failure.thread", of(|refusal| refusal.thread));
    columns.add_u32("failure.tag", of(|refusal| refusal.moment.tag));
    columns.add_u64("failure.bytes", refusals.iter().map(|refusal| refusal.bytes).collect::<Vec<_>>());
    let since = |refusal: &Refusal| refusal.moment.microseconds.saturating_sub(first);
    columns.add_u64("failure.microseconds", refusals.iter().map(since).collect::<Vec<_>>());
}

fn add_events<'p>(columns: &mut Columns<'p>, picture: &'p Picture) {
    let log = &picture.log;
    columns.add_narrow("event.back", &log.back);
    columns.add_narrow_u64("event.microseconds", &log.microseconds);
    columns.add_narrow("event.stream", &log.streams);
    columns.add_narrow("event.thread", &log.threads);
    columns.add_u16("event.fragmentation", &picture.fragmentation);
    columns.add_narrow_u64("block.bytes", &log.bytes);
    columns.add_u64("block.place", &picture.places);
    columns.add_narrow("block.tag", &log.tags);
}

/// A page, ready to be written.
#[derive(Debug)]
pub(super) struct Page {
    title: String,
    pieces: Vec<Vec<u8>>,
}

impl Page {
    /// Writes everything into the frame. Returns how many bytes that were.
    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<u64> {
        let mut length = 0;
        let mut write = |text: &str| {
            length += text.len() as u64;
            to.write_all(text.as_bytes())
        };
        let mut rest = FRAME;
        // The frame is ours, and a test sees to it that each of them is in it once, in this order.
        for mark in ["{{title}}", "{{style}}", "{{data}}", "{{script}}"] {
            let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
            write(before)?;
            match mark {
                "{{title}}" => write(&escaped(&self.title))?,
                "{{style}}" => write(STYLE)?,
                "{{data}}" => {
                    for piece in &self.pieces {
                        write("<script type=\"application/octet-stream\" class=\"data\">")?;
                        write(&BASE64_STANDARD.encode(piece))?;
                        write("</script>\n")?;
                    }
                }
                _ => SCRIPTS.into_iter().try_for_each(&mut write)?,
            }
            rest = after;
        }
        write(rest)?;
        Ok(length)
    }
}

/// As text of HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_has_a_place_for_each_part() {
        let mut last = 0;
        for mark in ["{{title}}", "{{style}}", "{{data}}", "{{script}}"] {
            assert_eq!(FRAME.matches(mark).count(), 1, "{mark}");
            let at = FRAME.find(mark).unwrap();
            assert!(at > last, "{mark} comes after the others");
            last = at;
        }
    }

    #[test]
    fn nothing_ends_the_script_or_the_style_early_and_nothing_is_fetched() {
        for part in SCRIPTS.into_iter().chain([STYLE]) {
            assert!(!part.contains("</") && !part.contains("<!--"));
            assert!(!part.contains("http:") && !part.contains("https:") && !part.contains("@import"));
        }
    }

    #[test]
    fn a_title_is_text() {
        assert_eq!(escaped("<b> & \"x\""), "&lt;b&gt; &amp; &quot;x&quot;");
    }
}
