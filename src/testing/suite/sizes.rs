//! Sizes, alignments, and where blocks lie.

use super::super::Bench;
use super::super::block::{Block, layout_of};
use crate::device::Device;
use crate::error::ErrorKind;
use crate::resource::{DeviceAccessible, Layout, Resource};

/// Around each boundary that an allocator rounds at: a byte, a unit, a small and a large page.
const SIZES: [usize; 14] = [
    1,
    255,
    256,
    257,
    4095,
    4096,
    4097,
    65_535,
    65_537,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 1,
    (2 << 20) - 1,
    (2 << 20) + 1,
];

/// Zero bytes give an aligned address that is not null, reach no driver, and free as nothing.
#[track_caller]
pub fn zero_bytes_reach_nobody<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let stream = bench.stream();
    let before = bench.simulated().map(|sim| sim.calls());
    for align in [1, 2, Layout::MIN_ALIGN, resource.max_align()] {
        let layout = Layout::new(0, align).expect("zero bytes fit at any power of two");
        let stream_ordered =
            Block::allocate(&resource, layout, stream.as_ref()).expect("zero bytes are served");
        let synchronous = Block::allocate_sync(&resource, layout).expect("zero bytes are served");
        for block in [&stream_ordered, &synchronous] {
            assert!(block.pointer.is_aligned_to(layout.block_align()), "{} for {layout:?}", block.pointer);
        }
        stream_ordered.free(stream.as_ref());
        synchronous.free_sync();
    }
    if let (Some(sim), Some(before)) = (bench.simulated(), before) {
        let made = sim.calls() - before;
        assert_eq!(made.total(), 0, "zero bytes reached the driver: {made:?}");
    }
    bench.check();
}

/// Every alignment up to [`Resource::max_align`] is honoured, by no less than 256; every larger one is refused.
#[track_caller]
pub fn alignments_are_honoured_or_refused<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    // Larger ones cost memory that a small device has not; they are honoured by the same arithmetic.
    const LARGEST: usize = 2 << 20;
    let resource = make(&bench.device());
    let stream = bench.stream();
    let max_align = resource.max_align();
    assert!(
        max_align.is_power_of_two() && max_align >= Layout::MIN_ALIGN,
        "the largest alignment is {max_align}"
    );
    let mut blocks = Vec::new();
    let mut align = 1;
    while align <= max_align.min(bench.at_most(LARGEST)) {
        for bytes in [1, align, align + 1].map(|bytes| bench.at_most(bytes)) {
            let layout = Layout::new(bytes, align).expect("small sizes fit");
            let block = Block::allocate(&resource, layout, stream.as_ref())
                .unwrap_or_else(|error| panic!("{layout:?} is refused: {error}"));
            assert!(block.pointer.is_aligned_to(layout.block_align()), "{} for {layout:?}", block.pointer);
            blocks.push(block);
        }
        align *= 2;
    }
    for block in blocks {
        block.free(stream.as_ref());
    }
    let mut align = max_align;
    while let Some(larger) = align.checked_mul(2) {
        align = larger;
        let Ok(layout) = Layout::new(1, align) else { break };
        for refused in [resource.allocate(layout, stream.as_ref()), resource.allocate_sync(layout)] {
            let error = refused.expect_err("an alignment above the largest is refused");
            assert_eq!(error.kind(), ErrorKind::UnsupportedAlignment, "{error}");
            assert_eq!(error.limit(), Some(max_align), "the error names the largest alignment: {error}");
        }
    }
    bench.check();
}

/// No two live blocks overlap, also after some in between were freed.
#[track_caller]
pub fn blocks_are_disjoint<R: Resource>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let stream = bench.stream();
    let mut blocks = Vec::new();
    for round in 0..3 {
        for bytes in SIZES.map(|bytes| bench.at_most(bytes)) {
            blocks.push(Block::of(&resource, bytes, stream.as_ref()));
        }
        assert_disjoint(&blocks);
        let mut index = 0;
        let (free, keep): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|_| {
            index += 1;
            (index + round) % 2 == 0
        });
        free.into_iter().for_each(|block| block.free(stream.as_ref()));
        blocks = keep;
    }
    blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    bench.check();
}

#[track_caller]
fn assert_disjoint<R: Resource>(blocks: &[Block<'_, R>]) {
    let mut ranges: Vec<_> = blocks.iter().map(Block::range).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "two live blocks overlap: {:#x?} and {:#x?}", pair[0], pair[1]);
    }
}

/// Blocks of every size hold, over their whole length, what was written, while all of them are live.
#[track_caller]
pub fn blocks_hold_what_is_written<R: DeviceAccessible>(bench: &Bench, make: impl Fn(&Device) -> R) {
    let resource = make(&bench.device());
    let stream = bench.stream();
    let blocks: Vec<_> = SIZES
        .into_iter()
        .zip(0xA0B1_C200..)
        .map(|(bytes, word)| {
            let block = Block::of(&resource, bench.at_most(bytes), stream.as_ref());
            block.fill(word, stream.as_ref());
            (block, word)
        })
        .collect();
    for (block, word) in blocks {
        block.check(word, stream.as_ref());
        block.free(stream.as_ref());
    }
    let layout = layout_of(bench.at_most(1 << 20));
    let block = Block::allocate_sync(&resource, layout).expect("a synchronous allocation succeeds");
    block.fill(0x5EED, stream.as_ref());
    block.check(0x5EED, stream.as_ref());
    block.free_sync();
    bench.check();
}
