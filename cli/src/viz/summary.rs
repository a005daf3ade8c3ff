//! `Summary`: what the page of several devices says of each before it is opened.

use alluvion::Layout;
use alluvion::trace::EventKind;
use serde::Serialize;

use super::picture::{NOWHERE, Origin, Picture};

/// When something happens on any of the devices: in microseconds since midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
}

/// The figures of one device, and a small curve of what was live.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    pub(super) ordinal: u32,
    events: usize,
    blocks: u32,
    /// Allocations that failed in the log or in the replay.
    failures: usize,
    peak_live: u64,
    /// `None` if nobody knows.
    peak_reserved: Option<u64>,
    /// The most that was live in each part of the time in which anything happens anywhere.
    curve: Vec<u64>,
    /// How many pieces the data of the device are cut into.
    pieces: usize,
}

/// Into so many parts the time is cut: about the pixels that the curve is wide.
const PARTS: usize = 120;

impl Summary {
    pub(super) fn of(picture: &Picture, ordinal: u32, span: Span) -> Self {
        let log = &picture.log;
        let is_replayed = matches!(picture.origin, Origin::Replayed { .. });
        let lost = |place: &&u64| is_replayed && **place == NOWHERE;
        let knows_reserved = picture.origin != Origin::Recorded { knows_reserved: false };
        let reserved = picture.reserved.iter().map(|reserved| reserved.bytes).max().unwrap_or(0);
        let (curve, peak_live) = curve(picture, span, is_replayed);
        Self {
            ordinal,
            events: log.len(),
            blocks: log.rest.blocks,
            failures: log.rest.refusals.len() + picture.places.iter().filter(lost).count(),
            peak_live,
            peak_reserved: knows_reserved.then_some(reserved),
            curve,
            pieces: 0,
        }
    }

    pub(super) fn in_pieces(self, pieces: usize) -> Self {
        Self { pieces, ..self }
    }
}

/// The most that was live in each part of the time, and ever. What failed in a replay was never there.
fn curve(picture: &Picture, span: Span, is_replayed: bool) -> (Vec<u64>, u64) {
    let log = &picture.log;
    let part_of = |microseconds: u64| {
        let since = u128::from(microseconds.saturating_sub(span.from));
        let whole = u128::from(span.to.saturating_sub(span.from)) + 1;
        ((since * PARTS as u128 / whole) as usize).min(PARTS - 1)
    };
    let (mut curve, mut at) = (vec![0_u64; PARTS], 0);
    let (mut now, mut live, mut peak) = (log.first_microseconds, 0_u64, 0);
    for (step, event) in log.steps().enumerate() {
        now += log.microseconds.at(step);
        let part = part_of(now);
        curve[(at + 1).min(part)..=part].iter_mut().for_each(|most| *most = live.max(*most));
        at = at.max(part);
        let block = event.block as usize;
        if is_replayed && picture.places[block] == NOWHERE {
            continue;
        }
        let bytes = log.bytes.at(block).next_multiple_of(Layout::MIN_ALIGN as u64);
        live = match event.kind {
            EventKind::Allocate => live.saturating_add(bytes),
            EventKind::Free => live.saturating_sub(bytes),
        };
        curve[part] = curve[part].max(live);
        peak = peak.max(live);
    }
    curve[at + 1..].fill(live);
    (curve, peak)
}
