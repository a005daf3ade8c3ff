//! `ThreadSafe` over resources that are not `Sync`: one thread at a time, and calls from within.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier, OnceLock, Weak};
use std::thread;

use alluvion::adaptor::ThreadSafe;
use alluvion::driver::CaptureMode;
use alluvion::source::{Cuda, CudaAsync};
use alluvion::testing::{Bench, Sweep};
use alluvion::{
    AnyResource, DeviceVec, Error, ErrorKind, Layout, OnHost, PoolConfig, Resource, ResourceExt, Sim, Stream,
};

use crate::not_sync::OneAtATime;
use crate::raw_block::{Held, layout_of};

type Shared = ThreadSafe<OneAtATime<Cuda>>;

#[test]
fn four_threads_go_in_one_after_the_other() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 300;
    let bench = Bench::sim();
    let device = bench.device();
    let shared = OneAtATime::new(CudaAsync::new(&device).unwrap()).thread_safe();
    let together = Barrier::new(THREADS);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let stream = device.stream().expect("a stream can be made");
                together.wait();
                for _ in 0..ROUNDS {
                    let block = Held::of(&shared, 1000, stream.as_ref());
                    shared.trim(usize::MAX).expect("trimming succeeds");
                    shared.memory_info().expect("the device knows its memory");
                    assert!(!shared.describe().to_string().is_empty());
                    block.free(stream.as_ref());
                }
            });
        }
    });
    let calls = shared.look(OneAtATime::calls).expect("nobody is inside");
    // Four calls a round that go through to it; of the description two do, its own line and the question what is under it.
    assert!(calls >= (THREADS * ROUNDS * 4) as u64, "{calls}");
    assert_eq!((shared.book().refused(), shared.book().parked()), (0, 0));
    bench.check();
}

#[test]
fn the_layers_below_are_described_and_lent_but_not_handed_out() {
    let bench = Bench::sim();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().initial(1 << 20)).unwrap();
    let shared = Arc::new(OneAtATime::new(pool).thread_safe());
    assert!(shared.upstream().is_none());
    assert!(shared.find::<ThreadSafe>().is_some() && shared.find::<Cuda>().is_none());
    let described = "ThreadSafe(OneAtATime > Pool(1 MiB) > Cuda(gpu 0))";
    assert_eq!((shared.describe().to_string(), format!("{shared:?}")), (described.into(), described.into()));
    assert_eq!(shared.max_align(), shared.look(Resource::max_align).unwrap());
    assert_eq!(shared.id(), shared.look(Resource::id).unwrap());
    let trimmed = shared.trim(0).unwrap();
    assert_eq!(trimmed, 1 << 20, "it reaches the pool");
    bench.check();
}

#[test]
fn memory_of_the_host_is_still_the_hosts() {
    let bench = Bench::sim();
    let pinned = OneAtATime::new(alluvion::source::Pinned::new(&bench.device()).unwrap()).thread_safe();
    let mut numbers = allocator_api2::vec::Vec::new_in(OnHost::new(&pinned));
    numbers.extend(0..1000_u32);
    assert_eq!(numbers.iter().sum::<u32>(), 499_500);
}

/// A resource that comes back to itself in the middle of a call, and does there what it is told.
fn coming_back<T>(
    bench: &Bench,
    within: impl Fn(&Shared) -> T + Send + 'static,
    while_freeing: bool,
) -> (Arc<Shared>, Receiver<T>)
where
    T: Send + 'static,
{
    let (tell, told) = mpsc::channel();
    let known = Arc::new(OnceLock::<Weak<Shared>>::new());
    let shared = Arc::clone(&known);
    let done = Cell::new(false);
    let once = move || {
        if !done.replace(true) {
            let shared = shared.get().and_then(Weak::upgrade).expect("it is called after it was told");
            let _ = tell.send(within(&shared));
        }
    };
    let upstream = OneAtATime::new(Cuda::new(&bench.device()));
    let upstream =
        if while_freeing { upstream.within_deallocate(once) } else { upstream.within_allocate(once) };
    let shared = Arc::new(upstream.thread_safe());
    known.set(Arc::downgrade(&shared)).expect("it is told once");
    (shared, told)
}

#[test]
fn questions_from_within_are_refused() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let (shared, told) = coming_back(
        &bench,
        |shared| {
            let stream = shared.device().stream().expect("a stream can be made");
            let layout = layout_of(100);
            let errors = [
                shared.allocate(layout, stream.as_ref()).unwrap_err(),
                shared.allocate_sync(layout).unwrap_err(),
                shared.trim(0).unwrap_err(),
                shared.memory_info().unwrap_err(),
                shared.look(OneAtATime::calls).unwrap_err(),
            ];
            (errors, shared.describe().to_string(), shared.max_align())
        },
        false,
    );
    Held::of(&*shared, 100, stream.as_ref()).free(stream.as_ref());
    let (errors, described, _) = told.recv().expect("it came back");
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("in the middle of a call on this thread"), "{error}");
    }
    assert_eq!(described, "ThreadSafe(in use)");
    assert_eq!(shared.book().refused(), 4, "what was only looked at is no request");
    bench.check();
}

/// What is freed from within goes back before the outer call is over, behind the work that it was freed behind.
#[test]
fn blocks_freed_from_within_are_parked() {
    for seed in 0..8 {
        for while_freeing in [false, true] {
            let bench = Bench::sim_with(Bench::config().seed(seed));
            let (give, given): (Sender<(Stream, _, _)>, _) = mpsc::channel();
            let (shared, told) = coming_back(
                &bench,
                move |shared| {
                    let mut many = 0;
                    while let Ok((stream, pointer, layout)) = given.try_recv() {
                        let block = Held::adopt(shared, pointer, layout);
                        block.fill(7, Stream::as_ref(&stream));
                        block.free(stream.as_ref());
                        let empty = Held::allocate_sync(shared, layout_of(0));
                        assert!(empty.is_err(), "also nothing is refused");
                        Held::adopt(shared, layout_of(0).dangling(), layout_of(0)).free_sync();
                        many += 1;
                    }
                    (many, shared.book().waiting())
                },
                while_freeing,
            );
            let stream = bench.stream();
            // The first two calls do not come back: nobody has given anything.
            let live = bench.simulated().map(|sim| sim.live().allocations());
            let upstream = Cuda::new(&bench.device());
            for bytes in [1000, 5000] {
                // Of the same source, so this one may free them.
                let block = Held::of(&upstream, bytes, stream.as_ref());
                let (pointer, layout) = block.into_parts();
                give.send((bench.stream(), pointer, layout)).expect("it has the other end");
            }
            let outer = Held::of(&*shared, 100, stream.as_ref());
            outer.free(stream.as_ref());
            assert_eq!(told.recv().expect("it came back"), (2, 2));
            assert_eq!((shared.book().parked(), shared.book().waiting()), (2, 0));
            assert_eq!(bench.simulated().map(|sim| sim.live().allocations()), live, "all went back");
            bench.check();
        }
    }
}

/// A block that is freed on a stream that captures then waits for the end of the capture, and the next call.
#[test]
fn a_block_freed_from_within_on_a_capturing_stream_waits() {
    let bench = Bench::sim();
    let (give, given): (Sender<(Stream, _, _)>, _) = mpsc::channel();
    let (shared, told) = coming_back(
        &bench,
        move |shared| {
            let (stream, pointer, layout) = given.try_recv().expect("it was given a block");
            Held::adopt(shared, pointer, layout).free(stream.as_ref());
        },
        false,
    );
    let (stream, capturing) = (bench.stream(), bench.stream());
    let (pointer, layout) = Held::of(&Cuda::new(&bench.device()), 1000, capturing.as_ref()).into_parts();
    let live = bench.simulated().map(|sim| sim.live().allocations());
    give.send((capturing.clone(), pointer, layout)).expect("it has the other end");
    let (sim, ordinal, raw) =
        (bench.simulated().unwrap(), bench.device().ordinal(), capturing.as_ref().raw());
    sim.begin_capture(ordinal, raw, CaptureMode::Relaxed).expect("the stream can capture");
    let outer = Held::of(&*shared, 100, stream.as_ref());
    told.recv().expect("it came back");
    assert_eq!(shared.book().waiting(), 1);
    drop(sim.end_capture(ordinal, raw).expect("the capture was not broken"));
    outer.free(stream.as_ref());
    assert_eq!(shared.book().waiting(), 0);
    assert_eq!(
        bench.simulated().map(|sim| sim.live().allocations()),
        live.map(|live| live - 1),
        "both went back"
    );
    bench.check();
}

#[test]
fn a_container_may_be_dropped_on_any_thread() {
    let bench = Bench::sim();
    let (device, stream) = (bench.device(), bench.stream());
    let shared = AnyResource::new(OneAtATime::new(CudaAsync::new(&device).unwrap()).thread_safe());
    let vectors: Vec<_> = (0..4)
        .map(|value| DeviceVec::filled_in(1000, value, stream.as_ref(), shared.clone()).unwrap())
        .collect();
    thread::scope(|scope| {
        for vector in vectors {
            scope.spawn(move || drop(vector));
        }
    });
    bench.check();
}

#[test]
fn a_call_that_fails_leaves_the_lock_open() {
    let swept = Sweep::new().run(|sim: &Sim| -> Result<(), Error> {
        let (device, stream) = (sim.device(0), sim.device(0).stream()?);
        // Has the machine make what it keeps: a stream of its own.
        Held::allocate_sync(&Cuda::new(&device).limiting(1 << 20), layout_of(256))?.free_sync();
        let shared = OneAtATime::new(Cuda::new(&device)).thread_safe();
        let outcome = [100, 5000].into_iter().try_for_each(|bytes| {
            let layout = Layout::from_bytes(bytes)?;
            Held::allocate(&shared, layout, stream.as_ref())?.free(stream.as_ref());
            Held::allocate_sync(&shared, layout).map(Held::free_sync)
        });
        assert!(shared.look(OneAtATime::calls).is_ok(), "nobody is inside");
        outcome.and(stream.synchronize())
    });
    assert!(swept.errors > 0, "{swept}");
}

#[test]
fn a_look_that_panics_lets_the_next_one_in() {
    let bench = Bench::sim();
    let shared = OneAtATime::new(Cuda::new(&bench.device())).thread_safe();
    let looks = AtomicU64::new(0);
    let thrown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        shared.look(|_| {
            looks.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("on purpose"))
        })
    }));
    assert!(thrown.is_err() && looks.load(Ordering::Relaxed) == 1);
    assert!(shared.look(OneAtATime::calls).is_ok());
    assert!(thread::scope(|scope| scope.spawn(|| shared.look(OneAtATime::calls).is_ok()).join().unwrap()));
}
