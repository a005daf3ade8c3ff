//! `Picture`: all that a page shows.

use alluvion::Layout;
use alluvion::trace::EventKind;

use super::address_space::{AddressSpace, Region};
use super::holes::Holes;
use super::recording::Recording;

/// The place of a block that is nowhere: the allocation failed, or nobody knows its address.
pub(super) const NOWHERE: u64 = u64::MAX;

/// What a page shows: a log, and where its blocks lay. What the page can work out from this in an instant is left to it.
#[derive(Debug)]
pub(super) struct Picture {
    /// What it is of: the name of a file.
    pub(super) title: String,
    pub(super) origin: Origin,
    /// What whoever looks at it should know.
    pub(super) notes: Vec<String>,
    pub(super) log: Recording,
    /// Of each block, where it is drawn.
    pub(super) places: Vec<u64>,
    /// Blocks are drawn as long as they are, rounded up to this.
    pub(super) unit: u64,
    pub(super) space: AddressSpace,
    /// What was reserved where; the places are those of the picture.
    pub(super) segments: Vec<Segment>,
    /// The steps that changed what was reserved. None if nobody knows.
    pub(super) reserved: Vec<Reserved>,
    pub(super) samples: Vec<Sample>,
    /// After each step, in 65535ths.
    pub(super) fragmentation: Vec<u16>,
    /// Blocks over which another was laid before they were freed.
    pub(super) covered: Vec<Covered>,
}

/// Where addresses and what was reserved come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// From the log. Whether it says what was reserved.
    Recorded { knows_reserved: bool },
    /// From a replay, through the stack with that description.
    Replayed { resource: String },
}

/// A piece that was taken from the source in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// The step that took it.
    pub(super) born: u32,
    /// The step that gave it back, or `u32::MAX`.
    pub(super) died: u32,
}

/// What was reserved after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reserved {
    pub(super) step: u32,
    pub(super) bytes: u64,
}

/// What a suballocator said about itself after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) step: u32,
    pub(super) cached_bytes: u64,
}

/// A block that another was laid over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Covered {
    pub(super) block: u32,
    pub(super) step: u32,
}

/// Where the blocks of a log lay, and what was taken for them.
#[derive(Debug)]
pub(super) struct Laid {
    /// Of each block, where it began, or [`NOWHERE`].
    pub(super) addresses: Vec<u64>,
    /// With addresses. Where there are none they are made up: what the blocks touch, from then on.
    pub(super) segments: Vec<Segment>,
    pub(super) reserved: Vec<Reserved>,
    pub(super) samples: Vec<Sample>,
}

impl Picture {
    /// Draws a log.
    pub(super) fn new(title: String, origin: Origin, notes: Vec<String>, log: Recording, laid: Laid) -> Self {
        let Laid { addresses, mut segments, reserved, samples } = laid;
        let min_align = Layout::MIN_ALIGN as u64;
        let aligned = addresses.iter().all(|at| *at == NOWHERE || at.is_multiple_of(min_align));
        let mut picture = Self {
            title,
            origin,
            notes,
            places: addresses,
            unit: if aligned { min_align } else { 1 },
            space: AddressSpace::default(),
            segments: Vec::new(),
            reserved,
            samples,
            fragmentation: Vec::new(),
            covered: Vec::new(),
            log,
        };
        let ranges: Vec<_> = segments.iter().map(|segment| (segment.address, segment.end())).collect();
        let gap = if segments.is_empty() { GAP } else { 0 };
        picture.space = picture.space_of(ranges, gap);
        // From here on they are places.
        for place in &mut picture.places {
            *place = picture.space.place_of(*place).unwrap_or(NOWHERE);
        }
        if segments.is_empty() {
            segments = picture.touched();
        }
        for segment in &mut segments {
            segment.address = picture.space.place_of(segment.address).unwrap_or(NOWHERE);
        }
        segments.retain(|segment| segment.address != NOWHERE && segment.born != segment.died);
        picture.segments = segments;
        picture.find_holes();
        picture
    }

    /// The given ranges, and all blocks that do not lie in them.
    fn space_of(&self, mut ranges: Vec<(u64, u64)>, gap: u64) -> AddressSpace {
        let held = AddressSpace::of_ranges(ranges.clone(), gap);
        // A log may have as many blocks as events, each somewhere else: what can be joined is joined early.
        let mut most = ranges.len() + MOST_RANGES;
        for (block, &address) in self.places.iter().enumerate() {
            let end = address.saturating_add(self.extent(self.log.bytes.at(block)));
            // A block at the very end of the address space has an end that does not fit, and one byte less.
            let is_new = || held.place_of(address).is_none() || held.place_of(end - 1).is_none();
            if address != NOWHERE && address < end && is_new() {
                ranges.push((address, end));
            }
            if ranges.len() > most {
                let joined = AddressSpace::of_ranges(core::mem::take(&mut ranges), gap).regions;
                ranges =
                    joined.iter().map(|region| (region.address, region.address + region.bytes)).collect();
                most = 2 * ranges.len() + MOST_RANGES;
            }
        }
        AddressSpace::of_ranges(ranges, gap)
    }

    /// How long a block is drawn.
    fn extent(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.unit).unwrap_or(bytes)
    }

    /// Each region, from the step on that touches it first.
    fn touched(&self) -> Vec<Segment> {
        let region = |region: &Region| Segment {
            address: region.address,
            bytes: region.bytes,
            born: u32::MAX,
            died: u32::MAX,
        };
        let regions = &self.space.regions;
        let mut touched: Vec<_> = regions.iter().map(region).collect();
        for (step, event) in self.log.steps().enumerate() {
            let place = self.places[event.block as usize];
            if place != NOWHERE {
                let at = regions.partition_point(|region| region.place <= place) - 1;
                touched[at].born = touched[at].born.min(step as u32);
            }
        }
        touched
    }

    /// Works out what is free between the blocks, and which blocks lie over others.
    fn find_holes(&mut self) {
        let mut holes = Holes::default();
        let (mut births, mut deaths) = (self.segments.clone(), self.segments.clone());
        births.sort_by_key(|segment| segment.born);
        deaths.sort_by_key(|segment| segment.died);
        let (mut births, mut deaths) = (births.into_iter().peekable(), deaths.into_iter().peekable());
        self.fragmentation.reserve_exact(self.log.len());
        for (step, event) in self.log.steps().enumerate() {
            let step = step as u32;
            while let Some(gone) = deaths.next_if(|segment| segment.died <= step) {
                holes.remove_segment(gone.address);
            }
            while let Some(new) = births.next_if(|segment| segment.born <= step) {
                holes.add_segment(new.address, new.bytes);
            }
            let place = self.places[event.block as usize];
            if place != NOWHERE {
                match event.kind {
                    EventKind::Allocate => {
                        let under = holes.take(
                            event.block,
                            place,
                            self.extent(self.log.bytes.at(event.block as usize)),
                        );
                        self.covered.extend(under.into_iter().map(|block| Covered { block, step }));
                    }
                    EventKind::Free => holes.give_back(event.block, place),
                }
            }
            self.fragmentation.push(holes.fragmentation());
        }
    }
}

/// So many ranges are gathered before they are joined: 4 MiB of them.
const MOST_RANGES: usize = 1 << 18;

/// Blocks with no more than this between them are taken to lie in one piece: the unit in which drivers hand out memory.
const GAP: u64 = 2 << 20;

impl Segment {
    fn end(&self) -> u64 {
        self.address.saturating_add(self.bytes)
    }
}
