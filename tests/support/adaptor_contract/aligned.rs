//! Alignment: of every size, by over-allocation and without.

use alluvion::adaptor::AlignedConfig;
use alluvion::source::Cuda;
use alluvion::testing::{Bench, Shadow};
use alluvion::{DeviceAccessible, Layout, PoolConfig, ResourceExt};

use crate::raw_block::Held;

const SIZES: [usize; 8] = [1, 255, 256, 4095, 4097, 65_537, 1 << 20, (2 << 20) - 1];

/// Blocks of each size and alignment, both ways, all live at once: aligned, apart, and each as long as it says.
fn every_size<R: DeviceAccessible>(bench: &Bench, resource: &R, align_of: impl Fn(usize) -> usize) {
    let stream = bench.stream();
    let mut held = Vec::new();
    for (at, bytes) in SIZES.into_iter().enumerate() {
        for align in [1, 512, 65_536] {
            let layout = Layout::new(bytes, align).expect("a small layout");
            let ordered = Held::allocate(resource, layout, stream.as_ref()).expect("there is room");
            let synchronous = Held::allocate_sync(resource, layout).expect("there is room");
            for block in [ordered, synchronous] {
                let expected = align_of(bytes).max(layout.block_align());
                assert!(block.pointer.is_aligned_to(expected), "{} for {layout:?}", block.pointer);
                block.fill(held.len() as u32, stream.as_ref());
                held.push(block);
            }
        }
        assert_eq!(held.len(), 6 * (at + 1));
    }
    for (word, block) in held.iter().enumerate() {
        block.check(word as u32, stream.as_ref());
    }
    stream.synchronize().expect("all work succeeds");
    for (at, block) in held.into_iter().enumerate() {
        if at % 2 == 0 { block.free(stream.as_ref()) } else { block.free_sync() }
    }
    bench.check();
}

pub(crate) fn blocks_of_every_size_are_aligned(bench: &Bench) {
    let over_source = Shadow::new(Cuda::new(&bench.device())).aligned(4096).expect("a power of two");
    every_size(bench, &over_source, |_| 4096);
    assert_eq!(over_source.book().moved_blocks(), 0);
    over_source.upstream().assert_clean();
    let pool =
        Cuda::new(&bench.device()).pool(PoolConfig::default().checked(true)).expect("it starts with nothing");
    let over_pool = Shadow::new(pool).aligned(4096).expect("a power of two");
    every_size(bench, &over_pool, |_| 4096);
    over_pool.upstream().assert_clean();
}

pub(crate) fn the_threshold_is_a_boundary(bench: &Bench) {
    let config = AlignedConfig::new(1 << 20).threshold(4097);
    let resource = Shadow::new(Cuda::new(&bench.device())).aligned(config).expect("a power of two");
    every_size(bench, &resource, |bytes| if bytes >= 4097 { 1 << 20 } else { 256 });
    resource.upstream().assert_clean();
}

/// Neighbours in a pool cannot all begin at multiples of 64 KiB by themselves: most are moved, and each goes back from where the
/// pool had it, or the pool, which keeps a ledger, would refuse it.
pub(crate) fn a_moved_block_is_given_back_from_where_it_began(bench: &Bench) {
    let stream = bench.stream();
    let config = alluvion::suballoc::FixedSizeConfig::default().block(96 << 10).blocks(16).checked(true);
    let tiles = Cuda::new(&bench.device()).fixed_size(config).expect("there is as much");
    // Over a layer that says that it honours 256 and no more.
    let resource =
        Shadow::new(crate::adaptor_contract::Plain::over(tiles)).aligned(64 << 10).expect("a power of two");
    let held: Vec<_> = (0..16).map(|_| Held::of(&resource, 10_000, stream.as_ref())).collect();
    let moved = held.iter().filter(|block| resource.book().origin(block.pointer) != block.pointer).count();
    assert_eq!(resource.book().moved_blocks(), moved);
    assert!(moved >= 8, "{moved} of 16 were moved");
    assert!(held.iter().all(|block| block.pointer.is_aligned_to(64 << 10)));
    for (word, block) in held.iter().enumerate() {
        block.fill(word as u32, stream.as_ref());
    }
    for (word, block) in held.iter().enumerate() {
        block.check(word as u32, stream.as_ref());
    }
    held.into_iter().for_each(|block| block.free(stream.as_ref()));
    assert_eq!(resource.book().moved_blocks(), 0);
    resource.upstream().assert_clean();
    assert_eq!(resource.upstream().upstream().upstream.status().live_blocks, 0);
    bench.check();
}
