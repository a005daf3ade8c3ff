//! Checks requests that exceed the memory.

use super::super::Bench;
use super::super::block::{Block, layout_of};
use crate::device::Device;
use crate::error::Error;
use crate::resource::{DeviceAccessible, Layout, Resource};

/// Sizes that no machine has are refused as out of memory, with the size, and leave the resource as it was.
#[track_caller]
pub fn absurd_sizes_are_out_of_memory<R: DeviceAccessible>(bench: &Bench, make: impl Fn(&Device) -> R) {
    const PEBIBYTE: usize = 1 << 50;
    let resource = make(&bench.device());
    let stream = bench.stream();
    let kept = Block::of(&resource, bench.at_most(4096), stream.as_ref());
    kept.fill(0xCAFE, stream.as_ref());
    for bytes in [PEBIBYTE, isize::MAX as usize / 2, isize::MAX as usize - 255] {
        let layout = layout_of(bytes);
        for refused in [resource.allocate(layout, stream.as_ref()), resource.allocate_sync(layout)] {
            let error = refused.expect_err("no machine has so much");
            assert_refused_for_lack(&error, layout);
        }
    }
    let block = Block::of(&resource, bench.at_most(4096), stream.as_ref());
    block.fill(0xBEEF, stream.as_ref());
    block.check(0xBEEF, stream.as_ref());
    kept.check(0xCAFE, stream.as_ref());
    block.free(stream.as_ref());
    kept.free(stream.as_ref());
    bench.check();
}

#[track_caller]
fn assert_refused_for_lack(error: &Error, layout: Layout) {
    assert!(
        error.is_out_of_memory(),
        "{} bytes are refused, but not as out of memory: {error}",
        layout.bytes()
    );
    assert!(error.requested_bytes() >= Some(layout.bytes()), "the error names the size: {error:?}");
}

/// Takes all that there is.
#[track_caller]
fn exhaust<'r, R: Resource>(
    bench: &Bench,
    mut allocate: impl FnMut(Layout) -> Result<Block<'r, R>, Error>,
) -> Vec<Block<'r, R>> {
    let layout = layout_of(bench.exhaustion_bytes());
    // A bench holds sixteen such blocks; a resource whose blocks are small and many may hold more.
    const ENOUGH: usize = 1 << 20;
    let mut blocks = Vec::new();
    while blocks.len() < ENOUGH {
        match allocate(layout) {
            Ok(block) => blocks.push(block),
            Err(error) => {
                assert_refused_for_lack(&error, layout);
                return blocks;
            }
        }
    }
    panic!("{ENOUGH} blocks of {} bytes were served: there is no limit", layout.bytes());
}

/// Allocating until it is refused takes nothing away: after everything is freed, as much can be had again.
#[track_caller]
pub fn exhaustion_is_not_the_end<R: DeviceAccessible>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let stream = bench.stream();
    let mut counts = Vec::new();
    for _ in 0..3 {
        let blocks = exhaust(bench, |layout| Block::allocate(&resource, layout, stream.as_ref()));
        assert!(!blocks.is_empty(), "not one block of {} bytes was served", bench.exhaustion_bytes());
        counts.push(blocks.len());
        blocks.iter().take(1).for_each(|block| block.fill(7, stream.as_ref()));
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    }
    assert!(
        counts[1..].iter().all(|&count| count >= counts[0]),
        "it serves less each time: {counts:?} blocks"
    );
    bench.check();
}

/// What is freed synchronously is free when the call returns: as much can be had again at once.
#[track_caller]
pub fn freeing_synchronously_really_frees<R: DeviceAccessible>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    // First, because a suballocator may keep all memory of the device afterwards, and the driver needs some for a stream.
    let stream = bench.stream();
    let mut counts = Vec::new();
    for _ in 0..3 {
        let blocks = exhaust(bench, |layout| Block::allocate_sync(&resource, layout));
        counts.push(blocks.len());
        blocks.into_iter().for_each(Block::free_sync);
    }
    assert!(counts[0] > 0 && counts.iter().all(|&count| count >= counts[0]), "blocks served: {counts:?}");
    let again = exhaust(bench, |layout| Block::allocate(&resource, layout, stream.as_ref()));
    assert!(again.len() >= counts[0], "{} blocks were served to a stream, {} before", again.len(), counts[0]);
    again.into_iter().for_each(|block| block.free(stream.as_ref()));
    bench.check();
}
