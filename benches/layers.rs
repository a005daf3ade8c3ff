//! What a layer costs: the same pair of calls through 0 to 5 layers, and through each alone, over nothing and over a pool, on one
//! thread and on many.
//!
//! The difference to the line without layers is what they cost. `alluvion bench layers` prints the same differences.

#[cfg_attr(test, expect(dead_code, unused_imports, reason = "its tests run with the program's"))]
#[path = "../cli/src/workload/mod.rs"]
mod workload;

use std::thread;
use std::time::{Duration, Instant};

use alluvion::source::Null;
use alluvion::{Device, Error, Pool, PoolConfig, Resource, Sim};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use workload::layered::each_layered;
use workload::{Block, StartLine};

const BYTES: usize = 1024;

/// Threads of the second measurement: those of the machine that the pool is measured on.
const THREADS: usize = 16;

fn one<R: Resource>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, resource: R) {
    let stream = resource.device().stream().expect("a simulated device makes streams");
    group.bench_function(name, |bencher| {
        bencher.iter(|| Block::pair(&resource, BYTES, stream.as_ref()).expect("there is room"));
    });
}

fn many<R: Resource + Sync>(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, resource: R) {
    group.bench_function(name, |bencher| bencher.iter_custom(|pairs| together(&resource, pairs)));
}

/// From the first thread that begins to the last that ends.
fn together<R: Resource + Sync>(resource: &R, pairs: u64) -> Duration {
    let line = StartLine::new(THREADS);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let stream = resource.device().stream().expect("a simulated device makes streams");
                    Block::pair(resource, BYTES, stream.as_ref()).expect("there is room");
                    line.wait();
                    let begun = Instant::now();
                    for _ in 0..pairs {
                        Block::pair(resource, BYTES, stream.as_ref()).expect("there is room");
                    }
                    let ended = Instant::now();
                    line.wait();
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

fn pool(device: &Device) -> Pool<Null> {
    Pool::new(Null::new(device), PoolConfig::default().initial(64 << 20)).expect("the device has room")
}

fn over_null(criterion: &mut Criterion) -> Result<(), Error> {
    let sim = Sim::with_config(alluvion::sim::SimConfig::default().watch_blocks(false));
    let device = sim.device(0);
    let mut group = criterion.benchmark_group("layers/null");
    each_layered!(Null::new(&device), |name, stack| one(&mut group, name, stack));
    Ok(())
}

fn over_a_pool(criterion: &mut Criterion) -> Result<(), Error> {
    let sim = Sim::with_config(alluvion::sim::SimConfig::default().watch_blocks(false));
    let device = sim.device(0);
    let mut group = criterion.benchmark_group("layers/pool");
    each_layered!(pool(&device), |name, stack| one(&mut group, name, stack));
    Ok(())
}

/// Nanoseconds a pair of each thread: with as many processors as threads, the same as of one.
fn over_a_pool_on_many_threads(criterion: &mut Criterion) -> Result<(), Error> {
    let sim = Sim::with_config(alluvion::sim::SimConfig::default().watch_blocks(false));
    let device = sim.device(0);
    let mut group = criterion.benchmark_group("layers/pool, 16 threads");
    each_layered!(pool(&device), |name, stack| many(&mut group, name, stack));
    Ok(())
}

fn layers(criterion: &mut Criterion) {
    let all = [over_null, over_a_pool, over_a_pool_on_many_threads];
    all.into_iter().try_for_each(|measure| measure(criterion)).expect("every stack can be made");
}

criterion_group!(benches, layers);
criterion_main!(benches);
