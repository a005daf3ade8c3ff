//! Blocks that are given back wrongly: the error names the block and says what is wrong, and the suballocator stays whole.

#![expect(unsafe_code, reason = "frees what must not be freed, where it is refused")]

use alluvion::error::freeing;
use alluvion::source::Cuda;
use alluvion::suballoc::{Arena, ArenaConfig, BlockState, FixedSize, FixedSizeConfig, Growth, SuballocBook};
use alluvion::testing::Bench;
use alluvion::{
    AnyResource, Device, DevicePtr, Error, ErrorKind, Misuse, MisuseKind, Pool, PoolConfig, Resource,
    ResourceExt, Stream,
};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// A pool with a ledger, and one without.
fn pools(device: &Device) -> [(Pool<Cuda>, bool); 2] {
    [true, false].map(|checked| {
        let config = PoolConfig::default().initial(8 * MIB).growth(Growth::Exact).checked(checked);
        (Cuda::new(device).pool(config).expect("there is room"), checked)
    })
}

fn try_free(pool: &Pool<Cuda>, block: DevicePtr, bytes: usize, stream: &Stream) -> Result<(), Error> {
    // SAFETY: a block that is live and the pool's is used by nobody; any other is refused.
    unsafe { pool.try_deallocate(block, layout_of(bytes), stream.as_ref()) }
}

/// The free is refused, names the block, and leaves everything as it was.
#[track_caller]
fn refused(pool: &Pool<Cuda>, block: DevicePtr, bytes: usize, stream: &Stream) -> MisuseKind {
    let before = (pool.status(), states(pool));
    let error = try_free(pool, block, bytes, stream).expect_err("it is refused");
    assert_eq!(
        (pool.status(), states(pool)),
        before,
        "a free that was refused has changed something: {error}"
    );
    assert_eq!(error.kind(), ErrorKind::Misuse, "{error}");
    assert!(error.to_string().contains(&block.to_string()), "the error names the block: {error}");
    let Misuse { block: named, bytes: given, what, .. } = *error.misuse().expect("it says what is wrong");
    assert_eq!((named, given), (block, bytes));
    what
}

fn states(pool: &Pool<Cuda>) -> Vec<(DevicePtr, usize, BlockState)> {
    pool.snapshot().blocks.iter().map(|block| (block.address, block.bytes, block.state)).collect()
}

/// Nothing is live, and the pool serves all that it has: no block was lost or doubled.
#[track_caller]
fn whole(pool: &Pool<Cuda>, stream: &Stream) {
    let status = pool.status();
    assert_eq!((status.live_blocks, status.live_bytes), (0, 0), "{status:?}");
    Held::of(pool, 8 * MIB, stream.as_ref()).free(stream.as_ref());
    assert_eq!(pool.pool_size(), 8 * MIB, "{status:?}");
}

#[test]
fn a_block_is_freed_twice() {
    let bench = Bench::sim();
    let (stream, other) = (bench.stream(), bench.stream());
    for (pool, _) in pools(&bench.device()) {
        for bytes in [1, 1000, 300_000, 3 * MIB] {
            let (block, _) = Held::of(&pool, bytes, stream.as_ref()).into_parts();
            try_free(&pool, block, bytes, &stream).expect("once is right");
            // While it is in the cache of its stream, on another stream, and once it is in the core.
            assert_eq!(refused(&pool, block, bytes, &stream), MisuseKind::DoubleFree, "{bytes} bytes");
            assert_eq!(refused(&pool, block, bytes, &other), MisuseKind::DoubleFree, "{bytes} bytes");
            pool.defragment().unwrap();
            let what = refused(&pool, block, bytes, &stream);
            let merged = matches!(what, MisuseKind::InteriorPointer { .. });
            assert!(what == MisuseKind::DoubleFree || merged, "{bytes} bytes: {what:?}");
        }
        whole(&pool, &stream);
    }
    bench.check();
}

/// What was freed and is out again, to somebody else, is freed once for each time that it was out.
#[test]
fn a_block_is_freed_by_its_last_owner_but_one() {
    let bench = Bench::sim();
    let stream = bench.stream();
    for (pool, _) in pools(&bench.device()) {
        let (block, _) = Held::of(&pool, 1000, stream.as_ref()).into_parts();
        try_free(&pool, block, 1000, &stream).unwrap();
        let (again, _) = Held::of(&pool, 1000, stream.as_ref()).into_parts();
        assert_eq!(again, block, "the stream gets back what it freed last");
        try_free(&pool, again, 1000, &stream).unwrap();
        assert_eq!(refused(&pool, again, 1000, &stream), MisuseKind::DoubleFree);
        whole(&pool, &stream);
    }
}

#[test]
fn a_block_is_freed_with_another_size() {
    let bench = Bench::sim();
    let stream = bench.stream();
    for (pool, checked) in pools(&bench.device()) {
        for (bytes, wrong) in
            [(1000, 2000), (2000, 1000), (256, 257), (3 * MIB, MIB), (MIB, 3 * MIB), (600, 70_000)]
        {
            let (block, _) = Held::of(&pool, bytes, stream.as_ref()).into_parts();
            let MisuseKind::WrongSize { allocated_bytes } = refused(&pool, block, wrong, &stream) else {
                panic!("{bytes} bytes, freed as {wrong}: something else is said");
            };
            // Without a ledger it knows how long the block is, and not what was asked for.
            let known =
                if checked { bytes..=bytes } else { bytes..=layout_of(bytes).rounded_bytes() * 9 / 8 };
            assert!(known.contains(&allocated_bytes), "{bytes} bytes were {allocated_bytes}");
            try_free(&pool, block, bytes, &stream).expect("the right size is right");
        }
        whole(&pool, &stream);
    }
}

/// A difference that no class tells apart is told by a ledger.
#[test]
fn a_ledger_tells_a_byte_apart() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let [(pool, _), _] = pools(&bench.device());
    let (block, _) = Held::of(&pool, 1000, stream.as_ref()).into_parts();
    let what = refused(&pool, block, 1001, &stream);
    assert_eq!(what, MisuseKind::WrongSize { allocated_bytes: 1000 });
    try_free(&pool, block, 1000, &stream).unwrap();
    whole(&pool, &stream);
}

#[test]
fn a_block_of_somebody_else_is_freed() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let others = Cuda::new(&bench.device());
    let theirs = Held::of(&others, 5000, stream.as_ref());
    let another = Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap();
    let sibling = Held::of(&another, 5000, stream.as_ref());
    for (pool, _) in pools(&bench.device()) {
        for block in [
            theirs.pointer,
            sibling.pointer,
            DevicePtr::new(256).unwrap(),
            DevicePtr::new(u64::MAX - 255).unwrap(),
        ] {
            assert_eq!(refused(&pool, block, 5000, &stream), MisuseKind::ForeignPointer);
        }
        // What lies just before and just behind a segment is nobody's.
        let segment = pool.snapshot().segments[0];
        let behind = segment.address.offset(segment.bytes);
        assert_eq!(refused(&pool, behind, 256, &stream), MisuseKind::ForeignPointer);
        // A segment that is gone.
        pool.trim(0).unwrap();
        assert_eq!(refused(&pool, segment.address, 256, &stream), MisuseKind::ForeignPointer);
        whole(&pool, &stream);
    }
    theirs.free(stream.as_ref());
    sibling.free(stream.as_ref());
    bench.check();
}

#[test]
fn the_middle_of_a_block_is_freed() {
    let bench = Bench::sim();
    let stream = bench.stream();
    for (pool, _) in pools(&bench.device()) {
        for bytes in [1000, 40_000, 2 * MIB] {
            let (block, _) = Held::of(&pool, bytes, stream.as_ref()).into_parts();
            for offset in [1, 255, 256, 512, layout_of(bytes).rounded_bytes() - 1] {
                let what = refused(&pool, block.offset(offset), 256, &stream);
                assert_eq!(what, MisuseKind::InteriorPointer { block }, "{offset} into {bytes} bytes");
            }
            try_free(&pool, block, bytes, &stream).expect("the block itself is right");
        }
        whole(&pool, &stream);
    }
}

/// Zero bytes are nobody's, and freeing them is nothing, however often.
#[test]
fn zero_bytes_are_freed_twice() {
    let bench = Bench::sim();
    let stream = bench.stream();
    for (pool, _) in pools(&bench.device()) {
        let (block, _) = Held::of(&pool, 0, stream.as_ref()).into_parts();
        for _ in 0..3 {
            try_free(&pool, block, 0, &stream).expect("nothing is freed");
        }
        whole(&pool, &stream);
    }
}

#[test]
fn a_stream_of_another_device_frees() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let there = bench.second_device().unwrap().stream().unwrap();
    for (pool, _) in pools(&bench.device()) {
        let (block, _) = Held::of(&pool, 1000, stream.as_ref()).into_parts();
        let error = try_free(&pool, block, 1000, &there).expect_err("it is refused");
        assert!(error.is_device_mismatch(), "{error}");
        assert_eq!(pool.status().live_blocks, 1);
        try_free(&pool, block, 1000, &stream).unwrap();
        whole(&pool, &stream);
    }
}

/// A plain free of what is no live block changes nothing, where there is a ledger: on a stream and synchronously.
#[test]
fn a_plain_free_of_what_is_wrong_is_nothing() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let [(pool, _), _] = pools(&bench.device());
    let live = Held::of(&pool, 5000, stream.as_ref());
    let (freed, layout) = Held::of(&pool, 1000, stream.as_ref()).into_parts();
    Held::adopt(&pool, freed, layout).free(stream.as_ref());
    let before = (pool.status(), states(&pool));
    let wrong = [
        (freed, layout),
        (live.pointer, layout),
        (live.pointer, layout_of(5001)),
        (live.pointer.offset(256), layout),
        (DevicePtr::new(0x1000).unwrap(), layout),
    ];
    for (block, layout) in wrong {
        Held::adopt(&pool, block, layout).free(stream.as_ref());
        Held::adopt(&pool, block, layout).free_sync();
    }
    // Of another machine the stream may have the place that one of this machine has, with all that this one has freed.
    let elsewhere = Bench::sim();
    for there in [bench.second_device().unwrap().stream().unwrap(), elsewhere.stream()] {
        Held::adopt(&pool, live.pointer, live.layout).free(there.as_ref());
    }
    assert_eq!(bench.simulated().unwrap().take_hazards().len(), 10);
    let mut expected = before;
    expected.0.wrong_frees = 10;
    assert_eq!((pool.status(), states(&pool)), expected, "a wrong free has changed something");
    live.free(stream.as_ref());
    whole(&pool, &stream);
    bench.check();
}

/// The others have the same ledger.
#[test]
fn arenas_and_fixed_sizes_refuse_too() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let arena = Arena::new(Cuda::new(&device), ArenaConfig::default().bytes(4 * MIB).checked(true)).unwrap();
    let config = FixedSizeConfig::default().block(4096).blocks(16).checked(true);
    let fixed = FixedSize::new(Cuda::new(&device), config).unwrap();
    let layout = layout_of(1000);
    let in_arena = Held::of(&arena, 1000, stream.as_ref());
    let in_fixed = Held::of(&fixed, 1000, stream.as_ref());
    for (block, what) in [
        (in_fixed.pointer, MisuseKind::ForeignPointer),
        (in_arena.pointer.offset(256), MisuseKind::InteriorPointer { block: in_arena.pointer }),
    ] {
        // SAFETY: it is no block of the arena's, and refused.
        let error = unsafe { arena.try_deallocate(block, layout, stream.as_ref()) }.unwrap_err();
        assert_eq!(error.misuse().map(|misuse| misuse.what), Some(what));
    }
    for (block, bytes, what) in [
        (in_arena.pointer, 1000, MisuseKind::ForeignPointer),
        (in_fixed.pointer.offset(1024), 1000, MisuseKind::InteriorPointer { block: in_fixed.pointer }),
        (in_fixed.pointer, 2000, MisuseKind::WrongSize { allocated_bytes: 1000 }),
    ] {
        // SAFETY: it is no block of this size, and refused.
        let error = unsafe { fixed.try_deallocate(block, layout_of(bytes), stream.as_ref()) }.unwrap_err();
        assert_eq!(error.misuse().map(|misuse| misuse.what), Some(what));
    }
    in_arena.free(stream.as_ref());
    in_fixed.free(stream.as_ref());
    assert_eq!((arena.status().live_blocks, fixed.status().live_blocks), (0, 0));
}

/// `deallocate` returns nothing, and whoever frees hears of it all the same, through the layers between.
#[test]
fn whoever_frees_by_deallocate_hears_what_was_refused() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let [(pool, _), _] = pools(&device);
    let arena = Arena::new(Cuda::new(&device), ArenaConfig::default().bytes(4 * MIB).checked(true)).unwrap();
    let fixed = FixedSizeConfig::default().block(4096).blocks(16).checked(true);
    let fixed = FixedSize::new(Cuda::new(&device), fixed).unwrap();
    let stacks = [AnyResource::new(pool.stats()), AnyResource::new(arena.stats()), AnyResource::new(fixed)];
    for stack in &stacks {
        let (block, layout) = Held::of(stack, 1000, stream.as_ref()).into_parts();
        // SAFETY: nothing uses the block.
        freeing(|| unsafe { stack.deallocate(block, layout, stream.as_ref()) }).expect("once is right");
        // SAFETY: the block is free, so a checked suballocator refuses it.
        let queued = freeing(|| unsafe { stack.deallocate(block, layout, stream.as_ref()) });
        // SAFETY: as above.
        let sync = freeing(|| unsafe { stack.deallocate_sync(block, layout) });
        for heard in [queued, sync] {
            let misuse = heard.expect_err("it was free").misuse().copied().expect("a misuse");
            assert_eq!((misuse.block, misuse.bytes, misuse.what), (block, 1000, MisuseKind::DoubleFree));
        }
        assert_eq!(bench.simulated().unwrap().take_hazards().len(), 2);
    }
    bench.check();
}

/// What a pool without a ledger, over a driver that does not ask, notices of a wrong free: it costs no table. Each is told, counted, and
/// nothing is freed twice.
#[test]
fn without_a_ledger_some_wrong_frees_are_noticed_all_the_same() {
    let bench = Bench::sim_with(Bench::config().watch_blocks(false));
    let (device, stream) = (bench.device(), bench.stream());
    let none = PoolConfig::default().checked(false).growth(Growth::Exact);
    let fixed = FixedSizeConfig::default().block(4096).blocks(16).checked(false);
    let stacks = [
        AnyResource::new(Cuda::new(&device).pool(none.initial(8 * MIB)).unwrap()),
        AnyResource::new(
            Arena::new(Cuda::new(&device), ArenaConfig::default().bytes(8 * MIB).checked(false)).unwrap(),
        ),
        AnyResource::new(FixedSize::new(Cuda::new(&device), fixed).unwrap()),
    ];
    for stack in &stacks {
        let mut refused = 0;
        let mut is_refused = |block: DevicePtr, layout, what: MisuseKind| {
            // SAFETY: it is no block that is out, which is noticed.
            let queued = freeing(|| unsafe { stack.deallocate(block, layout, stream.as_ref()) });
            // SAFETY: as above.
            let sync = freeing(|| unsafe { stack.deallocate_sync(block, layout) });
            refused += 2;
            for heard in [queued, sync] {
                let misuse = heard.expect_err("it is wrong").misuse().copied().expect("a misuse");
                assert_eq!((misuse.block, misuse.what), (block, what), "{stack:?}");
            }
        };
        let block = Held::of(stack, 1000, stream.as_ref());
        let (at, layout) = (block.pointer, block.layout);
        is_refused(at.offset(1), layout, MisuseKind::InteriorPointer { block: at });
        is_refused(at.offset(255), layout, MisuseKind::InteriorPointer { block: at });
        is_refused(DevicePtr::new(0x0dea_d000).unwrap(), layout, MisuseKind::ForeignPointer);
        let book = stack.find::<SuballocBook>().expect("it carves");
        assert_eq!(book.status().wrong_frees, refused);
        block.free(stream.as_ref());
        // While it is in the cache, right away and after others.
        let others = [(); 8].map(|()| Held::of(stack, 1000, stream.as_ref()));
        let middle = others[5].pointer;
        others.into_iter().for_each(|block| block.free(stream.as_ref()));
        for _ in 0..2 {
            // SAFETY: it is free, which is noticed.
            let heard = freeing(|| unsafe { stack.deallocate(middle, layout, stream.as_ref()) });
            let what = heard.expect_err("it is free").misuse().map(|misuse| misuse.what);
            assert_eq!(what, Some(MisuseKind::DoubleFree), "{stack:?}");
        }
        let [one, two] = [(); 2].map(|()| Held::of(stack, 1000, stream.as_ref()));
        assert!(!one.overlaps(&two), "{stack:?}");
        one.free(stream.as_ref());
        two.free(stream.as_ref());
        assert_eq!((book.status().wrong_frees, book.status().live_blocks), (refused + 2, 0));
    }
    bench.check();
}

/// A large block is in a table of its own in the cache.
#[test]
fn a_large_block_is_not_cached_twice() {
    let bench = Bench::sim_with(Bench::config().watch_blocks(false));
    let stream = bench.stream();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().checked(false)).unwrap();
    let (block, layout) = Held::of(&pool, 5 * MIB, stream.as_ref()).into_parts();
    Held::adopt(&pool, block, layout).free(stream.as_ref());
    // SAFETY: it is free, which is noticed.
    let heard = freeing(|| unsafe { pool.deallocate(block, layout, stream.as_ref()) });
    assert_eq!(heard.unwrap_err().misuse().map(|misuse| misuse.what), Some(MisuseKind::DoubleFree));
    let [one, two] = [(); 2].map(|()| Held::of(&pool, 5 * MIB, stream.as_ref()));
    assert!(!one.overlaps(&two));
    one.free(stream.as_ref());
    two.free(stream.as_ref());
    bench.check();
}

/// On a simulated machine frees are checked where nobody says anything, in release builds too, and a machine can be told.
#[test]
fn a_machine_says_whether_frees_are_checked() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    assert!(device.machine().checks_frees());
    for checks in [true, false] {
        device.machine().check_frees(checks);
        let stacks = [
            AnyResource::new(Cuda::new(&device).pool(PoolConfig::default()).unwrap()),
            AnyResource::new(Arena::new(Cuda::new(&device), ArenaConfig::default().bytes(4 * MIB)).unwrap()),
            AnyResource::new(
                FixedSize::new(Cuda::new(&device), FixedSizeConfig::default().blocks(4)).unwrap(),
            ),
            AnyResource::new(Cuda::new(&device).binning().blocks(4).bin(4096).build().unwrap()),
        ];
        for stack in &stacks {
            let block = Held::of(stack, 1000, stream.as_ref());
            // One byte less is the same block to who keeps no ledger.
            let wrong = Held::adopt(stack, block.pointer, layout_of(999));
            let heard = freeing(|| wrong.free(stream.as_ref()));
            assert_eq!(heard.is_err(), checks, "{stack:?}");
            if checks {
                block.free(stream.as_ref());
            }
        }
        assert_eq!(bench.simulated().unwrap().take_hazards().len(), if checks { stacks.len() } else { 0 });
    }
}
