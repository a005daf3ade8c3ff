//! What a container costs over what its memory costs: create and drop, against a bare pair of calls.

#[path = "bump/mod.rs"]
mod bump;

use std::hint::black_box;

use alluvion::source::CudaAsync;
use alluvion::{AnyResource, DeviceBuffer, DeviceVec, Layout, Resource, ResourceRef, Sim};
use bump::Bump;
use criterion::{Criterion, criterion_group, criterion_main};

/// Elements of a vector: 4 KiB, which nothing rounds up.
const COUNT: usize = 1024;

fn create_and_drop(criterion: &mut Criterion) {
    #![expect(unsafe_code, reason = "gives back what it allocates")]
    let sim = Sim::with_config(alluvion::sim::SimConfig::default().watch_blocks(false));
    let device = sim.device(0);
    let streams = (device.stream().expect("it makes streams"), device.stream().expect("it makes streams"));
    let (stream, second) = (streams.0.as_ref(), streams.1.as_ref());
    let bump = Bump::new(&device, 1 << 20).expect("a simulated device has 1 MiB");
    let erased = AnyResource::new(Bump::new(&device, 1 << 20).expect("a simulated device has 1 MiB"));
    let layout = Layout::array::<u32>(COUNT).expect("4 KiB is a size");

    let mut group = criterion.benchmark_group("create and drop/Bump");
    group.bench_function("allocate, deallocate", |bencher| {
        bencher.iter(|| {
            let block = bump.allocate(black_box(layout), stream).expect("the source has memory");
            // SAFETY: the block came from this resource with this layout, and nothing uses it.
            unsafe { bump.deallocate(black_box(block), layout, stream) };
        });
    });
    group.bench_function("DeviceBuffer<&R>", |bencher| {
        bencher.iter(|| {
            drop(black_box(
                DeviceBuffer::uninit_in(layout.bytes(), stream, &bump).expect("the source has memory"),
            ));
        });
    });
    group.bench_function("DeviceVec<u32, &R>", |bencher| {
        bencher.iter(|| {
            drop(black_box(
                DeviceVec::<u32, _>::uninit_in(COUNT, stream, &bump).expect("the source has memory"),
            ));
        });
    });
    group.bench_function("DeviceVec<u32, ResourceRef>", |bencher| {
        let resource = ResourceRef::erase(&bump);
        bencher.iter(|| {
            drop(black_box(
                DeviceVec::<u32, _>::uninit_in(COUNT, stream, resource).expect("the source has memory"),
            ));
        });
    });
    group.bench_function("DeviceVec<u32, AnyResource>", |bencher| {
        bencher.iter(|| {
            drop(black_box(
                DeviceVec::<u32, _>::uninit_in(COUNT, stream, erased.clone()).expect("the source has memory"),
            ));
        });
    });
    // The default: the device is asked for its current resource first.
    let before = device.set_current_resource(erased.clone()).expect("the resource is of this device");
    group.bench_function("DeviceVec<u32> (current resource)", |bencher| {
        bencher.iter(|| {
            drop(black_box(DeviceVec::<u32>::uninit(COUNT, stream).expect("the source has memory")));
        });
    });
    drop((device.set_current_resource(before), erased));
    group.bench_function("DeviceVec<u32, &R>, read on a second stream", |bencher| {
        bencher.iter(|| {
            let vector = DeviceVec::<u32, _>::uninit_in(COUNT, stream, &bump).expect("the source has memory");
            drop(black_box(vector.read_on(second)));
        });
    });
    group.finish();

    // The calls are simulated and cost no simulated time: what is measured is this crate and the simulator's
    // bookkeeping.
    let pool = CudaAsync::new(&device).expect("the simulated device has memory pools");
    let mut group = criterion.benchmark_group("create and drop/CudaAsync, simulated");
    group.bench_function("DeviceVec<u32, &R>", |bencher| {
        bencher.iter(|| {
            drop(black_box(
                DeviceVec::<u32, _>::uninit_in(COUNT, stream, &pool).expect("the source has memory"),
            ));
        });
    });
    group.finish();
}

criterion_group!(benches, create_and_drop);
criterion_main!(benches);
