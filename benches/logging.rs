//! What writing a log costs: on the thread that allocates, and how fast the writer follows.
//!
//! `event` is timed in bursts of half the log's room, so that it is the calling thread's part alone; `sustained` is timed with the
//! writer keeping up, row by row, as a program that does nothing else would feel it.

#![expect(unsafe_code, reason = "gives back what it allocates")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use alluvion::adaptor::{Log, LogConfig};
use alluvion::source::Null;
use alluvion::{Layout, Resource, ResourceExt, Sim, StreamRef};
use criterion::{Criterion, criterion_group, criterion_main};

/// Half of the room of a log: 4096 pairs.
const BURST: u64 = 4096;

fn pairs<R: Resource>(resource: &R, stream: StreamRef<'_>, count: u64) {
    let layout = Layout::from_bytes(1024).expect("1 KiB is a size");
    for _ in 0..count {
        let block = black_box(resource).allocate(black_box(layout), stream).expect("`Null` refuses nothing");
        // SAFETY: the block came from this resource with this layout, and nothing uses it.
        unsafe { resource.deallocate(black_box(block), layout, stream) };
    }
}

/// The time of `count` pairs, in bursts; between them the writer catches up.
fn in_bursts<R: Resource>(resource: &R, stream: StreamRef<'_>, log: Option<&Log>, count: u64) -> Duration {
    let (mut left, mut taken) = (count, Duration::ZERO);
    while left > 0 {
        let burst = left.min(BURST);
        let begun = Instant::now();
        pairs(resource, stream, burst);
        taken += begun.elapsed();
        log.map_or(Ok(()), Log::flush).expect("a sink takes everything");
        left -= burst;
    }
    taken
}

fn pair(criterion: &mut Criterion) {
    let sim = Sim::with_config(alluvion::sim::SimConfig::default().watch_blocks(false));
    let device = sim.device(0);
    let stream = device.stream().expect("a simulated device makes streams");
    let stream = stream.as_ref();
    let mut group = criterion.benchmark_group("logging");
    let null = Null::new(&device);
    group.bench_function("pair/Null", |bencher| {
        bencher.iter_custom(|count| in_bursts(&null, stream, None, count));
    });
    for (name, config) in [
        ("pair/Logging<Null>", LogConfig::default()),
        ("pair/Logging<Null> with tags and reserved", LogConfig::default().tags(true).reserved(true)),
    ] {
        let logged =
            Null::new(&device).logging(config.write_to(std::io::sink()).expect("there is a thread for it"));
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| in_bursts(&logged, stream, Some(logged.book()), count));
        });
        assert_eq!(logged.book().stalls(), 0, "a burst has room");
    }
    let logged =
        Null::new(&device).logging(Log::write_to(std::io::sink()).expect("there is a thread for it"));
    group.bench_function("sustained/Logging<Null>", |bencher| {
        bencher.iter(|| pairs(&logged, stream, 1));
    });
    group.finish();
}

criterion_group!(benches, pair);
criterion_main!(benches);
