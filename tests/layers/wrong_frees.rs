//! What layers count stays right when a free is refused below them, in whatever order they are, and never goes below zero when nobody
//! refuses it.

#![expect(unsafe_code, reason = "frees what must not be freed, where it is refused")]

use alluvion::adaptor::{Aligned, Allowance, Budget, Fallback, Limiting, Stats};
use alluvion::error::freeing;
use alluvion::source::{Callback, Cuda, CudaAsync};
use alluvion::testing::Bench;
use alluvion::{
    AnyResource, Device, DevicePtr, Layout, MisuseKind, Pool, PoolConfig, Resource, ResourceExt, Stream,
    StreamRef,
};

use crate::raw_block::{Held, layout_of};

const BYTES: usize = 1000;
const MIB: usize = 1 << 20;

fn pool(device: &Device) -> Pool<Cuda> {
    Cuda::new(device).pool(PoolConfig::default().checked(true)).unwrap()
}

/// What is below may be: whoever refuses.
fn refusing(device: &Device) -> [AnyResource; 5] {
    [
        AnyResource::new(pool(device)),
        AnyResource::new(pool(device).tracking()),
        AnyResource::new(Cuda::new(device).tracking().on_leak(|_| ())),
        AnyResource::new(Cuda::new(device)),
        AnyResource::new(CudaAsync::new(device).unwrap()),
    ]
}

/// A second free on a stream, and one without, and one of an address that is nobody's.
#[track_caller]
fn wrong_frees_are_refused(bench: &Bench, stack: &AnyResource, stream: &Stream) {
    let (block, layout) = Held::of(stack, BYTES, stream.as_ref()).into_parts();
    Held::adopt(stack, block, layout).free(stream.as_ref());
    let stranger = block.offset(1 << 30);
    for heard in [
        freeing(|| Held::adopt(stack, block, layout).free(stream.as_ref())),
        freeing(|| Held::adopt(stack, block, layout).free_sync()),
        freeing(|| Held::adopt(stack, stranger, layout).free(stream.as_ref())),
    ] {
        let what = heard.expect_err("it is wrong").misuse().map(|misuse| misuse.what);
        let wrong = [MisuseKind::DoubleFree, MisuseKind::NotOut, MisuseKind::ForeignPointer];
        assert!(what.is_some_and(|what| wrong.contains(&what)), "{stack:?}: {what:?}");
    }
    assert_eq!(bench.simulated().unwrap().take_hazards().len(), 3, "{stack:?}");
}

#[test]
fn a_refused_free_changes_no_count_above() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    for below in refusing(&device) {
        let all = Allowance::new("all", 64 * MIB);
        let part = all.child("part", 64 * MIB);
        let orders = [
            AnyResource::new(below.clone().stats().limiting(64 * MIB).budget(part.clone())),
            AnyResource::new(below.clone().budget(part.clone()).limiting(64 * MIB).stats()),
            AnyResource::new(
                below.clone().limiting(64 * MIB).stats().aligned(512).unwrap().budget(part.clone()),
            ),
            AnyResource::new(below.clone().stats().budget(part.clone()).thread_safe().limiting(64 * MIB)),
        ];
        for stack in &orders {
            let kept = Held::of(stack, BYTES, stream.as_ref());
            wrong_frees_are_refused(&bench, stack, &stream);
            let room = kept.layout.rounded_bytes();
            let limit = stack.find::<Limiting>().map(|limit| limit.used_bytes());
            let budget = stack.find::<Budget>().map(|budget| budget.used_bytes());
            let stats = stack
                .find::<Stats>()
                .map(|stats| (stats.counts().bytes.live, stats.counts().allocations.live));
            // Under a lock no book is found; what is above has room.
            assert!(limit.is_none_or(|used| used >= room && used <= 2 * room), "{stack:?}: {limit:?}");
            assert!(budget.is_none_or(|used| used >= room && used <= 2 * room), "{stack:?}: {budget:?}");
            assert!(
                stats.is_none_or(|(bytes, blocks)| bytes >= BYTES as i64 && blocks == 1),
                "{stack:?}: {stats:?}"
            );
            assert_eq!((all.used_bytes(), all.excesses()), (part.used_bytes(), 0));
            kept.free(stream.as_ref());
            assert_eq!((all.used_bytes(), part.used_bytes()), (0, 0), "{stack:?}");
            assert_eq!(stack.find::<Stats>().map_or(0, |stats| stats.counts().bytes.live), 0, "{stack:?}");
        }
    }
    bench.check();
}

/// A source that believes every free, as one of a user's may, and a pool that keeps no ledger.
#[test]
fn where_nobody_refuses_nothing_is_less_than_nothing() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    // SAFETY: the addresses are nobody's, and nobody uses them.
    let trusting = || unsafe { Callback::new(&device, |_, _| Ok(1 << 20), |_, _, _| ()) };
    let all = Allowance::new("all", 64 * MIB);
    let part = all.child("part", 64 * MIB);
    let (limiting, budget, stats) =
        (trusting().limiting(64 * MIB), trusting().budget(part.clone()), trusting().stats());
    for _ in 0..3 {
        let layout = layout_of(BYTES);
        let block = limiting.allocate(layout, stream.as_ref()).unwrap();
        for _ in 0..3 {
            // SAFETY: the source does nothing.
            unsafe { limiting.deallocate(block, layout, stream.as_ref()) };
            // SAFETY: as above.
            unsafe { budget.deallocate_sync(block, layout) };
            // SAFETY: as above.
            unsafe { stats.deallocate(block, layout, stream.as_ref()) };
        }
        assert_eq!((limiting.used_bytes(), all.used_bytes(), part.used_bytes()), (0, 0, 0));
        let counts = stats.counts();
        assert_eq!((counts.bytes.live, counts.allocations.live), (0, 0), "{stats:?}");
    }
    assert_eq!((limiting.book().excesses(), part.excesses(), all.excesses()), (6, 9, 0));
    // All of the room is there.
    let most = Held::of(&limiting, 64 * MIB, stream.as_ref());
    assert_eq!(limiting.used_bytes(), 64 * MIB);
    most.free(stream.as_ref());
    bench.check();
}

/// A resource of a user's that asks two pools whose block it is: what the first one refuses is the second one's, and is freed.
#[test]
fn a_refusal_that_was_answered_below_is_none_above() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let (first, second) = (pool(&device), pool(&device));
    let allocate = |layout: Layout, stream: StreamRef<'_>| Ok(second.allocate(layout, stream)?.address());
    let deallocate = |block: DevicePtr, layout: Layout, stream: StreamRef<'_>| {
        // SAFETY: the pool is checked, and refuses what is not its own.
        if freeing(|| unsafe { first.deallocate(block, layout, stream) }).is_err() {
            // SAFETY: the block is the second one's, and its uses come before this point: the caller's promises.
            unsafe { second.deallocate(block, layout, stream) };
        }
    };
    // SAFETY: the blocks are those of a pool, which keeps the contract, and go back to it.
    let either = unsafe { Callback::new(&device, allocate, deallocate) };
    let stack = either.stats().limiting(64 * MIB);
    Held::of(&stack, BYTES, stream.as_ref()).free(stream.as_ref());
    Held::of(&stack, BYTES, stream.as_ref()).free_sync();
    let stats = stack.find::<Stats>().unwrap().counts();
    assert_eq!((stack.used_bytes(), stats.bytes.live, second.status().live_bytes), (0, 0, 0));
    assert_eq!(bench.simulated().unwrap().take_hazards().len(), 2, "the first pool tells of what it refuses");
    bench.check();
}

/// What one child gives back too often is not taken from what another has.
#[test]
fn a_block_that_is_freed_twice_makes_no_room_beside_another_child() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    // SAFETY: the addresses are nobody's, and nobody uses them.
    let trusting = || unsafe { Callback::new(&device, |_, _| Ok(1 << 20), |_, _, _| ()) };
    let all = Allowance::new("all", 2 * MIB);
    let [wrong, right] = ["wrong", "right"].map(|name| all.child(name, 2 * MIB));
    let (first, second) = (trusting().budget(wrong.clone()), trusting().budget(right.clone()));
    let other = Held::of(&second, MIB, stream.as_ref());
    let layout = layout_of(MIB);
    let block = first.allocate(layout, stream.as_ref()).unwrap();
    for _ in 0..3 {
        // SAFETY: the source does nothing.
        unsafe { first.deallocate(block, layout, stream.as_ref()) };
    }
    assert_eq!((all.used_bytes(), wrong.used_bytes(), right.used_bytes()), (MIB, 0, MIB));
    assert_eq!((wrong.excesses(), right.excesses(), all.excesses()), (2, 0, 0));
    assert!(first.allocate(layout_of(2 * MIB), stream.as_ref()).is_err(), "one half is out");
    other.free(stream.as_ref());
    assert_eq!((all.used_bytes(), all.excesses()), (0, 0));
    bench.check();
}

/// The books that translate addresses and sizes keep what is refused.
#[test]
fn a_block_that_was_refused_can_be_freed_rightly() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let wrong = layout_of(BYTES + 1);

    let aligned = pool(&device).limiting(64 * MIB).aligned(4 * MIB).unwrap();
    // One of these is not aligned by itself.
    let blocks = [(); 3].map(|()| Held::of(&aligned, BYTES, stream.as_ref()));
    let moved = aligned.find::<Aligned>().unwrap().moved_blocks();
    assert!(moved > 0);
    for block in &blocks {
        assert!(freeing(|| Held::adopt(&aligned, block.pointer, wrong).free(stream.as_ref())).is_err());
        assert!(freeing(|| Held::adopt(&aligned, block.pointer, wrong).free_sync()).is_err());
    }
    assert_eq!(aligned.find::<Aligned>().unwrap().moved_blocks(), moved);
    assert_eq!(bench.simulated().unwrap().take_hazards().len(), 6);
    blocks.into_iter().for_each(|block| freeing(|| block.free(stream.as_ref())).expect("it is out"));
    assert_eq!((aligned.upstream().used_bytes(), aligned.find::<Aligned>().unwrap().moved_blocks()), (0, 0));

    let fallback = Cuda::new(&device).limiting(0).fallback(pool(&device)).unwrap();
    let block = Held::of(&fallback, BYTES, stream.as_ref());
    let spill = || {
        let book = fallback.find::<Fallback>().unwrap();
        (book.live_blocks(), book.live_bytes())
    };
    assert!(freeing(|| Held::adopt(&fallback, block.pointer, wrong).free(stream.as_ref())).is_err());
    assert!(freeing(|| Held::adopt(&fallback, block.pointer, layout_of(1 << 30)).free_sync()).is_err());
    assert_eq!((spill(), bench.simulated().unwrap().take_hazards().len()), ((1, BYTES), 2));
    freeing(|| block.free(stream.as_ref())).expect("it is out");
    assert_eq!(spill(), (0, 0));

    let bins = pool(&device).binning().blocks(4).checked(true).bin(64 << 10).build().unwrap();
    Held::of(&bins, BYTES, stream.as_ref()).free(stream.as_ref());
    bins.add_bin(4096).unwrap();
    let block = Held::of(&bins, BYTES, stream.as_ref());
    assert!(freeing(|| Held::adopt(&bins, block.pointer, wrong).free(stream.as_ref())).is_err());
    assert_eq!(bench.simulated().unwrap().take_hazards().len(), 1);
    freeing(|| block.free(stream.as_ref())).expect("it is out");
    bench.check();
}
