//! The books of a pool, its status and its snapshot, against what the program knows.

use std::collections::BTreeSet;

use alluvion::suballoc::{BlockState, BlockView, Snapshot};
use alluvion::{DevicePtr, Layout, Pool, Resource};

use super::Live;

/// What a pool may hand out for a request: whole units, and a class of a cache, of which there are eight for each doubling.
pub(crate) fn at_most(layout: Layout) -> usize {
    layout.rounded_bytes() + layout.rounded_bytes() / 4
}

/// Fails if the books are wrong. No other thread uses the pool now.
#[track_caller]
pub(crate) fn agree<U: Resource>(pool: &Pool<U>, live: &[Live], maximum: usize) {
    let (status, snapshot) = (pool.status(), pool.snapshot());
    let live: Vec<(DevicePtr, Layout)> = live
        .iter()
        .map(|live| (live.pointer, live.layout))
        .filter(|(_, layout)| !layout.is_empty())
        .collect();
    let asked: usize = live.iter().map(|(_, layout)| layout.rounded_bytes()).sum();
    let bound: usize = live.iter().map(|(_, layout)| at_most(*layout)).sum();
    let words = || format!("{status:?}, {} live of {asked} bytes", live.len());

    assert_eq!(status.live_blocks, live.len(), "{}", words());
    assert!((asked..=bound).contains(&status.live_bytes), "not in {asked}..={bound}: {}", words());
    let kept = status.live_bytes + status.free_bytes + status.cached_bytes;
    assert_eq!(status.reserved_bytes, kept, "{}", words());
    assert!(status.pending_bytes <= status.free_bytes + status.cached_bytes, "{}", words());
    assert!(status.largest_free_bytes <= status.free_bytes, "{}", words());
    assert!(status.peak_reserved_bytes >= status.reserved_bytes, "{}", words());
    assert!(status.reserved_bytes <= maximum, "of at most {maximum}: {}", words());
    assert_eq!(pool.pool_size(), status.reserved_bytes);
    assert!((0.0..=1.0).contains(&status.fragmentation()), "{}", words());

    tiles(&snapshot);
    let sum = |which: fn(BlockState) -> bool| -> usize {
        snapshot.blocks.iter().filter(|block| which(block.state)).map(|block| block.bytes).sum()
    };
    let segments: usize = snapshot.segments.iter().map(|segment| segment.bytes).sum();
    assert_eq!(segments, status.reserved_bytes, "{}", words());
    assert_eq!(sum(|state| state == BlockState::Live), status.live_bytes, "{}", words());
    assert_eq!(sum(|state| matches!(state, BlockState::Cached(_))), status.cached_bytes, "{}", words());
    let is_free = |state| matches!(state, BlockState::Pending(_) | BlockState::Free);
    assert_eq!(sum(is_free), status.free_bytes, "{}", words());
    let largest = snapshot.blocks.iter().filter(|block| is_free(block.state)).map(|block| block.bytes).max();
    assert_eq!(largest.unwrap_or(0), status.largest_free_bytes, "{}", words());

    // Each live block is one of the snapshot, at its address.
    for (pointer, layout) in &live {
        let at = snapshot.blocks.binary_search_by_key(pointer, |block| block.address);
        let block = at.map(|at| snapshot.blocks[at]);
        let fits = block.is_ok_and(|block| block.state == BlockState::Live && block.bytes >= layout.bytes());
        assert!(fits, "{} bytes at {pointer} are {block:?} in the snapshot", layout.bytes());
    }
}

/// Blocks lie side by side, from the first byte of each segment to its last, and what is free beside its like is one.
#[track_caller]
fn tiles(snapshot: &Snapshot) {
    let mut blocks = snapshot.blocks.iter().peekable();
    let mut end = 0;
    for segment in &snapshot.segments {
        assert!(segment.address.address() >= end, "segments are in order, and apart: {segment:?}");
        end = segment.address.address() + segment.bytes as u64;
        let mut at = segment.address.address();
        let mut before = None;
        while at < end {
            let block = blocks.next().expect("blocks fill their segments");
            assert_eq!(block.address.address(), at, "a gap or an overlap before {block:?} in {segment:?}");
            assert!(block.bytes > 0 && block.bytes.is_multiple_of(Layout::MIN_ALIGN), "{block:?}");
            let alike = match (before, block.state) {
                (Some(BlockState::Pending(one)), BlockState::Pending(other)) => {
                    one.stream() == other.stream()
                }
                _ => false,
            };
            assert!(!alike, "two free neighbours of one stream were not merged, the second is {block:?}");
            before = Some(block.state);
            at += block.bytes as u64;
        }
        assert_eq!(at, end, "a block reaches beyond {segment:?}");
    }
    assert_eq!(blocks.next(), None, "a block is in no segment");
}

/// Fails if a request was refused that could have been served: by a piece of a segment in which nothing is live, or by a new
/// segment once those that are idle have gone back. No other thread uses the pool now, and no stream captures.
#[track_caller]
pub(crate) fn refusal_is_due<U: Resource>(
    pool: &Pool<U>,
    layout: Layout,
    maximum: usize,
    free_on_device: usize,
) {
    let exact = layout.rounded_bytes();
    // The longest block of a class that serves it, and what its alignment may cost.
    let classed = if exact <= 1 << 20 { exact + exact / 8 } else { exact };
    let needed = classed + layout.block_align() - Layout::MIN_ALIGN;
    let snapshot = pool.snapshot();
    let words = || format!("{needed} bytes for {layout:?}: {:?}", pool.status());
    let mut idle = 0;
    for segment in &snapshot.segments {
        let (start, end) = (segment.address.address(), segment.address.address() + segment.bytes as u64);
        let inside = |block: &&BlockView| (start..end).contains(&block.address.address());
        let (mut run, mut is_idle) = (0, true);
        for block in snapshot.blocks.iter().filter(inside) {
            let is_live = block.state == BlockState::Live;
            run = if is_live { 0 } else { run + block.bytes };
            is_idle &= !is_live;
            assert!(run < needed, "{run} bytes side by side are not live, and were refused: {}", words());
        }
        idle += if is_idle { segment.bytes } else { 0 };
    }
    // Where memory is in pages, those that no live block touches are idle, and the need is whole pages.
    let unit = pool.upstream().pages().map_or(1, |pages| pages.page_bytes());
    if unit > 1 {
        let live = snapshot.blocks.iter().filter(|block| block.state == BlockState::Live);
        let pages = live.flat_map(|block| {
            let start = block.address.address() as usize;
            start / unit..(start + block.bytes).div_ceil(unit)
        });
        idle = pool.pool_size() - unit * pages.collect::<BTreeSet<_>>().len();
    }
    let (needed, maximum) = (needed.next_multiple_of(unit), maximum / unit * unit);
    let kept = pool.pool_size() - idle;
    let room = kept + needed <= maximum && needed <= free_on_device / unit * unit + idle;
    assert!(!room, "{idle} bytes are idle, {free_on_device} free on the device: {}", words());
}
