//! A run that is logged, read and run again has the same curve of live bytes; packed or not.

use alluvion::adaptor::{Log, LogConfig};
use alluvion::source::Cuda;
use alluvion::testing::Bench;
use alluvion::trace::{EventKind, Trace};
use alluvion::{PoolConfig, Resource, ResourceExt, Sim, Stream};

use crate::log_files::{Paper, Scratch};
use crate::raw_block::{Held, layout_of};

const STREAMS: usize = 3;

fn sim() -> Sim {
    Sim::with_config(Bench::config().devices(1).memory_bytes(1 << 30))
}

/// Live bytes after each event.
fn curve_of(trace: &Trace) -> Vec<u64> {
    let mut live = 0;
    let curve = trace.events.iter().map(|event| {
        match event.kind {
            EventKind::Allocate => live += event.bytes,
            EventKind::Free => live -= event.bytes,
        }
        live
    });
    curve.collect()
}

/// A program with blocks of all sizes on three streams, and some requests that fail. Returns its curve of live bytes.
fn run<R: Resource>(resource: &R, streams: &[Stream]) -> Vec<u64> {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let (mut live, mut curve) = (Vec::<Held<'_, R>>::new(), Vec::new());
    let mut live_bytes = 0;
    for step in 0..4000 {
        let stream = streams[random(STREAMS as u64) as usize].as_ref();
        if live.len() > 60 || (!live.is_empty() && random(2) == 0) {
            let block = live.swap_remove(random(live.len() as u64) as usize);
            live_bytes -= block.layout.bytes() as u64;
            block.free(stream);
        } else {
            let scale = 1 + random(20);
            let bytes = 1 + random(1 << scale);
            live_bytes += bytes;
            live.push(Held::of(resource, bytes as usize, stream));
        }
        curve.push(live_bytes);
        if step % 1000 == 0 {
            assert!(resource.allocate(layout_of(1 << 45), stream).is_err());
            Held::of(resource, 0, stream).free(stream);
        }
    }
    for block in live {
        live_bytes -= block.layout.bytes() as u64;
        block.free(streams[0].as_ref());
        curve.push(live_bytes);
    }
    curve
}

/// Does what a trace says.
fn replay<R: Resource>(resource: &R, trace: &Trace, streams: &[Stream]) {
    let mut live: Vec<Option<Held<'_, R>>> = (0..trace.blocks).map(|_| None).collect();
    for event in &trace.events {
        let stream = streams[event.stream as usize].as_ref();
        let block = &mut live[event.block as usize];
        match event.kind {
            EventKind::Allocate => *block = Some(Held::of(resource, event.bytes as usize, stream)),
            EventKind::Free => block.take().expect("it is live").free(stream),
        }
    }
}

#[test]
fn a_run_its_log_and_the_run_of_its_log_have_one_curve() {
    let (sim, first) = (sim(), Paper::default());
    let device = sim.device(0);
    let streams: Vec<Stream> = (0..STREAMS).map(|_| device.stream().unwrap()).collect();
    let pool = || Cuda::new(&device).pool(PoolConfig::default()).unwrap();
    let resource = pool().logging(Log::write_to(first.clone()).unwrap());
    let truth = run(&resource, &streams);
    drop(resource);
    let trace = Trace::from_rmm_csv(first.text().as_bytes()).unwrap();
    assert_eq!((trace.streams, trace.threads, trace.failures, trace.strays), (STREAMS as u32, 1, 4, 0));
    assert_eq!(curve_of(&trace), truth);
    // The handles of the streams are kept too.
    let mut handles: Vec<u64> = streams.iter().map(|stream| stream.as_ref().raw().0).collect();
    let mut logged = trace.stream_handles.clone();
    handles.sort_unstable();
    logged.sort_unstable();
    assert_eq!(logged, handles);

    let second = Paper::default();
    let resource = pool().logging(Log::write_to(second.clone()).unwrap());
    replay(&resource, &trace, &streams);
    drop(resource);
    let again = Trace::from_rmm_csv(second.text().as_bytes()).unwrap();
    assert_eq!((again.failures, again.strays, again.blocks), (0, 0, trace.blocks));
    assert_eq!(curve_of(&again), truth);
    assert_eq!(again.peak_live_bytes(), trace.peak_live_bytes());
    assert!(sim.hazards().is_empty());
}

/// With each event what was reserved then, by which a picture of the run is drawn.
#[test]
fn what_is_reserved_never_falls_below_what_is_live() {
    let (sim, paper) = (sim(), Paper::default());
    let device = sim.device(0);
    let streams: Vec<Stream> = (0..STREAMS).map(|_| device.stream().unwrap()).collect();
    let log = LogConfig::default().reserved(true).write_to(paper.clone()).unwrap();
    let resource = Cuda::new(&device).pool(PoolConfig::default()).unwrap().logging(log);
    let truth = run(&resource, &streams);
    drop(resource);
    let trace = Trace::from_rmm_csv(paper.text().as_bytes()).unwrap();
    let reserved: Vec<u64> = trace.moments.iter().filter_map(|moment| moment.reserved_bytes).collect();
    assert_eq!(reserved.len(), truth.len());
    assert!(truth.iter().zip(&reserved).all(|(live, reserved)| live <= reserved));
}

#[cfg(not(feature = "gzip"))]
#[test]
fn a_name_that_ends_in_gz_needs_the_feature() {
    let scratch = Scratch::new("packed.csv.gz");
    let error = Log::create(&scratch.0).unwrap_err();
    assert!(error.is_unsupported(), "{error}");
    assert!(error.to_string().contains("feature `gzip`"), "{error}");
    assert!(!scratch.0.exists(), "nothing was made");
}

#[cfg(feature = "gzip")]
#[test]
fn a_packed_log_is_whole_whenever_it_was_flushed() {
    let (sim, scratch) = (sim(), Scratch::new("packed.csv.GZ"));
    let device = sim.device(0);
    let streams: Vec<Stream> = (0..STREAMS).map(|_| device.stream().unwrap()).collect();
    let resource = Cuda::new(&device).logging(Log::create(&scratch.0).unwrap());
    resource.book().flush().unwrap();
    assert_eq!(Trace::read(&scratch.0).unwrap().events.len(), 0);
    let mut truth = run(&resource, &streams);
    resource.book().flush().unwrap();
    assert_eq!(curve_of(&Trace::read(&scratch.0).unwrap()), truth);
    truth.extend(run(&resource, &streams));
    drop(resource);
    assert_eq!(curve_of(&Trace::read(&scratch.0).unwrap()), truth);
    assert!(std::fs::read(&scratch.0).unwrap().starts_with(&[0x1f, 0x8b]));
}
