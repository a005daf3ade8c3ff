//! `History`: what happened, as PyTorch says it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use alluvion::Layout;
use alluvion::trace::Trace;

use super::super::pickle::Pickle;
use super::frames::{Frames, Who};
use super::segments::{Piece, Segment};
use crate::playback::{Step, What};

/// Writes the events of one device, and keeps what there is after them.
#[derive(Debug)]
pub(super) struct History<'t, W> {
    trace: &'t Trace,
    pickle: Pickle<W>,
    frames: Frames<'t>,
    segments: BTreeMap<u64, Taken>,
    /// The blocks that are out, by their addresses.
    live: BTreeMap<u64, Out>,
    /// Where blocks have been, if the segments are not known: ends by beginnings, none overlapping or touching another.
    stretches: Option<BTreeMap<u64, u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Taken {
    bytes: u64,
    stream: u64,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    block: u32,
    bytes: u64,
    stream: u64,
    tag: u32,
    thread: u32,
}

/// Where segments are not known, blocks are taken to come out of pages of so many bytes: those that drivers map.
const PAGE_BYTES: u64 = 2 << 20;

impl<'t, W: Write> History<'t, W> {
    pub(super) fn new(trace: &'t Trace, is_recorded: bool, pickle: Pickle<W>) -> Self {
        Self {
            trace,
            pickle,
            frames: Frames::default(),
            segments: BTreeMap::new(),
            live: BTreeMap::new(),
            stretches: is_recorded.then(BTreeMap::new),
        }
    }

    pub(super) fn add(&mut self, step: &Step) -> io::Result<()> {
        let stream = self.trace.stream_handles[step.stream as usize];
        match step.what {
            What::SegmentTaken { address, bytes } => {
                self.segments.insert(address, Taken { bytes, stream });
                self.event("segment_alloc", address, bytes, stream, step)
            }
            What::SegmentGiven { address, bytes } => {
                self.segments.remove(&address);
                self.event("segment_free", address, bytes, stream, step)
            }
            What::Allocated { block, address, bytes } => {
                self.end_what_overlaps(address, bytes, step)?;
                if let Some(stretches) = &mut self.stretches {
                    stretch(stretches, address, bytes);
                }
                let Step { tag, thread, .. } = *step;
                self.live.insert(address, Out { block, bytes, stream, tag, thread });
                self.event("alloc", address, bytes, stream, step)
            }
            What::Freed { block, address, bytes } => match self.live.get(&address) {
                Some(out) if out.block == block => {
                    self.live.remove(&address);
                    self.free(address, bytes, stream, step)
                }
                // It has gone already, because another came where it was.
                _ => Ok(()),
            },
            What::Failed { bytes } => {
                self.pickle.item()?;
                self.pickle.begin_dict()?;
                self.pickle.text_entry("action", "oom")?;
                // A log does not say, and readers of the format do not do without.
                self.pickle.entry("device_free", 0)?;
                self.rest_of_event(bytes, stream, step)
            }
        }
    }

    /// The end: what writes on, and the segments that there are.
    pub(super) fn end(self) -> (Pickle<W>, Vec<Segment<'t>>, Frames<'t>) {
        let segments: Vec<(u64, Taken)> = match self.stretches {
            None => self.segments.into_iter().collect(),
            Some(stretches) => stretches
                .into_iter()
                .map(|(address, end)| (address, Taken { bytes: end - address, stream: 0 }))
                .collect(),
        };
        let (live, trace) = (&self.live, self.trace);
        let segments = segments.into_iter().map(|(address, Taken { bytes, stream })| {
            let end = address + bytes;
            Segment { address, bytes, stream, pieces: pieces(trace, live, address, end) }
        });
        (self.pickle, segments.collect(), self.frames)
    }

    /// A block comes where others are that the log has no free of: they are gone, or the viewer would draw one over another.
    fn end_what_overlaps(&mut self, address: u64, bytes: u64, step: &Step) -> io::Result<()> {
        let end = address.saturating_add(bytes);
        while let Some((&at, &out)) = self.live.range(..end).next_back() {
            if at.saturating_add(out.bytes) <= address {
                break;
            }
            self.live.remove(&at);
            let (tag, thread) = (out.tag, out.thread);
            self.free(at, out.bytes, out.stream, &Step { tag, thread, ..*step })?;
        }
        Ok(())
    }

    /// PyTorch tells when a block is given back and when its memory may be used again. Here the pool knows what it may use.
    fn free(&mut self, address: u64, bytes: u64, stream: u64, step: &Step) -> io::Result<()> {
        self.event("free_requested", address, bytes, stream, step)?;
        self.event("free_completed", address, bytes, stream, step)
    }

    fn event(&mut self, action: &str, address: u64, bytes: u64, stream: u64, step: &Step) -> io::Result<()> {
        self.pickle.item()?;
        self.pickle.begin_dict()?;
        self.pickle.text_entry("action", action)?;
        self.pickle.entry("addr", address)?;
        self.rest_of_event(bytes, stream, step)
    }

    fn rest_of_event(&mut self, bytes: u64, stream: u64, step: &Step) -> io::Result<()> {
        self.pickle.entry("size", bytes)?;
        self.pickle.entry("stream", stream)?;
        self.pickle.entry("time_us", step.microseconds)?;
        self.frames.write(&mut self.pickle, who(self.trace, step.tag, step.thread))?;
        self.pickle.end_dict()
    }
}

fn who(trace: &Trace, tag: u32, thread: u32) -> Who<'_> {
    Who { tag: &trace.tags[tag as usize], thread: Some(trace.thread_numbers[thread as usize]) }
}

/// The blocks between two addresses: each as long as a pool makes it at least, if there is room.
fn pieces<'t>(trace: &'t Trace, live: &BTreeMap<u64, Out>, from: u64, end: u64) -> Vec<Piece<'t>> {
    let mut pieces: Vec<Piece<'_>> = live
        .range(from..end)
        .map(|(&address, out)| Piece {
            address,
            bytes: out.bytes.next_multiple_of(Layout::MIN_ALIGN as u64),
            requested_bytes: out.bytes,
            who: who(trace, out.tag, out.thread),
        })
        .collect();
    let mut next = end;
    for piece in pieces.iter_mut().rev() {
        piece.bytes = piece.bytes.min(next - piece.address);
        piece.requested_bytes = piece.requested_bytes.min(piece.bytes);
        next = piece.address;
    }
    pieces
}

/// Adds the pages that a block is on.
fn stretch(stretches: &mut BTreeMap<u64, u64>, address: u64, bytes: u64) {
    let mut from = address / PAGE_BYTES * PAGE_BYTES;
    let mut end = address.saturating_add(bytes).checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
    while let Some((&other, &other_end)) = stretches.range(..=end).next_back() {
        if other_end < from {
            break;
        }
        if other <= from && end <= other_end {
            return;
        }
        stretches.remove(&other);
        from = from.min(other);
        end = end.max(other_end);
    }
    stretches.insert(from, end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_touch_are_one_stretch() {
        const MIB: u64 = 1 << 20;
        let mut stretches = BTreeMap::new();
        for (address, bytes) in
            [(9 * MIB, 1), (MIB, 512), (3 * MIB, 4 * MIB), (u64::MAX - 5, 5), (100 * MIB, 1)]
        {
            stretch(&mut stretches, address, bytes);
        }
        let top = u64::MAX / (2 * MIB) * (2 * MIB);
        let found: Vec<_> = stretches.into_iter().collect();
        assert_eq!(found, [(0, 10 * MIB), (100 * MIB, 102 * MIB), (top, u64::MAX)]);
    }
}
