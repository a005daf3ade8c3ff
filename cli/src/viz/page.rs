//! What a page carries: headings and columns.

use std::io;

use serde::Serialize;

use alluvion::trace::Refusal;

use super::address_space::AddressSpace;
use super::columns::Columns;
use super::frame::Page;
use super::picture::{Origin, Picture};
use super::recording::Recording;
use super::snapshot::Still;
use super::summary::{Span, Summary};
use crate::snapshot_file::Status;

/// What the page is told beside its columns.
#[derive(Serialize)]
struct Heading<'p> {
    title: &'p str,
    kind: &'static str,
    resource: Option<&'p str>,
    notes: &'p [String],
    unit: u64,
    /// Of the first event, since midnight; of several devices, of the first event of any.
    first_microseconds: u64,
    /// On a page of several devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<DeviceHeading>,
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

/// Which device, and where its events lie in the time of all.
#[derive(Clone, Copy, Serialize)]
struct DeviceHeading {
    ordinal: u32,
    /// From the first event of any device to the first of this one.
    later_microseconds: u64,
    /// From the first event of any device to the last of any.
    whole_microseconds: u64,
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
    Ok(Page { title: still.title.clone(), devices: Vec::new(), pieces: columns.pack(&heading)? })
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
    Ok(Page { title: picture.title.clone(), devices: Vec::new(), pieces: pack(picture, None)? })
}

/// A page to which devices are added.
pub(super) fn of_devices(title: String) -> Page {
    Page { title, devices: Vec::new(), pieces: Vec::new() }
}

fn pack(picture: &Picture, of_span: Option<(u32, Span)>) -> io::Result<Vec<Vec<u8>>> {
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
        first_microseconds: of_span.map_or(log.first_microseconds, |(_, span)| span.from),
        device: of_span.map(|(ordinal, span)| DeviceHeading {
            ordinal,
            // A device without an event has no first moment.
            later_microseconds: log.first_microseconds.saturating_sub(span.from),
            whole_microseconds: span.to.saturating_sub(span.from),
        }),
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
    columns.pack(&heading)
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

impl Page {
    /// Adds the next device.
    pub(super) fn add_device(&mut self, picture: &Picture, summary: Summary, span: Span) -> io::Result<()> {
        let pieces = pack(picture, Some((summary.ordinal, span)))?;
        self.devices.push(summary.in_pieces(pieces.len()));
        self.pieces.extend(pieces);
        Ok(())
    }
}
