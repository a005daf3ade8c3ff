//! Redzones, poison and quarantine: what trespasses is found, and nothing else.

#![expect(unsafe_code, reason = "writes where it may not, in memory that is nobody's")]

use alluvion::adaptor::{Damage, Guard, GuardConfig, Trespass, TrespassKind};
use alluvion::driver::FillValue;
use alluvion::source::{Cuda, CudaAsync, Pinned};
use alluvion::tag::{Tag, with_tag};
use alluvion::testing::{Bench, Op, Shadow, Stall, run_ops};
use alluvion::{DeviceAccessible, DevicePtr, PoolConfig, Resource, ResourceExt, Stream, StreamRef};

use crate::raw_block::{Held, layout_of};

/// Queues writing bytes from `offset` of a block on, as a kernel that has miscounted does.
pub(crate) fn scribble(block: DevicePtr, offset: isize, bytes: usize, stream: StreamRef<'_>) {
    let device = stream.device();
    let (ordinal, address) = (device.ordinal(), block.address().wrapping_add_signed(offset as i64));
    // SAFETY: what is written is in a redzone or in a block that is kept back: nobody's.
    unsafe { device.driver().fill_async(ordinal, address, FillValue::U8(0x11), bytes, stream.raw()) }
        .expect("the range is part of an allocation");
}

/// A simulated machine has seen as many mistakes, too.
#[track_caller]
pub(crate) fn seen_by_the_machine(bench: &Bench, mistakes: usize) {
    let Some(sim) = bench.simulated() else { return };
    let hazards = sim.take_hazards();
    assert_eq!(hazards.len(), mistakes, "{hazards:?}");
}

pub(crate) fn guarded<U: DeviceAccessible>(upstream: U) -> Guard<U> {
    upstream.guard(GuardConfig::default()).expect("there is a stream and pinned memory")
}

/// The one thing that was found.
#[track_caller]
pub(crate) fn only<U: DeviceAccessible>(guard: &Guard<U>) -> Trespass {
    let found = guard.book().violations();
    assert_eq!((found.len(), guard.book().found()), (1, 1), "{found:?}");
    found[0]
}

#[track_caller]
pub(crate) fn damage(kind: TrespassKind) -> Damage {
    match kind {
        TrespassKind::Before(damage) | TrespassKind::Behind(damage) | TrespassKind::AfterFree(damage) => {
            damage
        }
        other => panic!("{other:?}"),
    }
}

/// Has a block of each size scribbled on and freed, and says what was found.
fn found_for<U: DeviceAccessible>(
    bench: &Bench,
    upstream: impl Fn() -> U,
    at: impl Fn(usize) -> (isize, usize),
    mut look: impl FnMut(usize, Trespass, &Stream),
) {
    for bytes in [1, 100, 256, 1000, 65_537] {
        let guard = guarded(upstream());
        let stream = bench.stream();
        let block = with_tag("suspect", || Held::of(&guard, bytes, stream.as_ref()));
        let clean = Held::of(&guard, bytes, stream.as_ref());
        let (offset, count) = at(bytes);
        scribble(block.pointer, offset, count, stream.as_ref());
        let pointer = block.pointer;
        block.free(stream.as_ref());
        clean.free(stream.as_ref());
        guard.book().check().expect("all work succeeds");
        let found = only(&guard);
        assert_eq!((found.block, found.bytes), (pointer, bytes));
        assert_eq!((found.tag.name(), found.stream), ("suspect", Some(stream.id())));
        assert_eq!((guard.book().verified(), guard.book().unverified()), (2, 0));
        look(bytes, found, &stream);
        drop(guard);
        seen_by_the_machine(bench, 1);
        bench.check();
    }
}

pub(crate) fn an_overrun_is_found(bench: &Bench) {
    let look = |bytes: usize, found: Trespass, _: &Stream| {
        assert!(matches!(found.kind, TrespassKind::Behind(_)), "{found}");
        let Damage { offset, found, wrong_bytes, .. } = damage(found.kind);
        assert_eq!((offset, found, wrong_bytes), (bytes as isize, 0x11, 1));
    };
    found_for(bench, || Cuda::new(&bench.device()), |bytes| (bytes as isize, 1), look);
    let pool = || {
        Cuda::new(&bench.device()).pool(PoolConfig::default().checked(true)).expect("it starts with nothing")
    };
    found_for(bench, pool, |bytes| (bytes as isize, 1), look);
    let cuda_async = || CudaAsync::new(&bench.device()).expect("the device has pools");
    // A whole redzone, with the last byte of the block.
    found_for(
        bench,
        cuda_async,
        |bytes| (bytes as isize - 1, 257),
        |bytes, found, _| {
            let Damage { offset, wrong_bytes, .. } = damage(found.kind);
            assert_eq!((offset, wrong_bytes), (bytes as isize, 256));
        },
    );
}

pub(crate) fn an_underrun_is_found(bench: &Bench) {
    found_for(
        bench,
        || Cuda::new(&bench.device()),
        |_| (-4, 4),
        |_, found, _| {
            assert!(matches!(found.kind, TrespassKind::Before(_)), "{found}");
            let Damage { offset, found, expected, wrong_bytes, .. } = damage(found.kind);
            assert_eq!((offset, found, wrong_bytes), (-4, 0x11, 4));
            assert_ne!(expected, found);
        },
    );
}

pub(crate) fn a_write_after_the_free_is_found(bench: &Bench) {
    for (bytes, offset) in [(1, 0), (1000, 500), (200_000, 0), (200_000, 199_999)] {
        let stream = bench.stream();
        let guard = guarded(Cuda::new(&bench.device()));
        let block = Held::of(&guard, bytes, stream.as_ref());
        let pointer = block.pointer;
        block.fill(7, stream.as_ref());
        block.free(stream.as_ref());
        scribble(pointer, offset, 1, stream.as_ref());
        stream.synchronize().expect("all work succeeds");
        guard.book().check().expect("all work succeeds");
        assert_eq!(guard.book().found(), 0, "its redzones are whole");
        guard.trim(0).expect("nothing captures");
        assert_eq!(guard.book().quarantined_bytes(), 0);
        let found = only(&guard);
        assert!(matches!(found.kind, TrespassKind::AfterFree(_)), "{found}");
        assert_eq!((damage(found.kind).offset, damage(found.kind).wrong_bytes), (offset, 1));
        assert_eq!((found.block, found.stream, found.tag), (pointer, Some(stream.id()), Tag::NONE));
        drop(guard);
        seen_by_the_machine(bench, 1);
        bench.check();
    }
}

/// What is looked at is looked at behind the work of the stream that frees: here an overrun that comes late.
pub(crate) fn the_check_is_behind_the_work(bench: &Bench) {
    let stream = bench.stream();
    let guard =
        guarded(Cuda::new(&bench.device()).pool(PoolConfig::default()).expect("it starts with nothing"));
    // Has the guard take its pinned memory, which a driver may wait for.
    Held::of(&guard, 1000, stream.as_ref()).free(stream.as_ref());
    guard.book().check().expect("all work succeeds");
    let block = Held::of(&guard, 1000, stream.as_ref());
    let stall = Stall::on(stream.as_ref());
    scribble(block.pointer, 1000, 3, stream.as_ref());
    block.free(stream.as_ref());
    // Nobody has waited.
    guard.book().poll();
    assert_eq!((guard.book().verified(), guard.book().found()), (1, 0), "the stream is held up");
    drop(stall);
    guard.book().check().expect("all work succeeds");
    assert_eq!(damage(only(&guard).kind).wrong_bytes, 3);
    drop(guard);
    seen_by_the_machine(bench, 1);
    bench.check();
}

pub(crate) fn fresh_and_freed_blocks_are_full_of_poison(bench: &Bench) {
    let (stream, other) = (bench.stream(), bench.stream());
    let guard = guarded(Cuda::new(&bench.device()));
    let block = Held::of(&guard, 4000, stream.as_ref());
    block.check(0xCDCD_CDCD, stream.as_ref());
    block.fill(1, stream.as_ref());
    other.wait_for_stream(&stream).expect("nothing captures");
    let (pointer, layout) = (block.pointer, block.layout);
    block.free(other.as_ref());
    let freed = Held::adopt(&guard, pointer, layout);
    freed.check(0xDDDD_DDDD, other.as_ref());
    drop(guard);
    seen_by_the_machine(bench, 1);
    bench.check();
}

/// Memory that the host touches, through a pointer.
pub(crate) fn what_the_host_writes_is_found_too(bench: &Bench) {
    let guard = guarded(Pinned::new(&bench.device()).expect("there is pinned memory"));
    let layout = layout_of(1000);
    let block = guard.allocate_sync(layout).expect("there is room");
    let last: *mut u8 = std::ptr::with_exposed_provenance_mut(block.address() as usize + 1000);
    // SAFETY: the byte is in the redzone, which is part of the upstream's block and nobody's.
    unsafe { last.write(7) };
    Held::adopt(&guard, block, layout).free_sync();
    guard.book().check().expect("all work succeeds");
    let found = only(&guard);
    assert_eq!((found.stream, damage(found.kind).offset, damage(found.kind).found), (None, 1000, 7));
    drop(guard);
    bench.check();
}

/// The quarantine holds what it may, and not when somebody needs the memory.
pub(crate) fn the_quarantine_has_an_end(bench: &Bench) {
    let stream = bench.stream();
    let config = GuardConfig::default().quarantine(1 << 20);
    let upstream =
        Shadow::new(Cuda::new(&bench.device()).pool(PoolConfig::default().maximum(8 << 20)).expect("a pool"));
    let guard = upstream.guard(config).expect("there is a stream and pinned memory");
    for _ in 0..40 {
        Held::of(&guard, 100_000, stream.as_ref()).free(stream.as_ref());
        assert!(guard.book().quarantined_bytes() <= 1 << 20);
    }
    assert!(guard.book().quarantined_bytes() >= 900_000);
    // More than it may hold goes at once.
    Held::of(&guard, 2 << 20, stream.as_ref()).free(stream.as_ref());
    // With what is in it there is too little.
    let whole = Held::of(&guard, (8 << 20) - 4096, stream.as_ref());
    assert_eq!(guard.book().quarantined_bytes(), 0);
    whole.free(stream.as_ref());
    guard.book().check().expect("all work succeeds");
    assert_eq!((guard.book().found(), guard.book().unverified(), guard.book().verified()), (0, 0, 42));
    guard.upstream().assert_clean();
    drop(guard);
    bench.check();
}

/// Random programs that keep the contract, on streams that come and go.
pub(crate) fn a_sound_program_is_left_in_peace(bench: &Bench) {
    fn run<U: DeviceAccessible>(bench: &Bench, upstream: U, seed: u64) {
        let config = GuardConfig::default().quarantine(200_000).redzone(300);
        let guard = Shadow::new(upstream).guard(config).expect("there is a stream and pinned memory");
        let ops: Vec<Op> =
            Op::random(seed).take(200).map(|op| op.limited(20_000, guard.max_align())).collect();
        run_ops(&guard, &ops).unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        guard.book().check().expect("all work succeeds");
        bench.device().synchronize().expect("all work succeeds");
        guard.trim(0).expect("nothing captures");
        let watch = guard.book();
        assert!(watch.violations().is_empty(), "seed {seed}: {}", watch.violations()[0]);
        assert!(watch.verified() > 10 && watch.unverified() == 0, "seed {seed}: {watch:?}");
        assert_eq!((watch.live_blocks(), watch.quarantined_bytes()), (0, 0));
        guard.upstream().assert_clean();
        drop(guard);
        bench.check();
    }
    for seed in bench.seeds() {
        let bench = bench.with_seed(seed);
        run(&bench, Cuda::new(&bench.device()), seed);
        let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().checked(true));
        run(&bench, pool.expect("it starts with nothing"), seed);
        run(&bench, CudaAsync::new(&bench.device()).expect("the device has pools"), seed);
    }
}
