//! The segments as they are in the end, each with the blocks that tile it.

use std::io::{self, Write};

use super::super::pickle::Pickle;
use super::frames::{Frames, Who};

/// What was taken from the upstream in one piece, and what is out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment<'a> {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The handle of the stream that it was taken for.
    pub(super) stream: u64,
    /// The blocks that are out, in the order of their addresses. None overlaps another, or an end of the segment.
    pub(super) pieces: Vec<Piece<'a>>,
}

/// A block that is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) address: u64,
    pub(super) bytes: u64,
    pub(super) requested_bytes: u64,
    pub(super) who: Who<'a>,
}

/// What there is on one device in the end.
#[derive(Debug)]
pub(super) struct End<'a> {
    pub(super) ordinal: u32,
    pub(super) segments: Vec<Segment<'a>>,
    /// Those that its events have.
    pub(super) frames: Frames<'a>,
}

/// Writes the segments of all devices: one list, in which each names its device.
pub(super) fn write_segments<W: Write>(pickle: &mut Pickle<W>, ends: &mut [End<'_>]) -> io::Result<()> {
    pickle.string("segments")?;
    pickle.begin_list()?;
    for End { ordinal, segments, frames } in ends {
        for segment in segments {
            pickle.item()?;
            write_segment(pickle, *ordinal, segment, frames)?;
        }
    }
    pickle.end_list()
}

fn write_segment<'a, W: Write>(
    pickle: &mut Pickle<W>,
    ordinal: u32,
    segment: &Segment<'a>,
    frames: &mut Frames<'a>,
) -> io::Result<()> {
    let out: u64 = segment.pieces.iter().map(|piece| piece.bytes).sum();
    let requested: u64 = segment.pieces.iter().map(|piece| piece.requested_bytes).sum();
    pickle.begin_dict()?;
    pickle.entry("device", u64::from(ordinal))?;
    pickle.entry("address", segment.address)?;
    pickle.entry("total_size", segment.bytes)?;
    pickle.entry("allocated_size", out)?;
    pickle.entry("active_size", out)?;
    pickle.entry("requested_size", requested)?;
    pickle.entry("stream", segment.stream)?;
    pickle.text_entry("segment_type", "large")?;
    pickle.string("segment_pool_id")?;
    pickle.no_pool()?;
    pickle.string("is_expandable")?;
    pickle.boolean(false)?;
    pickle.string("frames")?;
    pickle.begin_list()?;
    pickle.end_list()?;
    pickle.string("blocks")?;
    pickle.begin_list()?;
    let mut at = segment.address;
    for piece in &segment.pieces {
        write_free(pickle, at, piece.address - at)?;
        pickle.item()?;
        pickle.begin_dict()?;
        pickle.entry("address", piece.address)?;
        pickle.entry("size", piece.bytes)?;
        pickle.entry("requested_size", piece.requested_bytes)?;
        pickle.text_entry("state", "active_allocated")?;
        frames.write(pickle, piece.who)?;
        pickle.end_dict()?;
        at = piece.address + piece.bytes;
    }
    write_free(pickle, at, segment.address + segment.bytes - at)?;
    pickle.end_list()?;
    pickle.end_dict()
}

/// A free piece. What is freed but not yet over everywhere is `inactive` to PyTorch too: it belongs to a stream, and that may
/// take it.
fn write_free<W: Write>(pickle: &mut Pickle<W>, address: u64, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    pickle.item()?;
    pickle.begin_dict()?;
    pickle.entry("address", address)?;
    pickle.entry("size", bytes)?;
    pickle.entry("requested_size", 0)?;
    pickle.text_entry("state", "inactive")?;
    pickle.string("frames")?;
    pickle.begin_list()?;
    pickle.end_list()?;
    pickle.end_dict()
}
