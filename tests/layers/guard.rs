//! What only simulated machines can show of a guard: kernels that trespass, captures, failures of every call, lost contexts.

#![expect(unsafe_code, reason = "launches kernels, and frees what is not live")]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::env;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use alluvion::adaptor::{GuardBook, GuardConfig, Trespass, TrespassKind};
use alluvion::driver::{Call, CaptureMode, Code};
use alluvion::error::freeing;
use alluvion::sim::{Fault, Kernel};
use alluvion::source::{Cuda, CudaAsync};
use alluvion::testing::{Bench, Delayed, Shadow, Sweep};
use alluvion::{DeviceAccessible, Error, MisuseKind, PoolConfig, Resource, ResourceExt, Sim, StreamRef};

use crate::adaptor_contract::guard::{damage, guarded, only, scribble, seen_by_the_machine};
use crate::raw_block::{Held, layout_of};

fn launch(bench: &Bench, stream: StreamRef<'_>, kernel: Kernel) {
    let sim = bench.simulated().expect("it is simulated");
    // SAFETY: the stream is borrowed. The kernel touches a block and its redzones, in the order that is under test.
    unsafe { sim.launch(0, stream.raw(), kernel) }.expect("a kernel can be launched");
}

/// A kernel with a thread for each of `count` bytes from `address` on.
fn writing(address: u64, count: usize) -> Kernel {
    Kernel::new("write").writes(address, count).run(move |memory| memory.write(address, &vec![3; count]))
}

#[test]
fn kernels_that_miscount_are_found_under_every_schedule() {
    for seed in 0..50 {
        let bench = Bench::sim().with_seed(seed);
        let (first, second) = (bench.stream(), bench.stream());
        let guard = guarded(Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap());
        let [over, under, clean] = [(); 3].map(|()| Held::of(&guard, 1000, first.as_ref()));
        launch(&bench, first.as_ref(), writing(over.pointer.address(), 1001));
        launch(&bench, first.as_ref(), writing(under.pointer.address() - 1, 1000));
        launch(&bench, first.as_ref(), writing(clean.pointer.address(), 1000));
        second.wait_for_stream(&first).unwrap();
        let (over_at, under_at) = (over.pointer, under.pointer);
        over.free(second.as_ref());
        under.free(second.as_ref());
        clean.free(second.as_ref());
        guard.book().check().unwrap();
        let found = guard.book().violations();
        let seen: Vec<_> = found.iter().map(|one| (one.block, damage(one.kind).offset, one.stream)).collect();
        assert_eq!(
            seen,
            [(over_at, 1000, Some(second.id())), (under_at, -1, Some(second.id()))],
            "seed {seed}"
        );
        drop(guard);
        seen_by_the_machine(&bench, 2);
        bench.check();
    }
}

/// A program that forgets the order of its uses, and writes after the free on another stream: found, because what is freed stays.
#[test]
fn a_late_kernel_on_another_stream_is_found() {
    let bench = Bench::sim();
    let (first, second) = (bench.stream(), bench.stream());
    let guard = guarded(Cuda::new(&bench.device()));
    let block = Held::of(&guard, 1000, first.as_ref());
    let pointer = block.pointer;
    block.free(first.as_ref());
    first.synchronize().unwrap();
    launch(&bench, second.as_ref(), writing(pointer.address() + 10, 20));
    second.synchronize().unwrap();
    guard.trim(0).unwrap();
    let found = only(&guard);
    assert!(matches!(found.kind, TrespassKind::AfterFree(_)), "{found}");
    assert_eq!((damage(found.kind).offset, damage(found.kind).wrong_bytes), (10, 20));
    seen_by_the_machine(&bench, 1);
    bench.check();
}

/// A block that no work has used may be freed on a stream that nobody has ordered: the fills are the guard's affair.
#[test]
fn a_block_that_was_not_used_may_be_freed_anywhere() {
    for seed in 0..30 {
        let bench = Bench::sim().with_seed(seed);
        let (first, second) = (bench.stream(), bench.stream());
        let guard = guarded(Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap());
        for _ in 0..5 {
            Held::of(&guard, 5000, first.as_ref()).free(second.as_ref());
            Held::of(&guard, 5000, first.as_ref()).free_sync();
            Held::allocate_sync(&guard, layout_of(5000)).unwrap().free(second.as_ref());
        }
        guard.book().check().unwrap();
        assert_eq!((guard.book().verified(), guard.book().found()), (15, 0), "seed {seed}");
        drop(guard);
        bench.check();
    }
}

#[test]
fn what_is_not_live_is_not_freed() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let guard = Shadow::new(Cuda::new(&bench.device())).guard(GuardConfig::default()).unwrap();
    let block = Held::of(&guard, 1000, stream.as_ref());
    let (pointer, layout) = (block.pointer, block.layout);
    block.free(stream.as_ref());
    let heard = freeing(|| Held::adopt(&guard, pointer, layout).free(stream.as_ref())).unwrap_err();
    assert_eq!(heard.misuse().map(|misuse| misuse.what), Some(MisuseKind::NotOut));
    assert_eq!(only(&guard).kind, TrespassKind::NotLive);
    Held::adopt(&guard, pointer.offset(256), layout).free_sync();
    assert_eq!((guard.book().found(), guard.book().violations()[1].stream), (2, None));
    seen_by_the_machine(&bench, 2);
    // With the wrong layout it is freed all the same, with the right one.
    let block = Held::of(&guard, 1000, stream.as_ref());
    Held::adopt(&guard, block.into_parts().0, layout_of(2000)).free(stream.as_ref());
    let found = guard.book().violations()[2];
    assert_eq!((found.bytes, found.kind), (1000, TrespassKind::WrongLayout { freed_bytes: 2000 }));
    assert_eq!(guard.book().live_blocks(), 0);
    stream.synchronize().unwrap();
    guard.trim(0).unwrap();
    guard.upstream().assert_clean();
    bench.check();
}

#[test]
fn the_handler_is_told_and_may_panic_or_allocate() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let told: Arc<Mutex<Vec<Trespass>>> = Arc::default();
    let listener = Arc::clone(&told);
    let config = GuardConfig::default().on_violation(move |trespass| {
        listener.lock().unwrap().push(*trespass);
        panic!("of a handler, on purpose");
    });
    let guard = Cuda::new(&bench.device()).guard(config).unwrap();
    for _ in 0..2000 {
        let block = Held::of(&guard, 10, stream.as_ref());
        scribble(block.pointer, 10, 1, stream.as_ref());
        block.free(stream.as_ref());
    }
    guard.book().check().unwrap();
    assert_eq!((guard.book().found(), guard.book().violations().len()), (2000, 1024), "the rest is counted");
    // In the quarantine nothing more has happened; the last are told of when the guard is dropped.
    let block = Held::of(&guard, 10, stream.as_ref());
    scribble(block.pointer, -1, 1, stream.as_ref());
    block.free(stream.as_ref());
    drop(guard);
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2001);
    assert!(matches!(told[2000].kind, TrespassKind::Before(_)));
    seen_by_the_machine(&bench, 2001);
    bench.check();
}

/// In a capture nothing is written, and what was in one is not looked at.
#[test]
fn a_capture_is_left_alone() {
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let (stream, other) = (bench.stream(), bench.stream());
    let upstream =
        Shadow::new(Cuda::new(&bench.device()).pool(PoolConfig::default().initial(4 << 20)).unwrap());
    let guard = upstream.guard(GuardConfig::default()).unwrap();
    // One that another stream has scribbled on, and that nobody has ordered after it.
    let unordered = Held::of(&guard, 3000, other.as_ref());
    let before = Held::of(&guard, 1000, stream.as_ref());
    Held::of(&guard, 1000, stream.as_ref()).free(stream.as_ref());
    let raw = stream.as_ref().raw();
    sim.begin_capture(0, raw, CaptureMode::Global).unwrap();
    let within = Held::of(&guard, 1000, stream.as_ref());
    let across = Held::of(&guard, 1000, stream.as_ref());
    before.free(stream.as_ref());
    within.free(stream.as_ref());
    unordered.free(stream.as_ref());
    assert!(guard.book().quarantined_bytes() > 3000, "until somebody can say when it is over");
    guard.book().poll();
    guard.trim(0).unwrap();
    assert!(guard.book().quarantined_bytes() > 3000);
    let graph = sim.end_capture(0, raw).expect("the capture is whole");
    assert_eq!(graph.node_count(), 0);
    across.free(stream.as_ref());
    guard.book().check().unwrap();
    let watch = guard.book();
    assert_eq!((watch.found(), watch.verified(), watch.unverified()), (0, 1, 4), "{watch:?}");
    stream.synchronize().unwrap();
    other.synchronize().unwrap();
    guard.trim(0).unwrap();
    assert_eq!(guard.book().quarantined_bytes(), 0);
    guard.upstream().assert_clean();
    drop(guard);
    bench.check();
}

/// Without pinned memory nothing can be looked at, and that is all.
#[test]
fn without_pinned_memory_it_says_so() {
    let bench = Bench::sim_with(Bench::config().pinned_bytes(100));
    let stream = bench.stream();
    let guard = guarded(Cuda::new(&bench.device()));
    for _ in 0..10 {
        let block = Held::of(&guard, 1000, stream.as_ref());
        block.fill(1, stream.as_ref());
        scribble(block.pointer, 1000, 1, stream.as_ref());
        block.free(stream.as_ref());
    }
    guard.book().check().unwrap();
    assert_eq!((guard.book().found(), guard.book().verified(), guard.book().unverified()), (0, 0, 10));
    drop(guard);
    seen_by_the_machine(&bench, 10);
    bench.check();
    assert_eq!(bench.simulated().unwrap().live().allocations(), 0);
}

#[test]
fn what_it_costs_is_as_documented() {
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let stream = bench.stream();
    let guard = guarded(Cuda::new(&bench.device()).pool(PoolConfig::default().initial(4 << 20)).unwrap());
    // Has the pools take what they need.
    Held::of(&guard, 1000, stream.as_ref()).free(stream.as_ref());
    guard.book().check().unwrap();
    let before = sim.calls();
    let block = Held::of(&guard, 1000, stream.as_ref());
    let made = sim.calls() - before;
    assert_eq!((made[Call::StreamCaptureStatus], made[Call::FillAsync], made.total()), (1, 3, 4), "{made:?}");
    let before = sim.calls();
    block.free(stream.as_ref());
    let made = sim.calls() - before;
    assert_eq!((made[Call::FillAsync], made[Call::CopyAsync]), (1, 2), "{made:?}");
    // Whether it captures, and at most: an event, whether it captures, a query, and leave for the query.
    assert!(made.total() <= 3 + 7, "{made:?}");
}

#[test]
fn threads_keep_out_of_each_others_books() {
    let bench = Bench::sim();
    let below = Shadow::new(Delayed::new(Cuda::new(&bench.device()), Duration::ZERO));
    let guard = below.guard(GuardConfig::default().quarantine(10_000)).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = guard.device().stream().unwrap();
                for round in 0..100_u32 {
                    let block = Held::of(&guard, 1000, stream.as_ref());
                    block.fill(round, stream.as_ref());
                    block.free(stream.as_ref());
                    Held::allocate_sync(&guard, layout_of(2000)).unwrap().free_sync();
                }
            });
        }
    });
    guard.book().check().unwrap();
    bench.device().synchronize().unwrap();
    guard.trim(0).unwrap();
    let watch = guard.book();
    assert_eq!((watch.verified(), watch.unverified(), watch.found(), watch.live_blocks()), (800, 0, 0, 0));
    guard.upstream().assert_clean();
    drop(guard);
    bench.check();
}

#[test]
fn a_lost_context_ends_the_watch_in_silence() {
    let bench = Bench::sim();
    let sim = bench.simulated().unwrap();
    let stream = bench.stream();
    let guard = guarded(Cuda::new(&bench.device()));
    let block = Held::of(&guard, 1000, stream.as_ref());
    Held::of(&guard, 1000, stream.as_ref()).free(stream.as_ref());
    sim.poison(0, Code::ILLEGAL_ADDRESS);
    block.free(stream.as_ref());
    assert!(guard.allocate(layout_of(1), stream.as_ref()).unwrap_err().is_context_lost());
    assert_eq!((guard.book().found(), guard.book().unverified()), (0, 2));
    drop(guard);
    bench.check_hazards();
}

/// What a program does with a guard, clean, on two streams.
fn use_guard<R: DeviceAccessible>(sim: &Sim, make: impl Fn(&Sim) -> Result<R, Error>) -> Result<(), Error> {
    let device = sim.device(0);
    // Has the machine make what it keeps: a stream of its own.
    drop(Cuda::new(&device).pool(PoolConfig::default().initial(256))?);
    let config = GuardConfig::default().quarantine(4000);
    let guard = make(sim)?.guard(config)?;
    let outcome = (|| {
        let (first, second) = (device.stream()?, device.stream()?);
        for _ in 0..2 {
            let block = Held::allocate(&guard, layout_of(1000), first.as_ref())?;
            let filled = block.try_fill(1, first.as_ref());
            block.free(first.as_ref());
            filled?;
            let block = Held::allocate(&guard, layout_of(1000), first.as_ref())?;
            let ordered = second.wait_for_stream(&first);
            // Without it the block was used by nobody on the second.
            block.free(if ordered.is_ok() { second.as_ref() } else { first.as_ref() });
            ordered?;
        }
        Held::allocate_sync(&guard, layout_of(1000))?.free_sync();
        // Does not fit into the quarantine.
        Held::allocate_sync(&guard, layout_of(10_000))?.free_sync();
        Held::allocate(&guard, layout_of(10_000), second.as_ref())?.free(second.as_ref());
        second.synchronize()?;
        guard.trim(0)?;
        Held::allocate(&guard, layout_of(500), second.as_ref())?.free(second.as_ref());
        second.synchronize()?;
        guard.book().check()
    })();
    let found = guard.book().violations();
    assert!(found.is_empty(), "a clean program was told of: {}", found[0]);
    drop(guard);
    outcome.and(device.synchronize())
}

#[test]
fn every_call_fails_once_below_it_and_nothing_is_lost_or_told() {
    let swept = Sweep::new().run(|sim| use_guard(sim, |sim| Ok(Cuda::new(&sim.device(0)))));
    assert!(swept.calls > 60 && swept.errors > 10, "{swept}");
    let swept = Sweep::new().run(|sim| use_guard(sim, |sim| CudaAsync::new(&sim.device(0))));
    assert!(swept.calls > 60 && swept.errors > 10, "{swept}");
    let pool = |sim: &Sim| Cuda::new(&sim.device(0)).pool(PoolConfig::default().checked(true));
    let swept = Sweep::new().run(|sim| use_guard(sim, pool));
    assert!(swept.calls > 60 && swept.errors > 10, "{swept}");
}

/// What cannot be poisoned or copied is still freed once, and in order.
#[test]
fn a_driver_that_refuses_everything_for_a_while_loses_nothing() {
    for call in [
        Call::FillAsync,
        Call::CopyAsync,
        Call::EventRecord,
        Call::StreamWaitEvent,
        Call::StreamCaptureStatus,
    ] {
        let bench = Bench::sim();
        let sim = bench.simulated().unwrap();
        let stream = bench.stream();
        let upstream = Shadow::new(Cuda::new(&bench.device()).pool(PoolConfig::default()).unwrap());
        let guard = upstream.guard(GuardConfig::default().quarantine(3000)).unwrap();
        let blocks: Vec<_> = (0..10).map(|_| Held::of(&guard, 1000, stream.as_ref())).collect();
        sim.inject(Fault::every(call, Code::OUT_OF_MEMORY));
        blocks.into_iter().for_each(|block| block.free(stream.as_ref()));
        let _ = guard.allocate(layout_of(1000), stream.as_ref()).map(|block| {
            Held::adopt(&guard, block, layout_of(1000)).free(stream.as_ref());
        });
        sim.clear_faults();
        stream.synchronize().unwrap();
        guard.book().check().unwrap();
        guard.trim(0).unwrap();
        let watch: &GuardBook = guard.book();
        assert_eq!((watch.found(), watch.live_blocks(), watch.quarantined_bytes()), (0, 0, 0), "{call:?}");
        guard.upstream().assert_clean();
        drop(guard);
        bench.check();
    }
}

/// A copy that fails half way may be under way. What it writes to is leaked; a copy that was refused writes to nothing.
#[test]
fn memory_that_a_failed_copy_may_write_to_is_not_used_again() {
    for (code, is_leaked) in
        [(Code::OUT_OF_MEMORY, false), (Code::INVALID_VALUE, false), (Code::UNKNOWN, true)]
    {
        let bench = Bench::sim();
        let sim = bench.simulated().unwrap();
        let stream = bench.stream();
        let before = sim.live().registered + sim.live().pinned;
        let guard = Cuda::new(&bench.device()).guard(GuardConfig::default()).unwrap();
        let block = Held::of(&guard, 1000, stream.as_ref());
        sim.inject(Fault::every(Call::CopyAsync, code));
        block.free(stream.as_ref());
        sim.clear_faults();
        drop(guard);
        assert_eq!(sim.live().registered + sim.live().pinned > before, is_leaked, "{code}");
    }
}

/// Where nobody is named, a finding goes to the standard error stream. This program again, as a child, has one to look at.
#[test]
fn by_default_a_finding_is_said_to_the_error_stream() {
    const CHILD: &str = "ALLUVION_TEST_GUARD";
    if env::var_os(CHILD).is_some() {
        let bench = Bench::sim();
        let guard = Shadow::new(Cuda::new(&bench.device())).guard(GuardConfig::default()).unwrap();
        let (pointer, layout) = Held::of(&guard, 1000, bench.stream().as_ref()).into_parts();
        // SAFETY: nothing uses the block.
        unsafe { guard.deallocate_sync(pointer, layout) };
        // SAFETY: the guard refuses it.
        unsafe { guard.deallocate_sync(pointer, layout) };
        // The simulated machine hears of it, too.
        assert_eq!(bench.simulated().unwrap().take_hazards().len(), 1);
        return;
    }
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "guard::by_default_a_finding_is_said_to_the_error_stream", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{words}");
    let line = words.lines().find(|line| line.starts_with("alluvion: a guard has found: block 0x"));
    assert!(
        line.is_some_and(|line| line.ends_with("of 1000 bytes, freed synchronously: it is not live")),
        "{words}"
    );
}
