//! What a handle costs: the same pair of calls, through every way to hold a resource.
//!
//! `Null` is inlined to one atomic addition, so a static form that costs anything shows. Erased forms cannot
//! hold `Null`, which has no memory; they are measured over `Bump`, and against `Bump` itself.

#[path = "bump/mod.rs"]
mod bump;

use std::hint::black_box;
use std::sync::Arc;

use alluvion::source::Null;
use alluvion::{AnyResource, Layout, Resource, ResourceRef, Sim, StreamRef};
use bump::Bump;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};

/// Allocates and deallocates 1 KiB.
fn pair<R: Resource>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    resource: R,
    stream: StreamRef<'_>,
) {
    #![expect(unsafe_code, reason = "gives back what it allocates")]
    let layout = Layout::from_bytes(1024).expect("1 KiB is a size");
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let resource = black_box(&resource);
            let block = resource.allocate(black_box(layout), stream).expect("the source has memory");
            // SAFETY: the block came from this resource with this layout, and nothing uses it.
            unsafe { resource.deallocate(black_box(block), layout, stream) };
        });
    });
}

fn handles_of_null(criterion: &mut Criterion) {
    let sim = Sim::with_config(alluvion::sim::SimConfig::default().watch_blocks(false));
    let device = sim.device(0);
    let stream = device.stream().expect("a simulated device makes streams");
    let (stream, null) = (stream.as_ref(), Null::new(&device));
    let mut group = criterion.benchmark_group("handle/Null");
    pair(&mut group, "&R", &null, stream);
    pair::<&&Null>(&mut group, "&&R", &&null, stream);
    pair(&mut group, "ResourceRef<R>", ResourceRef::new(&null), stream);
    pair(&mut group, "Box<R>", Box::new(Null::new(&device)), stream);
    pair(&mut group, "Arc<R>", Arc::new(Null::new(&device)), stream);
    pair(&mut group, "&dyn Resource", &null as &dyn Resource, stream);
    pair(&mut group, "R", null, stream);
    group.finish();
}

fn handles_of_bump(criterion: &mut Criterion) {
    let sim = Sim::with_config(alluvion::sim::SimConfig::default().watch_blocks(false));
    let device = sim.device(0);
    let stream = device.stream().expect("a simulated device makes streams");
    let bump = || Bump::new(&device, 1 << 20).expect("a simulated device has 1 MiB");
    let (stream, resource) = (stream.as_ref(), bump());
    let mut group = criterion.benchmark_group("handle/Bump");
    pair(&mut group, "&R", &resource, stream);
    pair(&mut group, "ResourceRef<R>", ResourceRef::new(&resource), stream);
    pair(&mut group, "ResourceRef (erased)", ResourceRef::erase(&resource), stream);
    pair(&mut group, "AnyResource", AnyResource::new(bump()), stream);
    pair(&mut group, "R", resource, stream);
    group.finish();
}

criterion_group!(benches, handles_of_null, handles_of_bump);
criterion_main!(benches);
