//! `SnapshotFile`: the state of a suballocator at one moment, from a file.
//!
//! docs/snapshot-format.md says what is in it. What is read is believed only if it fits together: the blocks tile the segments.

mod written;

use std::io::Read;

pub(crate) use written::{Device, Report, Status};
use written::{Written, WrittenBlock, WrittenSegment};

/// The only version of the format that there is.
const VERSION: u32 = 1;

/// The state of a suballocator at one moment.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SnapshotFile {
    /// Since 1970, UTC.
    pub(crate) unix_microseconds: u64,
    pub(crate) device: Device,
    pub(crate) status: Status,
    /// Of the request that failed, if memory had run out.
    pub(crate) out_of_memory: Option<Report>,
    /// In the order of their addresses.
    pub(crate) segments: Vec<Segment>,
    /// In the order of their addresses. They tile the segments.
    pub(crate) blocks: Vec<Block>,
}

/// What was taken from the upstream in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// A piece of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) state: State,
    /// Names from the outermost scope on, with semicolons between them. Empty where nobody said.
    pub(crate) tag: String,
}

/// Who has a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is out.
    Live,
    /// It is free, in the cache of a stream, or in that of synchronous calls.
    Cached(Option<String>),
    /// It is free, behind a point of a stream.
    Pending { stream: String, epoch: u64 },
    /// It is free for anybody.
    Free,
}

impl State {
    /// What the file calls it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Cached(_) => "cached",
            Self::Pending { .. } => "pending",
            Self::Free => "free",
        }
    }

    /// The stream that has something to do with it.
    pub(crate) fn stream(&self) -> Option<&str> {
        match self {
            Self::Cached(stream) => stream.as_deref(),
            Self::Pending { stream, .. } => Some(stream),
            Self::Live | Self::Free => None,
        }
    }
}

impl SnapshotFile {
    /// Reads it, and sees whether it fits together.
    pub(crate) fn read(mut text: impl Read) -> Result<Self, String> {
        // All at once: the parser takes four times as long for a byte at a time.
        let mut bytes = Vec::new();
        text.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        let written: Written =
            serde_json::from_slice(&bytes).map_err(|error| format!("it is no snapshot: {error}"))?;
        let Written { format, version, unix_microseconds, device, status, out_of_memory, segments, blocks } =
            written;
        if format != "alluvion-snapshot" {
            return Err(format!("its format is `{}` and not `alluvion-snapshot`", shown(&format)));
        }
        if version != VERSION {
            return Err(format!("its version is {version}, and this program knows {VERSION}"));
        }
        let segments = segments.iter().map(segment).collect::<Result<Vec<_>, _>>()?;
        let blocks = blocks.into_iter().map(block).collect::<Result<Vec<_>, _>>()?;
        check_segments(&segments)?;
        check_tiles(&segments, &blocks)?;
        Ok(Self { unix_microseconds, device, status, out_of_memory, segments, blocks })
    }

    /// Each segment with its blocks.
    pub(crate) fn tiles(&self) -> impl Iterator<Item = (Segment, &[Block])> {
        let mut rest = &self.blocks[..];
        self.segments.iter().map(move |&segment| {
            let end = segment.address + segment.bytes;
            let (here, after) = rest.split_at(rest.partition_point(|block| block.address < end));
            rest = after;
            (segment, here)
        })
    }
}

fn segment(written: &WrittenSegment) -> Result<Segment, String> {
    let address = address_of(&written.address, "a segment")?;
    Ok(Segment { address, bytes: written.bytes })
}

fn block(written: WrittenBlock) -> Result<Block, String> {
    let WrittenBlock { address, bytes, state, stream, epoch, tag } = written;
    let place = shown(&address);
    let address = address_of(&address, "a block")?;
    let state = match (&*state, stream, epoch) {
        ("live", None, None) => State::Live,
        ("free", None, None) => State::Free,
        ("cached", stream, None) => State::Cached(stream),
        ("pending", Some(stream), Some(epoch)) => State::Pending { stream, epoch },
        ("pending", ..) => {
            return Err(format!("the block at {place} is pending without a stream and an epoch"));
        }
        ("live" | "free" | "cached", ..) => {
            return Err(format!("the block at {place} is {state}, and such have no stream or no epoch"));
        }
        _ => {
            let state = shown(&state);
            return Err(format!("the block at {place} is `{state}`: no live, cached, pending or free one"));
        }
    };
    Ok(Block { address, bytes, state, tag: tag.unwrap_or_default() })
}

/// Checks that segments follow each other, and none is empty.
fn check_segments(segments: &[Segment]) -> Result<(), String> {
    let mut end = 0;
    for &Segment { address, bytes } in segments {
        if bytes == 0 {
            return Err(format!("the segment at {address:#x} is empty"));
        }
        if address < end {
            return Err(format!("the segment at {address:#x} begins before the one before it ends"));
        }
        end = address
            .checked_add(bytes)
            .ok_or_else(|| format!("the segment at {address:#x} ends beyond all addresses"))?;
    }
    Ok(())
}

/// Checks that the blocks tile the segments: in order, without gaps, none across an end.
fn check_tiles(segments: &[Segment], blocks: &[Block]) -> Result<(), String> {
    let mut blocks = blocks.iter();
    for segment in segments {
        let end = segment.address + segment.bytes;
        let mut at = segment.address;
        while at < end {
            let Some(block) = blocks.next() else {
                return Err(format!("no block is at {at:#x}, in the segment at {:#x}", segment.address));
            };
            if block.address != at {
                return Err(format!("a block is at {:#x} where one should be at {at:#x}", block.address));
            }
            if block.bytes == 0 || block.bytes > end - at {
                return Err(format!(
                    "the block at {at:#x} has {} bytes, in a segment that has {} from there on",
                    block.bytes,
                    end - at
                ));
            }
            at += block.bytes;
        }
    }
    match blocks.next() {
        Some(block) => Err(format!("the block at {:#x} is in no segment", block.address)),
        None => Ok(()),
    }
}

/// `0x302000000`
fn address_of(text: &str, whose: &str) -> Result<u64, String> {
    text.strip_prefix("0x")
        .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or_else(|| {
            format!("the address of {whose} is `{}` and not 0x and sixteen digits at most", shown(text))
        })
}

/// As much of a text as fits on a line.
fn shown(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests;
