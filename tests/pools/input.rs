//! Bad input to a suballocator: a typed error, or what the documentation says; and nothing is lost.

#![expect(unsafe_code, reason = "frees by hand")]

use std::sync::Arc;

use alluvion::source::{Cuda, Pinned};
use alluvion::suballoc::{Growth, SuballocBook};
use alluvion::testing::{Bench, Footprint, Shadow};
use alluvion::{DeviceVec, Error, ErrorKind, Layout, OnHost, Pool, PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// What is out once the machine has made what it keeps: a stream of its own.
fn used(bench: &Bench) -> Footprint {
    Cuda::new(&bench.device()).allocate_sync(layout_of(0)).expect("zero bytes are served");
    drop(Cuda::new(&bench.device()).pool(PoolConfig::default().initial(MIB)).expect("there is room"));
    bench.footprint()
}

#[track_caller]
fn refused(bench: &Bench, config: PoolConfig) -> Error {
    let before = bench.footprint();
    let error = Cuda::new(&bench.device()).pool(config).expect_err("no such pool is made");
    assert_eq!(bench.footprint(), before, "{error}");
    error
}

#[test]
fn configurations_that_make_no_sense_are_refused() {
    let bench = Bench::sim();
    let config = PoolConfig::default;
    let senseless = [
        ("initial above maximum", config().initial(2 * MIB).maximum(MIB)),
        ("initial just above maximum", config().initial(MIB + 1).maximum(MIB)),
        ("maximum 0", config().maximum(0)),
        ("step 0", config().growth(Growth::Step(0))),
        ("initial and maximum 0", config().initial(0).maximum(0)),
        ("an initial size that no segment holds", config().initial(1 << 50)),
        ("an initial size that overflows", config().initial(usize::MAX)),
        ("an initial size that overflows when it is rounded", config().initial(isize::MAX as usize)),
    ];
    for (what, config) in senseless {
        let error = refused(&bench, config);
        let overflow = what.contains("overflows") && error.kind() == ErrorKind::SizeOverflow;
        assert!(error.kind() == ErrorKind::InvalidArgument || overflow, "{what}: {error}");
    }
    // Sound, and more than there is.
    assert!(refused(&bench, config().initial(1 << 39)).is_out_of_memory());
    bench.check();
}

/// Sizes that are no multiples of 256 are rounded: the initial one up, and the maximum down.
#[test]
fn odd_sizes_are_rounded() {
    let bench = Bench::sim();
    let stream = bench.stream();
    for (initial, maximum) in [(1, 1000), (0, 257), (300, 300), (700, 800), (1000, 70_001)] {
        let config = PoolConfig::default().initial(initial).maximum(maximum);
        let pool = Cuda::new(&bench.device()).pool(config).unwrap();
        let most = maximum / 256 * 256;
        assert_eq!(pool.pool_size(), initial.next_multiple_of(256).min(most));
        let block = Held::of(&pool, most, stream.as_ref());
        assert_eq!(pool.pool_size(), most);
        block.free(stream.as_ref());
        let error = pool.allocate(layout_of(most + 1), stream.as_ref()).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
    }
    bench.check();
}

#[test]
fn no_layouts_are_no_blocks() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap();
    assert_eq!(pool.allocate_many(&[], stream.as_ref()).unwrap(), []);
    let empty = layout_of(0);
    let blocks = pool.allocate_many(&[empty; 3], stream.as_ref()).unwrap();
    assert!(blocks.iter().all(|block| block.is_aligned_to(256)));
    let blocks: Vec<_> = blocks.into_iter().map(|block| (block, empty)).collect();
    // SAFETY: zero bytes are nobody's.
    unsafe { pool.deallocate_many(&blocks, stream.as_ref()) };
    // SAFETY: nothing is freed.
    unsafe { pool.deallocate_many(&[], stream.as_ref()) };
    assert_eq!((pool.status().live_blocks, pool.status().upstream_calls), (0, 0));
}

/// One of many does not fit, by size, by alignment or for want of memory: none is served, and none is lost.
#[test]
fn many_are_served_or_none() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let config = PoolConfig::default().initial(4 * MIB).maximum(4 * MIB).checked(true);
    let pool = Cuda::new(&bench.device()).pool(config).unwrap();
    let (small, large) = (layout_of(1000), layout_of(3 * MIB));
    let skewed = Layout::new(1000, 1 << 40).unwrap();
    for (refused, kind) in [
        (vec![small, large, large, small], ErrorKind::OutOfMemory),
        (vec![small, small, layout_of(1 << 50)], ErrorKind::OutOfMemory),
        (vec![small, skewed], ErrorKind::UnsupportedAlignment),
        (vec![skewed, small], ErrorKind::UnsupportedAlignment),
    ] {
        let error = pool.allocate_many(&refused, stream.as_ref()).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert_eq!((pool.status().live_blocks, pool.status().live_bytes), (0, 0), "{refused:?}");
    }
    let served = [small, large, layout_of(0), small];
    let blocks = pool.allocate_many(&served, stream.as_ref()).unwrap();
    assert_eq!(pool.status().live_blocks, 3);
    let held: Vec<_> =
        std::iter::zip(blocks, served).map(|(block, layout)| Held::adopt(&pool, block, layout)).collect();
    for (at, block) in held.iter().enumerate() {
        let others = held[..at].iter().filter(|other| !other.layout.is_empty() && !block.layout.is_empty());
        assert!(others.into_iter().all(|other| !block.overlaps(other)));
    }
    let blocks: Vec<_> = held.into_iter().map(Held::into_parts).collect();
    // SAFETY: the blocks are the pool's, with these layouts, and nothing uses them.
    unsafe { pool.deallocate_many(&blocks, stream.as_ref()) };
    assert_eq!(pool.status().live_blocks, 0);
    Held::of(&pool, 4 * MIB, stream.as_ref()).free(stream.as_ref());
    bench.check();
}

#[test]
fn streams_of_other_devices_are_refused_everywhere() {
    let bench = Bench::sim();
    let there = bench.second_device().unwrap().stream().unwrap();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().initial(MIB)).unwrap();
    assert!(pool.allocate(layout_of(1), there.as_ref()).unwrap_err().is_device_mismatch());
    assert!(pool.allocate_many(&[layout_of(1)], there.as_ref()).unwrap_err().is_device_mismatch());
    assert!(pool.merge(there.as_ref()).unwrap_err().is_device_mismatch());
    assert_eq!(pool.largest_bytes(there.as_ref()), 0);
    assert_eq!((pool.status().live_blocks, pool.pool_size()), (0, MIB));
}

/// Blocks that are live when their pool is dropped end with it: their memory goes back behind the work that was submitted
/// before, and nothing is leaked.
#[test]
fn a_pool_is_dropped_with_live_blocks() {
    for seed in 0..8 {
        let bench = Bench::sim_with(Bench::config().seed(seed));
        let (first, second) = (bench.stream(), bench.stream());
        let before = used(&bench);
        let upstream = Arc::new(Shadow::new(Cuda::new(&bench.device())));
        let pool = Arc::clone(&upstream).pool(PoolConfig::default().initial(MIB)).unwrap();
        let pending = Held::of(&pool, 2 * MIB, first.as_ref());
        pending.fill(1, first.as_ref());
        pending.free(first.as_ref());
        for (bytes, stream) in [(1000, &first), (3 * MIB, &second), (0, &second)] {
            // Live, and in use: the pool knows no stream of theirs, and waits for all.
            let live = Held::of(&pool, bytes, stream.as_ref());
            live.fill(2, stream.as_ref());
            let _ = live.into_parts();
        }
        Held::allocate_sync(&pool, layout_of(500)).unwrap().into_parts();
        drop(pool);
        bench.device().synchronize().unwrap();
        upstream.assert_clean();
        drop(upstream);
        assert_eq!(bench.footprint(), before, "the pool has left something behind");
        bench.check();
    }
}

/// A pool goes after the streams of its blocks, on another thread, and with its device's work still queued.
#[test]
fn a_pool_is_dropped_elsewhere_and_late() {
    for seed in 0..8 {
        let bench = Bench::sim_with(Bench::config().seed(seed));
        let before = used(&bench);
        let pool = Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap();
        let streams: Vec<_> = (0..3).map(|_| bench.stream()).collect();
        for (word, stream) in (1..).zip(&streams) {
            let block = Held::of(&pool, 100_000, stream.as_ref());
            block.fill(word, stream.as_ref());
            block.free(stream.as_ref());
        }
        drop(streams);
        std::thread::scope(|scope| _ = scope.spawn(move || drop(pool)));
        bench.device().synchronize().unwrap();
        assert_eq!(bench.footprint(), before);
        bench.check();
    }
}

/// Access is the upstream's: a pool of pinned memory is the host's, too, and collections live in it.
#[test]
fn a_pinned_pool_is_the_hosts_memory() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let config = PoolConfig::default().maximum(16 * MIB).checked(true);
    let pool: Pool<Pinned> = Pinned::new(&device).unwrap().pool(config).unwrap();
    let mut numbers: allocator_api2::vec::Vec<u32, OnHost<&Pool<Pinned>>> =
        allocator_api2::vec::Vec::new_in(OnHost::new(&pool));
    numbers.extend(0..100_000);
    assert!(numbers.iter().copied().eq(0..100_000));
    assert!(pool.status().live_bytes >= 400_000);
    let mut map = hashbrown::HashMap::new_in(OnHost::new(&pool));
    map.extend((0..1000).map(|key| (key, key * 2)));
    assert_eq!(map[&999], 1998);
    drop(map);
    // The device reads what the host wrote.
    let vector = DeviceVec::from_slice_in(&numbers, stream.as_ref(), &pool).unwrap();
    assert_eq!(vector.to_vec(stream.as_ref()).unwrap(), &numbers[..]);
    drop((vector, numbers));
    stream.synchronize().unwrap();
    assert_eq!(pool.status().live_blocks, 0);
    device.synchronize().unwrap();
    pool.trim(0).unwrap();
    assert_eq!(pool.pool_size(), 0);
    bench.check();
}

#[test]
fn a_pool_is_found_and_described() {
    let bench = Bench::sim();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().initial(MIB)).unwrap();
    assert_eq!(pool.describe().to_string(), "Pool(1 MiB) > Cuda(gpu 0)");
    let erased = alluvion::AnyResource::new(pool);
    let stock = erased.find::<SuballocBook>().expect("what a pool has is a layer");
    assert_eq!((stock.status().reserved_bytes, stock.snapshot().segments.len()), (MIB, 1));
    assert!(erased.find::<Cuda>().is_some(), "and so is what is under it");
}
