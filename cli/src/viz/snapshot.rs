//! A snapshot: every block at one moment.

use std::collections::HashMap;
use std::path::Path;

use super::address_space::AddressSpace;
use crate::snapshot_file::{Device, SnapshotFile, State, Status};

/// What a page shows of a snapshot.
#[derive(Debug)]
pub(super) struct Still {
    pub(super) title: String,
    pub(super) notes: Vec<String>,
    pub(super) unix_microseconds: u64,
    pub(super) device: Device,
    pub(super) status: Status,
    pub(super) space: AddressSpace,
    /// Where each segment is drawn, and how long it is.
    pub(super) segments: Vec<(u64, u64)>,
    /// Of each block.
    pub(super) places: Vec<u64>,
    pub(super) bytes: Vec<u64>,
    /// 0 live, 1 cached, 2 pending, 3 free.
    pub(super) states: Vec<u32>,
    /// Of each block, the place of its tag in `tag_names`. The first is empty: nobody said.
    pub(super) tags: Vec<u32>,
    pub(super) tag_names: Vec<String>,
    /// Of each block, the place of its stream in `stream_names`. The first is empty: none has to do with it.
    pub(super) streams: Vec<u32>,
    pub(super) stream_names: Vec<String>,
}

/// Draws a snapshot.
pub(super) fn draw(path: &Path, snapshot: SnapshotFile) -> Still {
    let SnapshotFile { unix_microseconds, device, status, out_of_memory, segments, blocks } = snapshot;
    let ranges = segments.iter().map(|segment| (segment.address, segment.address + segment.bytes));
    let space = AddressSpace::of_ranges(ranges.collect(), 0);
    // Blocks tile the segments, so each has a place.
    let place = |address| space.place_of(address).unwrap_or_default();
    let notes = out_of_memory.into_iter().map(|report| format!("Memory had run out: {}", report.message));
    let (mut tags, mut streams) = (Names::new(), Names::new());
    Still {
        title: super::name_of(path),
        notes: notes.collect(),
        unix_microseconds,
        device,
        status,
        segments: segments.iter().map(|segment| (place(segment.address), segment.bytes)).collect(),
        places: blocks.iter().map(|block| place(block.address)).collect(),
        bytes: blocks.iter().map(|block| block.bytes).collect(),
        states: blocks.iter().map(|block| number_of(&block.state)).collect(),
        tags: blocks.iter().map(|block| tags.number(&block.tag)).collect(),
        streams: blocks
            .iter()
            .map(|block| streams.number(block.state.stream().unwrap_or_default()))
            .collect(),
        tag_names: tags.names,
        stream_names: streams.names,
        space,
    }
}

fn number_of(state: &State) -> u32 {
    match state {
        State::Live => 0,
        State::Cached(_) => 1,
        State::Pending { .. } => 2,
        State::Free => 3,
    }
}

/// Names, numbered as they come. The first is empty.
#[derive(Debug)]
struct Names {
    names: Vec<String>,
    known: HashMap<String, u32>,
}

impl Names {
    fn new() -> Self {
        Self { names: vec![String::new()], known: HashMap::from([(String::new(), 0)]) }
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.known.get(name) {
            return number;
        }
        // A file has fewer names than bytes, and no reader takes in 2^32 blocks.
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        self.known.insert(name.to_owned(), number);
        number
    }
}
