//! `Vec` over pinned memory, with a pool and without, against `Vec` over the heap: growing it, and filling it.

#[path = "../examples/machine/mod.rs"]
mod machine;

use std::hint::black_box;

use alluvion::host::{Allocator, Vec};
use alluvion::source::Pinned;
use alluvion::{NewDelete, PinnedAlloc, PoolConfig, ResourceExt};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// Pushes `count` numbers into a vector that grows as it must.
fn push(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, count: u64, alloc: &(impl Allocator + Clone)) {
    group.bench_function(BenchmarkId::new(name, count), |bencher| {
        bencher.iter(|| {
            let mut numbers = Vec::new_in(alloc.clone());
            (0..count).for_each(|number| numbers.push(black_box(number)));
            black_box(numbers.len())
        });
    });
}

/// Pushes into a vector that has room: what the memory itself costs, once it is there.
fn refill(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    count: u64,
    alloc: &(impl Allocator + Clone),
) {
    let mut numbers = Vec::with_capacity_in(count as usize, alloc.clone());
    group.bench_function(BenchmarkId::new(name, count), |bencher| {
        bencher.iter(|| {
            numbers.clear();
            (0..count).for_each(|number| numbers.push(black_box(number)));
            black_box(numbers.len())
        });
    });
}

fn pinned_vec(criterion: &mut Criterion) {
    let machine = machine::choose().expect("there is a machine, if a simulated one");
    let pinned = PinnedAlloc::new(&machine.device).expect("the machine pins memory");
    let pool = Pinned::new(&machine.device).and_then(|pinned| pinned.pool(PoolConfig::default()));
    let pooled = PinnedAlloc::from_resource(pool.expect("a pool that begins empty is made"));
    for count in [1_000, 1_000_000] {
        let mut group = criterion.benchmark_group("pinned_vec/push, growing");
        group.throughput(Throughput::Elements(count));
        push(&mut group, "the heap", count, &NewDelete);
        push(&mut group, "pinned", count, &pinned);
        push(&mut group, "a pool of pinned", count, &pooled);
        group.finish();
        let mut group = criterion.benchmark_group("pinned_vec/push, with room");
        group.throughput(Throughput::Elements(count));
        refill(&mut group, "the heap", count, &NewDelete);
        refill(&mut group, "pinned", count, &pinned);
        group.finish();
    }
}

criterion_group!(benches, pinned_vec);
criterion_main!(benches);
