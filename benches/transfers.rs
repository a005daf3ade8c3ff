//! Copies between host and device: from ordinary and from pinned memory, waited for at once and owned until done.

#[path = "../examples/machine/mod.rs"]
mod machine;

use alluvion::host::{Allocator, Vec};
use alluvion::{DeviceVec, NewDelete, PinnedAlloc, StreamRef};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

/// One size and one kind of host memory, every way to copy.
fn copies(
    group: &mut BenchmarkGroup<'_, WallTime>,
    memory: &str,
    bytes: usize,
    alloc: impl Allocator + 'static,
    stream: StreamRef<'_>,
) {
    let mut host = Vec::new_in(alloc);
    host.resize(bytes, 1_u8);
    let mut device = DeviceVec::<u8>::zeroed(bytes, stream).expect("the device has memory");
    let id = |name: &str| BenchmarkId::new(format!("{name}, {memory}"), bytes);

    group.bench_function(id("upload, waiting"), |bencher| {
        bencher.iter(|| device.copy_from_slice(&host, stream).expect("it is copied"));
    });
    group.bench_function(id("download, waiting"), |bencher| {
        bencher.iter(|| device.copy_to_slice(&mut host, stream).expect("it is copied"));
    });
    // Four in a scope, one wait at its end: what a program gains that does not wait for each.
    group.bench_function(id("4 uploads in a scope, each"), |bencher| {
        bencher.iter_custom(|rounds| {
            let started = std::time::Instant::now();
            for _ in 0..rounds.div_ceil(4) {
                stream
                    .scope(|scope| (0..4).try_for_each(|_| scope.upload(&mut device, &host)))
                    .expect("they are copied");
            }
            started.elapsed() * rounds as u32 / (rounds.div_ceil(4) * 4) as u32
        });
    });
    // The buffer goes in and comes out, so it is kept in an option between rounds.
    let mut kept = Some(host);
    group.bench_function(id("upload, owned until done"), |bencher| {
        bencher.iter(|| {
            let host = kept.take().expect("it came back");
            let upload = device.upload(host, stream).expect("it is submitted");
            kept = Some(upload.wait().expect("it is copied"));
        });
    });
}

fn transfers(criterion: &mut Criterion) {
    let machine = machine::choose().expect("there is a machine, if a simulated one");
    let stream = machine.device.stream().expect("it makes streams");
    let pinned = PinnedAlloc::new(&machine.device).expect("the machine pins memory");
    for bytes in [4 << 10, 1 << 20, 32 << 20] {
        let mut group = criterion.benchmark_group("transfers");
        group.throughput(Throughput::Bytes(bytes as u64));
        copies(&mut group, "the heap", bytes, NewDelete, stream.as_ref());
        copies(&mut group, "pinned", bytes, pinned.clone(), stream.as_ref());
        group.finish();
    }
}

criterion_group!(benches, transfers);
criterion_main!(benches);
