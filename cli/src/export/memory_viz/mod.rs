//! PyTorch's snapshot of its allocator, as `torch.cuda.memory._snapshot()` makes it and its viewer reads it.
//!
//! What PyTorch calls stack frames is here the path of tags, innermost first, and then the thread. What it calls the history
//! of a device is the log.

mod frames;
mod history;
mod segments;

use std::io::{self, Write};

use super::output::unwritten;
use super::pickle::Pickle;
use crate::failure::Failure;
use crate::playback::Playback;
use crate::snapshot_file::{SnapshotFile, State};
use frames::{Frames, Who};
use history::History;
use segments::{End, Piece, Segment, write_segments};

/// More devices than any machine has: PyTorch's format has a list for each.
const MOST_DEVICES: u32 = 1024;

/// Writes the logs of one or several devices, in the order of their numbers.
pub(super) fn write_traces(playbacks: &[Playback<'_>], to: &mut impl Write) -> Result<(), Failure> {
    // Where the log does not say, it is the first.
    let ordinal_of = |playback: &Playback<'_>| playback.trace().device_ordinals.first().copied().unwrap_or(0);
    for playback in playbacks {
        require_device(ordinal_of(playback), "log")?;
    }
    let mut pickle = Pickle::begin(to).map_err(unwritten)?;
    begin(&mut pickle).map_err(unwritten)?;
    let (mut ends, mut next) = (Vec::new(), 0);
    for playback in playbacks {
        let ordinal = ordinal_of(playback);
        begin_device(&mut pickle, next, ordinal).map_err(unwritten)?;
        next = ordinal + 1;
        let mut history = History::new(playback.trace(), playback.is_recorded(), pickle);
        playback.run(|step| history.add(&step).map_err(unwritten))?;
        let (written, segments, frames) = history.end();
        pickle = written;
        pickle.end_list().map_err(unwritten)?;
        ends.push(End { ordinal, segments, frames });
    }
    end(&mut pickle, &mut ends).map_err(unwritten)?;
    pickle.end().map_err(unwritten)?;
    Ok(())
}

pub(super) fn write_snapshot(file: &SnapshotFile, to: &mut impl Write) -> Result<(), Failure> {
    let ordinal = file.device.ordinal;
    require_device(ordinal, "snapshot")?;
    let mut pickle = Pickle::begin(to).map_err(unwritten)?;
    begin(&mut pickle).map_err(unwritten)?;
    begin_device(&mut pickle, 0, ordinal).map_err(unwritten)?;
    pickle.end_list().map_err(unwritten)?;
    let segments: Vec<_> = file
        .tiles()
        .map(|(segment, blocks)| {
            let pieces = blocks.iter().filter(|block| block.state == State::Live);
            let pieces = pieces.map(|block| Piece {
                address: block.address,
                bytes: block.bytes,
                requested_bytes: block.bytes,
                who: Who { tag: &block.tag, thread: None },
            });
            Segment { address: segment.address, bytes: segment.bytes, stream: 0, pieces: pieces.collect() }
        })
        .collect();
    let mut ends = [End { ordinal, segments, frames: Frames::default() }];
    end(&mut pickle, &mut ends).map_err(unwritten)?;
    pickle.end().map_err(unwritten)?;
    Ok(())
}

fn require_device(ordinal: u32, what: &str) -> Result<(), Failure> {
    if ordinal >= MOST_DEVICES {
        return Err(Failure::Failed(format!("the {what} is of device {ordinal}: no machine has so many")));
    }
    Ok(())
}

/// Everything before the lists of events, one for each device.
fn begin<W: Write>(pickle: &mut Pickle<W>) -> io::Result<()> {
    pickle.begin_dict()?;
    pickle.string("device_traces")?;
    pickle.begin_list()
}

/// Everything before the events of device `ordinal`: those from `next` on that are not written have none.
fn begin_device<W: Write>(pickle: &mut Pickle<W>, next: u32, ordinal: u32) -> io::Result<()> {
    for _ in next..ordinal {
        pickle.item()?;
        pickle.begin_list()?;
        pickle.end_list()?;
    }
    pickle.item()?;
    pickle.begin_list()
}

/// Everything after the lists of events.
fn end<W: Write>(pickle: &mut Pickle<W>, ends: &mut [End<'_>]) -> io::Result<()> {
    pickle.end_list()?;
    write_segments(pickle, ends)?;
    pickle.string("allocator_settings")?;
    pickle.begin_dict()?;
    pickle.text_entry("allocator", "alluvion")?;
    pickle.string("expandable_segments")?;
    pickle.boolean(false)?;
    pickle.end_dict()?;
    pickle.string("external_annotations")?;
    pickle.begin_list()?;
    pickle.end_list()?;
    pickle.end_dict()
}
