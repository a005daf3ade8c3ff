//! What a pool costs the host's processor: the workloads of `alluvion bench` over `Null`, which has no memory and no
//! driver, beside mimalloc in the same process.

#[cfg_attr(test, expect(dead_code, unused_imports, reason = "its tests run with the program's"))]
#[path = "../cli/src/workload/mod.rs"]
mod workload;

use std::alloc::GlobalAlloc;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use alluvion::source::Null;
use alluvion::suballoc::Binning;
use alluvion::{Device, Pool, PoolConfig, Resource, Sim, Stream};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use mimalloc::MiMalloc;
use workload::{Block, Holes, StartLine, Walk, random_run};

/// Memory of the simulated device, which nobody touches.
const DEVICE_BYTES: usize = 141 << 30;

fn bed() -> (Sim, Device, Stream) {
    let sim =
        Sim::with_config(alluvion::sim::SimConfig::default().memory_bytes(DEVICE_BYTES).watch_blocks(false));
    let device = sim.device(0);
    let stream = device.stream().expect("a simulated device makes streams");
    (sim, device, stream)
}

fn pool(device: &Device, initial: usize) -> Pool<Null> {
    Pool::new(Null::new(device), PoolConfig::default().initial(initial)).expect("the device has room")
}

fn pair(criterion: &mut Criterion) {
    let (_sim, device, stream) = bed();
    let stream = stream.as_ref();
    for count in [0, 10_000, 100_000] {
        let pool = pool(&device, 100 << 30);
        let holes = Holes::make(&pool, count, stream).expect("there is room");
        let mut group = criterion.benchmark_group(format!("pair/{count} holes"));
        for bytes in [256_usize, 64 << 10, 1 << 20, 64 << 20] {
            group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
                bencher.iter(|| Block::pair(&pool, bytes, stream).expect("there is room"));
            });
        }
        group.finish();
        holes.give_back(stream);
    }
}

fn mimalloc(criterion: &mut Criterion) {
    #![expect(unsafe_code, reason = "calls an allocator directly")]
    let mut group = criterion.benchmark_group("pair/mimalloc");
    for bytes in [64_usize, 64 << 10, 1 << 20] {
        let layout = std::alloc::Layout::from_size_align(bytes, 16).expect("it is a layout");
        group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
            bencher.iter(|| {
                // SAFETY: the layout is not of size zero.
                let block = black_box(unsafe { MiMalloc.alloc(black_box(layout)) });
                assert!(!block.is_null(), "the host has {bytes} bytes");
                // SAFETY: the block came from this allocator with this layout, and nobody uses it.
                unsafe { MiMalloc.dealloc(block, layout) };
            });
        });
    }
    group.finish();
}

fn random(criterion: &mut Criterion) {
    let (_sim, device, stream) = bed();
    let mut group = criterion.benchmark_group("random");
    group.sample_size(10);
    for (num, max_mib) in [(1000, 1), (1000, 4096), (10_000, 1), (10_000, 64), (100_000, 1), (100_000, 64)] {
        let pool = pool(&device, 64 << 30);
        group.bench_function(BenchmarkId::from_parameter(format!("{num} up to {max_mib} MiB")), |bencher| {
            bencher
                .iter(|| random_run(&pool, num, max_mib, stream.as_ref()).expect("the source never fails"));
        });
    }
    group.finish();
}

fn cross(criterion: &mut Criterion) {
    let (_sim, device, first) = bed();
    let second = device.stream().expect("a simulated device makes streams");
    let pool = pool(&device, 0);
    criterion.bench_function("cross/two streams, 1 MiB", |bencher| {
        bencher.iter(|| {
            for stream in [&first, &second] {
                Block::pair(&pool, 1 << 20, stream.as_ref()).expect("there is room");
            }
        });
    });
}

/// Each of many streams in turn takes a small block and gives it back: with caches of the processor that hold what the streams
/// touch, the same for any number of them.
fn turns(criterion: &mut Criterion) {
    let (_sim, device, _) = bed();
    let mut group = criterion.benchmark_group("turns/a pair of 4 KiB");
    for count in [10, 100, 1000, 10_000] {
        let streams: Vec<Stream> =
            (0..count).map(|_| device.stream().expect("a simulated device makes streams")).collect();
        let pool = pool(&device, 0);
        let mut turn = streams.iter().cycle();
        let mut pair = || {
            let stream = turn.next().expect("there are streams");
            Block::pair(&pool, 4096, stream.as_ref()).expect("there is room");
        };
        // Until the pool has what all of them keep.
        (0..6 * count).for_each(|_| pair());
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| bencher.iter(&mut pair));
    }
    group.finish();
}

fn threads(criterion: &mut Criterion) {
    let (_sim, device, _) = bed();
    let pool = || pool(&device, 40 << 30);
    threads_of(criterion, "a step of each", pool);
    // Bins of 256 KiB to 4 MiB, the smallest of which serves 11 of 13 sizes.
    let bins = || Binning::over(pool()).range(18..=22).build().expect("the pool has room");
    threads_of(criterion, "a step of each, of bins", bins);
}

/// Nanoseconds a step of each thread: with as many processors as threads, the same for any number of them.
fn threads_of<R: Resource + Sync>(criterion: &mut Criterion, name: &str, make: impl Fn() -> R) {
    let mut group = criterion.benchmark_group(format!("threads/{name}"));
    for count in [1, 2, 4, 8, 16] {
        let resource = make();
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter_custom(|steps| together(&resource, count, steps as usize));
        });
    }
    group.finish();
}

fn together<R: Resource + Sync>(resource: &R, count: usize, steps: usize) -> Duration {
    let line = StartLine::new(count);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..count as u64)
            .map(|seed| {
                let line = &line;
                scope.spawn(move || {
                    let stream = resource.device().stream().expect("a simulated device makes streams");
                    let mut walk = Walk::new(resource, seed);
                    walk.steps(500, stream.as_ref()).expect("there is room");
                    line.wait();
                    let begun = Instant::now();
                    walk.steps(steps, stream.as_ref()).expect("there is room");
                    let ended = Instant::now();
                    line.wait();
                    walk.give_back(stream.as_ref());
                    (begun, ended)
                })
            })
            .collect();
        let spans: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("it ends")).collect();
        let begun = spans.iter().map(|(begun, _)| *begun).min().expect("there is a thread");
        let ended = spans.iter().map(|(_, ended)| *ended).max().expect("there is a thread");
        ended - begun
    })
}

criterion_group!(benches, pair, mimalloc, random, cross, turns, threads);
criterion_main!(benches);
