//! What hurt the users of pools: memory of one stream in the hands of another, and memory that was there and not given.

use std::sync::Arc;

use alluvion::source::{Cuda, CudaAsync, Managed, Pinned};
use alluvion::suballoc::{Growth, Reuse};
use alluvion::testing::{Bench, stall};
use alluvion::{AnyResource, Device, DeviceVec, Layout, Pool, PoolConfig, Resource, ResourceExt, Stream};

use super::STALL;
use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// A pool that holds this much from the start, and never more.
fn pool_of(device: &Device, bytes: usize) -> Pool<Cuda> {
    let config = PoolConfig::default().initial(bytes).maximum(bytes);
    Cuda::new(device).pool(config).expect("there is as much")
}

/// How memory that was freed on one stream gets into the hands of another that does not touch it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Merge {
    /// By a request for more than any piece has, which is served.
    Success,
    /// By a request for more than there is in one piece, which is refused.
    Failure,
    /// By a call for it.
    Call,
}

pub(crate) const MERGES: [Merge; 3] = [Merge::Success, Merge::Failure, Merge::Call];

/// Work on A that takes its time is to write X; X is freed on A; B makes the pool merge what A has freed with what is its own;
/// C takes X and writes. In the end X holds what C wrote: the merged memory had forgotten that it is A's (rmm 2489).
///
/// `write_late` queues on a stream a write of a word over a block, which has not begun when it returns.
pub(crate) fn three_streams_and_a_merge(
    bench: &Bench,
    merge: Merge,
    write_late: impl Fn(&Stream, &Held<'_, Pool<Cuda>>, u32),
) {
    let device = bench.device();
    let pool = pool_of(&device, 8 * MIB);
    let [a, b, c] = [(); 3].map(|()| bench.stream());
    // X and Y are neighbours, and nothing else is free.
    let x = Held::of(&pool, 2 * MIB, a.as_ref());
    let y = Held::of(&pool, 2 * MIB, b.as_ref());
    let rest = Held::of(&pool, 4 * MIB, c.as_ref());
    let both = x.range().0.min(y.range().0);
    y.fill(1, b.as_ref());
    write_late(&a, &x, 2);
    x.free(a.as_ref());
    y.free(b.as_ref());

    match merge {
        Merge::Success => {
            let merged = Held::of(&pool, 4 * MIB, b.as_ref());
            assert_eq!(merged.range().0, both, "there was no other memory");
            merged.free(b.as_ref());
        }
        Merge::Failure => {
            let error = pool.allocate(layout_of(5 * MIB), b.as_ref()).expect_err("there is no more");
            assert!(error.is_out_of_memory(), "{error}");
        }
        Merge::Call => pool.merge(b.as_ref()).expect("streams can be merged"),
    }

    let taken = [3, 4].map(|word| {
        let block = Held::of(&pool, 2 * MIB, c.as_ref());
        block.fill(word, c.as_ref());
        (block, word)
    });
    device.synchronize().expect("all work succeeds");
    for (block, word) in taken {
        block.check(word, c.as_ref());
        block.free(c.as_ref());
    }
    rest.free(c.as_ref());
    bench.check();
}

/// The same by the seam alone: the simulated machine runs the write late if it may, and a GPU is held up.
pub(crate) fn write_behind_a_stall(bench: &Bench) -> impl Fn(&Stream, &Held<'_, Pool<Cuda>>, u32) {
    let simulated = bench.is_simulated();
    move |stream, block, word| {
        if !simulated {
            stall(stream.as_ref(), STALL);
        }
        block.fill(word, stream.as_ref());
    }
}

/// Scenario 2 over a pool: free on a stream, destroy it, make another that gets the same handle, allocate there at once. The
/// pool has room for one block, so that it must hand out that very one.
pub(crate) fn a_recycled_handle_is_another_stream(bench: &Bench) {
    let device = bench.device();
    let pool = pool_of(&device, MIB);
    let mut recycled = 0;
    for round in 0..20 {
        let old = device.stream().unwrap();
        let (old_id, old_raw) = (old.id(), old.as_ref().raw());
        let block = Held::of(&pool, MIB, old.as_ref());
        if !bench.is_simulated() {
            stall(old.as_ref(), STALL / 10);
        }
        block.fill(u32::MAX, old.as_ref());
        block.free(old.as_ref());
        drop(old);
        let new = device.stream().unwrap();
        recycled += u32::from(new.as_ref().raw() == old_raw);
        assert_ne!(new.id(), old_id, "a stream has the number of another");
        let block = Held::of(&pool, MIB, new.as_ref());
        block.fill(round, new.as_ref());
        block.check(round, new.as_ref());
        device.synchronize().unwrap();
        block.check(round, new.as_ref());
        block.free(new.as_ref());
    }
    assert!(recycled > 0 || !bench.is_simulated(), "the simulated machine recycles handles");
    bench.check();
}

/// Scenario 3 over a pool: what streams had that are gone is there for another, in one piece; and nothing is kept for them.
pub(crate) fn memory_of_ended_streams_comes_back(bench: &Bench) {
    const STREAMS: usize = 8;
    let device = bench.device();
    let pool = pool_of(&device, STREAMS * MIB);
    for round in 0..4 {
        let streams: Vec<Stream> = (0..STREAMS).map(|_| device.stream().unwrap()).collect();
        for stream in &streams {
            // The last round is of small blocks, which streams keep for themselves.
            for bytes in if round < 3 { vec![MIB] } else { vec![1000; 500] } {
                let buffer = DeviceVec::filled_in(bytes, 1_u8, stream.as_ref(), &pool).unwrap();
                drop(buffer);
            }
        }
        drop(streams);
        let default = device.default_stream();
        let whole = DeviceVec::filled_in(STREAMS * MIB, 2_u8, default.as_ref(), &pool)
            .expect("what the ended streams had is free");
        assert!(whole.to_vec(default.as_ref()).unwrap().iter().all(|byte| *byte == 2));
        drop(whole);
        default.synchronize().unwrap();
    }
    let status = pool.status();
    assert_eq!((status.live_bytes, status.live_blocks), (0, 0), "{status:?}");
    assert_eq!(pool.pool_size(), STREAMS * MIB);
    bench.check();
}

/// A pool that is empty serves its maximum, whatever it began with (rmm 1957); a pinned one holds as many as fit (rmm 1664).
pub(crate) fn an_empty_pool_serves_its_maximum(bench: &Bench) {
    let (device, stream) = (bench.device(), bench.stream());
    let growths = [Growth::Spare, Growth::Doubling, Growth::Step(256), Growth::Step(3 * MIB), Growth::Exact];
    for growth in growths {
        for reuse in [Reuse::Own, Reuse::Completed, Reuse::Wait] {
            let config = PoolConfig::default().initial(256).maximum(1024).growth(growth).reuse(reuse);
            let pool = Cuda::new(&device).pool(config).unwrap();
            assert_eq!(pool.pool_size(), 256);
            for _ in 0..3 {
                let block = Held::of(&pool, 1024, stream.as_ref());
                assert!(pool.allocate(layout_of(1), stream.as_ref()).unwrap_err().is_out_of_memory());
                assert_eq!(pool.pool_size(), 1024);
                block.free(stream.as_ref());
                // Small ones, and then the whole again, on a stream that has waited for nothing.
                let other = bench.stream();
                let small: Vec<_> = (0..4).map(|_| Held::of(&pool, 200, stream.as_ref())).collect();
                small.into_iter().for_each(|block| block.free(stream.as_ref()));
                Held::of(&pool, 1024, other.as_ref()).free(other.as_ref());
            }
        }
    }
    let pinned = Pinned::new(&device).unwrap().pool(PoolConfig::default().maximum(64 * MIB)).unwrap();
    for _ in 0..2 {
        let blocks: Vec<_> = (0..8).map(|_| Held::of(&pinned, 8 * MIB, stream.as_ref())).collect();
        assert_eq!(pinned.pool_size(), 64 * MIB);
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
    }
    bench.check();
}

/// Half of what there may be is cached, and the request is for more than the other half (cupy 7678): the cached half goes.
pub(crate) fn cached_memory_makes_room(bench: &Bench) {
    let (device, stream) = (bench.device(), bench.stream());
    for growth in [Growth::Exact, Growth::Spare, Growth::Doubling] {
        let config = PoolConfig::default().maximum(20 * MIB).growth(growth);
        let pool = Cuda::new(&device).pool(config).unwrap();
        let half = Held::of(&pool, 10 * MIB, stream.as_ref());
        half.fill(1, stream.as_ref());
        half.free(stream.as_ref());
        let more = Held::of(&pool, 16 * MIB, stream.as_ref());
        more.fill(2, stream.as_ref());
        more.check(2, stream.as_ref());
        more.free(stream.as_ref());
    }
    // As above, where the device is the limit and another pool of the program has the rest.
    if bench.is_simulated() {
        let pool = Cuda::new(&device).pool(PoolConfig::default().growth(Growth::Exact)).unwrap();
        Held::of(&pool, 40 * MIB, stream.as_ref()).free(stream.as_ref());
        Held::of(&pool, 48 * MIB, stream.as_ref()).free(stream.as_ref());
    }
    bench.check();
}

/// The only block that is large enough is behind work of another stream, and there is no more (torch 189504): the stream waits,
/// whatever the policy, and if it must then on the host.
pub(crate) fn a_pending_block_is_waited_for(bench: &Bench) {
    let (device, a, b) = (bench.device(), bench.stream(), bench.stream());
    for reuse in [Reuse::Own, Reuse::Completed, Reuse::Wait] {
        let config = PoolConfig::default().maximum(16 * MIB).growth(Growth::Exact).reuse(reuse);
        let pool = Cuda::new(&device).pool(config).unwrap();
        // Asked for less, as much and more than what is pending; the last only fits if that goes back first.
        for (word, wanted) in (1_u32..).zip([8 * MIB, 12 * MIB, 16 * MIB, 2 * MIB]) {
            let pending = Held::of(&pool, 12 * MIB, a.as_ref());
            if !bench.is_simulated() {
                stall(a.as_ref(), STALL);
            }
            pending.fill(!word, a.as_ref());
            pending.free(a.as_ref());
            let block = Held::of(&pool, wanted, b.as_ref());
            block.fill(word, b.as_ref());
            device.synchronize().unwrap();
            block.check(word, b.as_ref());
            block.free(b.as_ref());
            b.synchronize().unwrap();
        }
    }
    bench.check();
}

/// Alignments were ignored (rmm 1156, 2002, 2402), and sizes at the end of the number line wrapped. Over every source.
pub(crate) fn absurd_sizes_and_alignments_over_pools(bench: &Bench) {
    let (device, stream) = (bench.device(), bench.stream());
    let config = || PoolConfig::default().growth(Growth::Spare);
    let pools = [
        AnyResource::new(Cuda::new(&device).pool(config()).unwrap()),
        AnyResource::new(CudaAsync::new(&device).unwrap().pool(config()).unwrap()),
        AnyResource::new(Managed::new(&device).unwrap().pool(config()).unwrap()),
        AnyResource::new(Pinned::new(&device).unwrap().pool(config()).unwrap()),
        AnyResource::new(Arc::new(Cuda::new(&device).pool(config()).unwrap()).pool(config()).unwrap()),
    ];
    for pool in pools {
        assert!(pool.max_align() >= 2 * MIB, "{pool:?} honours {} at most", pool.max_align());
        let mut held = Vec::new();
        for align in [1, 32, 256, 512, 4096, 2 * MIB] {
            for bytes in [1, 32, 256, 1000, 70_000] {
                let layout = Layout::new(bytes, align).unwrap();
                let block = Held::allocate(&pool, layout, stream.as_ref()).unwrap();
                assert!(
                    block.pointer.is_aligned_to(align.max(256)),
                    "{pool:?}: {} for {layout:?}",
                    block.pointer
                );
                assert!(held.iter().all(|other| !block.overlaps(other)), "{pool:?}: {layout:?}");
                held.push(block);
            }
        }
        held.into_iter().for_each(|block| block.free(stream.as_ref()));
        for bytes in [1 << 50, isize::MAX as usize - 255] {
            let error = pool.allocate(layout_of(bytes), stream.as_ref()).unwrap_err();
            assert!(error.is_out_of_memory() && error.requested_bytes() >= Some(bytes), "{pool:?}: {error}");
        }
    }
    bench.check();
}
