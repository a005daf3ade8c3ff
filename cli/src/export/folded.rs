//! Folded stacks: a line for each path of names, and its bytes. What scripts that draw flame graphs read.

use std::collections::BTreeMap;
use std::io::Write;

use alluvion::Layout;
use alluvion::trace::{Event, EventKind, Trace};

use super::output::unwritten;
use crate::failure::Failure;
use crate::snapshot_file::SnapshotFile;

/// Which bytes of a log are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// Those that were live when most were.
    Peak,
    /// Those that are live after the last event.
    End,
    /// All that were ever allocated.
    Ever,
}

/// The bytes of each path. A block counts with the bytes that a suballocator makes of it at least, so that all paths together
/// are the live peak.
pub(super) fn write_trace(trace: &Trace, moment: Moment, to: &mut impl Write) -> Result<(), Failure> {
    let count = match moment {
        Moment::Peak => events_to_peak(&trace.events),
        Moment::End | Moment::Ever => trace.events.len(),
    };
    // By tag, stream and thread: that is few, and the words are made afterwards.
    let mut bytes: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
    let mut whose = vec![(0, 0, 0); trace.blocks as usize];
    for (event, moment_of) in trace.events.iter().zip(&trace.moments).take(count) {
        let whose = &mut whose[event.block as usize];
        match event.kind {
            EventKind::Allocate => {
                *whose = (moment_of.tag, event.stream, event.thread);
                let sum = bytes.entry(*whose).or_default();
                *sum = sum.saturating_add(rounded(event));
            }
            EventKind::Free if moment == Moment::Ever => {}
            EventKind::Free => {
                let sum = bytes.entry(*whose).or_default();
                *sum = sum.saturating_sub(rounded(event));
            }
        }
    }
    let mut paths: BTreeMap<String, u64> = BTreeMap::new();
    for ((tag, stream, thread), bytes) in bytes {
        let path = match &*trace.tags[tag as usize] {
            // Where nobody said what it is for, who did it is all there is.
            "" => format!(
                "untagged;thread {};stream {:#x}",
                trace.thread_numbers[thread as usize], trace.stream_handles[stream as usize]
            ),
            tag => tag.to_owned(),
        };
        let sum = paths.entry(path).or_default();
        *sum = sum.saturating_add(bytes);
    }
    write_paths(paths, to)
}

/// Live blocks by their tags, the others by what they wait for.
pub(super) fn write_snapshot(file: &SnapshotFile, to: &mut impl Write) -> Result<(), Failure> {
    let mut paths: BTreeMap<String, u64> = BTreeMap::new();
    for block in &file.blocks {
        let state = block.state.name();
        let path = match (block.state.stream(), &*block.tag) {
            (Some(stream), _) => format!("{state};stream {stream}"),
            (None, "") => state.to_owned(),
            (None, tag) => format!("{state};{tag}"),
        };
        *paths.entry(path).or_default() += block.bytes;
    }
    write_paths(paths, to)
}

fn write_paths(paths: BTreeMap<String, u64>, to: &mut impl Write) -> Result<(), Failure> {
    for (path, bytes) in paths.into_iter().filter(|(_, bytes)| *bytes > 0) {
        // A path is a line, and a name may come from anywhere.
        let path: String = path.chars().map(|c| if c.is_control() { '_' } else { c }).collect();
        writeln!(to, "{path} {bytes}").map_err(unwritten)?;
    }
    Ok(())
}

/// How many events come before most is live, for the first time.
fn events_to_peak(events: &[Event]) -> usize {
    let (mut live, mut peak, mut at_peak) = (0_u64, 0, 0);
    for (at, event) in events.iter().enumerate() {
        match event.kind {
            EventKind::Allocate => live = live.saturating_add(rounded(event)),
            EventKind::Free => live = live.saturating_sub(rounded(event)),
        }
        if live > peak {
            (peak, at_peak) = (live, at + 1);
        }
    }
    at_peak
}

fn rounded(event: &Event) -> u64 {
    event.bytes.next_multiple_of(Layout::MIN_ALIGN as u64)
}
