//! The figures at the end, as Prometheus reads them: under the names of the library's own page.

use std::collections::BTreeMap;
use std::io::Write;

use alluvion::metrics::Metrics;
use alluvion::recipe::Recipe;
use alluvion::resource::FigureKind;
use alluvion::trace::Trace;

use super::output::unwritten;
use super::{of_each_device, playback};
use crate::failure::Failure;
use crate::playback::{Playback, What};
use crate::snapshot_file::SnapshotFile;

/// What there is after the last event of a log, and what there was on the way, on each device, through `stack` if there is one.
pub(super) fn write_trace(trace: &Trace, stack: Option<&Recipe>, to: &mut impl Write) -> Result<(), Failure> {
    let mut page = Metrics::new();
    for part in of_each_device(trace) {
        add_trace(&playback(&part, stack), &mut page)?;
    }
    write!(to, "{page}").map_err(unwritten)
}

/// The figures of a log of one device.
fn add_trace(playback: &Playback<'_>, page: &mut Metrics) -> Result<(), Failure> {
    let trace = playback.trace();
    // Where the log does not say, it is the first.
    let device = trace.device_ordinals.first().copied().unwrap_or_default().to_string();
    let mut sums = Sums::default();
    let mut tags = vec![0_u64; trace.tags.len()];
    playback.run(|step| {
        sums.live = step.live_bytes;
        sums.reserved = step.reserved_bytes;
        sums.peak_live = sums.peak_live.max(sums.live);
        sums.peak_reserved = sums.peak_reserved.max(sums.reserved);
        let of_tag = &mut tags[step.tag as usize];
        match step.what {
            What::Allocated { bytes, .. } => {
                sums.allocations += 1;
                sums.blocks += 1;
                *of_tag = of_tag.saturating_add(bytes);
            }
            What::Freed { bytes, .. } => {
                sums.frees += 1;
                sums.blocks -= 1;
                *of_tag = of_tag.saturating_sub(bytes);
            }
            What::Failed { .. } => sums.failures += 1,
            What::SegmentTaken { .. } => sums.upstream_calls += 1,
            What::SegmentGiven { .. } => sums.upstream_calls += 1,
        }
        Ok(())
    })?;
    sums.add_to(page, &device, trace.tags.len() > 1, &tags, &trace.tags);
    Ok(())
}

#[derive(Debug, Default)]
struct Sums {
    live: u64,
    blocks: u64,
    reserved: u64,
    peak_live: u64,
    peak_reserved: u64,
    allocations: u64,
    frees: u64,
    failures: u64,
    upstream_calls: u64,
}

impl Sums {
    fn add_to(&self, page: &mut Metrics, device: &str, is_tagged: bool, bytes: &[u64], tags: &[String]) {
        let labels = [("device", device)];
        for (name, help, value) in [
            ("alluvion_live_bytes", "Bytes in blocks that are out.", self.live),
            ("alluvion_live_blocks", "Blocks that are out.", self.blocks),
            ("alluvion_reserved_bytes", "Bytes taken from the upstream and not given back.", self.reserved),
            ("alluvion_peak_live_bytes", "The most bytes that were ever out.", self.peak_live),
            ("alluvion_peak_reserved_bytes", "The most bytes that were ever reserved.", self.peak_reserved),
        ] {
            page.add(name, FigureKind::Gauge, help, &labels, value);
        }
        for (name, help, value) in [
            ("alluvion_allocations_total", "Blocks that were allocated.", self.allocations),
            ("alluvion_frees_total", "Blocks that were freed.", self.frees),
            ("alluvion_failures_total", "Allocations that failed.", self.failures),
            ("alluvion_upstream_calls_total", "Segments taken and given back.", self.upstream_calls),
        ] {
            page.add(name, FigureKind::Counter, help, &labels, value);
        }
        let tagged = bytes.iter().zip(tags).filter(|_| is_tagged);
        for (bytes, tag) in tagged {
            let help = "Bytes that blocks which are out were asked for with.";
            page.add(
                "alluvion_tag_live_bytes",
                FigureKind::Gauge,
                help,
                &[("device", device), ("tag", tag)],
                *bytes,
            );
        }
    }
}

pub(super) fn write_snapshot(file: &SnapshotFile, to: &mut impl Write) -> Result<(), Failure> {
    let device = file.device.ordinal.to_string();
    let labels = [("device", &*device)];
    let mut page = Metrics::new();
    page.add_status(&labels, &file.status.in_library());
    let help = "Pieces taken from the upstream.";
    page.add("alluvion_segments", FigureKind::Gauge, help, &labels, file.segments.len());
    if let Some(report) = &file.out_of_memory {
        let help = "The request that there was no memory for.";
        let labels = [("device", &*device), ("cause", &*report.cause)];
        let bytes = report.requested_bytes;
        page.add("alluvion_out_of_memory_requested_bytes", FigureKind::Gauge, help, &labels, bytes);
    }
    let mut tags: BTreeMap<&str, u64> = BTreeMap::new();
    for block in file.blocks.iter().filter(|block| !block.tag.is_empty()) {
        *tags.entry(&block.tag).or_default() += block.bytes;
    }
    for (tag, bytes) in tags {
        let help = "Bytes of the blocks which are out.";
        let labels = [("device", &*device), ("tag", tag)];
        page.add("alluvion_tag_live_bytes", FigureKind::Gauge, help, &labels, bytes);
    }
    write!(to, "{page}").map_err(unwritten)
}
