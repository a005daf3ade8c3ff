//! How much a suballocator takes, and when: to the byte, and in how many requests.

use alluvion::source::{Cuda, Mapped};
use alluvion::suballoc::{Arena, ArenaConfig, FixedSize, FixedSizeConfig, Growth, Snapshot};
use alluvion::testing::Bench;
use alluvion::{PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn segments(snapshot: &Snapshot) -> Vec<usize> {
    snapshot.segments.iter().map(|segment| segment.bytes).collect()
}

#[test]
fn the_initial_size_is_taken_in_one_request_of_that_size() {
    for initial in [256, KIB, 5 * KIB, 3 * MIB + 256, 10 * MIB] {
        let bench = Bench::sim();
        let stream = bench.stream();
        let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().initial(initial)).unwrap();
        assert_eq!((pool.status().upstream_calls, segments(&pool.snapshot())), (1, vec![initial]));
        // Its size stays what it is until it must grow.
        let all = Held::of(&pool, initial, stream.as_ref());
        assert_eq!((pool.pool_size(), pool.status().upstream_calls), (initial, 1));
        all.free(stream.as_ref());
        let parts: Vec<_> =
            (0..initial / 256).take(64).map(|_| Held::of(&pool, 256, stream.as_ref())).collect();
        assert_eq!((pool.pool_size(), pool.status().upstream_calls), (initial, 1));
        parts.into_iter().for_each(|part| part.free(stream.as_ref()));
        let more = Held::of(&pool, initial + 1, stream.as_ref());
        assert!(pool.pool_size() > initial);
        more.free(stream.as_ref());
        bench.check();
    }
}

/// Of 256 bytes to a few KiB, with and without an initial size.
#[test]
fn small_pools_serve_up_to_their_maximum() {
    for growth in [Growth::Spare, Growth::Doubling, Growth::Exact, Growth::Step(MIB)] {
        for (initial, maximum) in
            [(0, 256), (256, 256), (0, 5 * KIB), (KIB, 5 * KIB), (5 * KIB, 5 * KIB), (0, 40 * MIB)]
        {
            let bench = Bench::sim();
            let stream = bench.stream();
            let config = PoolConfig::default().growth(growth).initial(initial).maximum(maximum);
            let pool = Cuda::new(&bench.device()).pool(config).unwrap();
            assert_eq!(pool.pool_size(), initial);
            for bytes in [maximum, 1, maximum / 2 + 1, maximum - 255] {
                Held::of(&pool, bytes, stream.as_ref()).free(stream.as_ref());
                assert!(pool.pool_size() <= maximum, "{growth:?}");
            }
            let error = pool.allocate(layout_of(maximum + 1), stream.as_ref()).unwrap_err();
            assert!(error.is_out_of_memory(), "{error}");
            bench.check();
        }
    }
}

/// Two in a row take a half and a quarter.
#[test]
fn half_of_what_is_free_is_taken_at_once() {
    let bench = Bench::sim();
    let free = || bench.device().memory_info().unwrap().free_bytes;
    let half = || PoolConfig::default().initial_half_of_free();
    let before = free();
    let first = Cuda::new(&bench.device()).pool(half()).unwrap();
    assert_eq!((first.pool_size(), first.status().upstream_calls), (before / 2 / 256 * 256, 1));
    let second = Cuda::new(&bench.device()).pool(half()).unwrap();
    assert_eq!(second.pool_size(), (before - first.pool_size()) / 2 / 256 * 256);
    let bounded = Cuda::new(&bench.device()).pool(half().maximum(MIB + 100)).unwrap();
    assert_eq!(bounded.pool_size(), MIB);
    let explicit = Cuda::new(&bench.device()).pool(half().initial(512)).unwrap();
    assert_eq!(explicit.pool_size(), 512, "the last word counts");
    drop((first, second, bounded, explicit));
    let mapped = Mapped::new(&bench.device()).unwrap();
    let page = mapped.pages().expect("it has pages").page_bytes();
    let half_of_pages = mapped.memory_info().unwrap().free_bytes / 2 / page * page;
    assert_eq!(mapped.pool(half()).unwrap().pool_size(), half_of_pages);
    bench.check();
}

#[test]
fn blocks_of_one_size_are_taken_to_the_number() {
    let bench = Bench::sim();
    let stream = bench.stream();
    for (block, count) in [(256, 1), (1000, 3), (MIB, 16)] {
        let config = FixedSizeConfig::default().block(block).blocks(count);
        let fixed = FixedSize::new(Cuda::new(&bench.device()), config).unwrap();
        let bytes = fixed.block_bytes() * count;
        assert_eq!((fixed.status().upstream_calls, segments(&fixed.snapshot())), (1, vec![bytes]));
        let all: Vec<_> = (0..count).map(|_| Held::of(&fixed, block, stream.as_ref())).collect();
        assert_eq!(fixed.status().upstream_calls, 1);
        let one_more = Held::of(&fixed, 1, stream.as_ref());
        assert_eq!((fixed.status().upstream_calls, fixed.status().reserved_bytes), (2, 2 * bytes));
        all.into_iter().chain([one_more]).for_each(|held| held.free(stream.as_ref()));
    }
    bench.check();
}

/// Also one that has exactly the size of the pool under it.
#[test]
fn arenas_of_less_than_a_superblock_serve_all_that_they_have() {
    let bench = Bench::sim();
    let (first, second) = (bench.stream(), bench.stream());
    for bytes in [256, 512, 5 * KIB, 100 * KIB, MIB - 256] {
        let pool =
            Cuda::new(&bench.device()).pool(PoolConfig::default().initial(bytes).maximum(bytes)).unwrap();
        let arena = Arena::new(pool, ArenaConfig::default().bytes(bytes)).unwrap();
        assert_eq!((arena.bytes(), arena.status().upstream_calls), (bytes, 1));
        for stream in [&first, &second] {
            let blocks: Vec<_> = (0..bytes / 256).map(|_| Held::of(&arena, 256, stream.as_ref())).collect();
            assert!(arena.allocate(layout_of(1), stream.as_ref()).unwrap_err().is_out_of_memory());
            blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
            Held::of(&arena, bytes, stream.as_ref()).free(stream.as_ref());
        }
    }
    bench.check();
}
