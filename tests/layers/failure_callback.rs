//! `FailureCallback`: what a handler is told, how long it is asked, and what it may do meanwhile.

#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use alluvion::adaptor::FailureCallback;
use alluvion::driver::Code;
use alluvion::error::{Cause, OutOfMemory};
use alluvion::relief::Relief;
use alluvion::source::{Cuda, CudaAsync};
use alluvion::testing::{Bench, Faulty, Sweep};
use alluvion::{AnyResource, Layout, PoolConfig, Resource, ResourceExt};

use crate::raw_block::{Held, layout_of};

const MIB: usize = 1 << 20;

/// Asks a handler that passes on what it is told, and gives one answer after the other; then none.
fn telling<U: Resource>(upstream: U, answers: &[Relief]) -> (FailureCallback<U>, Receiver<OutOfMemory>) {
    let (tell, told) = mpsc::channel();
    let (asked, answers) = (AtomicU32::new(0), answers.to_vec());
    let resource = upstream.failure_callback(move |report| {
        let _ = tell.send(report.clone());
        let asked = asked.fetch_add(1, Ordering::Relaxed) as usize;
        answers.get(asked).copied().unwrap_or(Relief::None)
    });
    (resource, told)
}

#[test]
fn a_source_that_is_out_is_reported_with_what_is_known() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let live = Held::of(&Cuda::new(&bench.device()), 48 * MIB, stream.as_ref()).into_parts();
    let (resource, told) = telling(Cuda::new(&bench.device()), &[]);
    let layout = Layout::new(20 * MIB, 512).unwrap();
    let _ = Layout::new(20 * MIB, 256).map(|layout| resource.allocate(layout, stream.as_ref()).unwrap_err());
    let report = told.try_recv().expect("it was asked");
    let memory = resource.memory_info().unwrap();
    assert_eq!((report.requested_bytes, report.stream, report.attempt), (20 * MIB, Some(stream.id()), 1));
    assert_eq!((report.upstream_memory, report.free_bytes), (Some(memory), memory.free_bytes));
    assert_eq!((report.live_bytes, report.cause), (memory.total_bytes - memory.free_bytes, Cause::Full));
    assert_eq!(report.upstream_error.and_then(|error| error.code()), Some(Code::OUT_OF_MEMORY));
    assert!(
        resource.allocate(layout, stream.as_ref()).unwrap_err().is_alignment(),
        "which no handler is asked for"
    );
    assert_eq!((report.refused_by, report.device), ("Cuda", Some(0)));
    assert!(resource.allocate_sync(layout_of(20 * MIB)).is_err());
    assert_eq!(told.try_recv().map(|report| report.stream), Ok(None));
    let error = resource.allocate_sync(layout_of(1 << 40)).unwrap_err();
    assert_eq!(error.out_of_memory_report().map(|report| report.cause), Some(Cause::TooLarge), "{error}");
    assert_eq!((told.try_iter().count(), resource.book().asked()), (0, 2), "no handler helps with that");
    Held::adopt(&resource, live.0, live.1).free(stream.as_ref());
    bench.check();
}

#[test]
fn a_limit_that_was_hit_is_reported_with_what_is_out() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let (resource, told) = telling(Cuda::new(&bench.device()).limiting(4 * MIB), &[]);
    let block = Held::of(&resource, 3 * MIB, stream.as_ref());
    assert!(resource.allocate(layout_of(2 * MIB), stream.as_ref()).is_err());
    let report = told.try_recv().expect("it was asked");
    assert_eq!(
        (report.maximum_bytes, report.live_bytes, report.cause),
        (Some(4 * MIB), 3 * MIB, Cause::Limit)
    );
    assert_eq!((report.refused_by, report.name.as_deref()), ("Limiting", Some("Limiting")));
    assert_eq!(report.stream, Some(stream.id()));
    block.free(stream.as_ref());
    bench.check();
}

#[test]
fn the_report_of_a_pool_is_passed_on_with_the_attempt() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let pool = Cuda::new(&bench.device()).pool(PoolConfig::default().maximum(4 * MIB)).unwrap();
    let (resource, told) = telling(pool, &[Relief::Freed, Relief::Freed]);
    let block = Held::of(&resource, MIB, stream.as_ref());
    let error = resource.allocate(layout_of(4 * MIB), stream.as_ref()).unwrap_err();
    assert!(error.out_of_memory_report().is_some(), "the error is the pool's");
    let reports: Vec<_> = told.try_iter().collect();
    assert!(reports.iter().map(|report| report.attempt).eq(1..=3));
    assert!(reports.iter().all(|report| (report.live_bytes, report.cause) == (MIB, Cause::Limit)));
    block.free(stream.as_ref());
    bench.check();
}

#[test]
fn other_errors_pass() {
    let bench = Bench::sim();
    let (resource, told) = telling(CudaAsync::new(&bench.device()).unwrap(), &[Relief::Freed; 9]);
    let there = bench.second_device().unwrap().stream().unwrap();
    assert!(resource.allocate(layout_of(1), there.as_ref()).unwrap_err().is_device_mismatch());
    assert_eq!((told.try_iter().count(), resource.book().asked()), (0, 0));
    assert_eq!(resource.id(), resource.upstream().id());
}

#[test]
fn a_request_that_is_rescued_is_counted() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let (resource, _told) = telling(Faulty::every_nth(Cuda::new(&bench.device()), 2), &[Relief::Freed; 9]);
    let blocks: Vec<_> = (0..4).map(|_| Held::of(&resource, 1000, stream.as_ref()).into_parts()).collect();
    let resource = AnyResource::new(resource);
    let appeals = resource.find::<FailureCallback>().expect("its book is found");
    assert_eq!((appeals.asked(), appeals.rescued(), appeals.failed()), (3, 3, 0));
    assert_eq!(resource.describe().to_string(), "FailureCallback(3 asked) > Faulty(1 in 2) > Cuda(gpu 0)");
    for (pointer, layout) in blocks {
        Held::adopt(&resource, pointer, layout).free(stream.as_ref());
    }
    bench.check();
}

/// As long as nothing changes three answers are believed, whatever they say; a change begins the count anew.
#[test]
fn who_frees_nothing_is_asked_three_times() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let (resource, told) = telling(Cuda::new(&bench.device()).limiting(256), &[Relief::Freed; 99]);
    let _all = resource.upstream().book().reserve(256).unwrap();
    for _ in 0..2 {
        assert!(resource.allocate(layout_of(1), stream.as_ref()).unwrap_err().is_out_of_memory());
        assert!(told.try_iter().map(|report| report.attempt).eq(1..=3));
    }
    assert_eq!((resource.book().asked(), resource.book().failed()), (6, 2));
}

/// Figures that change for ever are no reason to go on for ever.
#[test]
fn a_handler_is_not_asked_without_end() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let limited = Arc::new(Cuda::new(&bench.device()).limiting(MIB));
    let (busy, asked) = (Arc::clone(&limited), Mutex::new(None));
    let resource = Arc::clone(&limited).failure_callback(move |_| {
        // Takes and gives in turn, which moves the figures and helps nobody.
        let mut held = asked.lock().unwrap();
        *held = if held.is_some() { None } else { busy.book().reserve(256).ok() };
        Relief::Freed
    });
    let _most = limited.book().reserve(MIB - 256).unwrap();
    assert!(resource.allocate(layout_of(512), stream.as_ref()).is_err());
    assert_eq!(resource.book().asked(), 1024);
}

#[test]
fn a_handler_that_panics_has_freed_nothing() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let limited = Cuda::new(&bench.device()).limiting(256);
    let _all = limited.book().reserve(256).unwrap();
    let resource = limited.failure_callback(|_| resume_unwind(Box::new("on purpose")));
    assert!(resource.allocate(layout_of(1), stream.as_ref()).unwrap_err().is_out_of_memory());
    assert!(resource.allocate_sync(layout_of(1)).unwrap_err().is_out_of_memory());
    assert_eq!(resource.book().asked(), 2);
}

/// The handlers of a pool below are asked before, and none is asked by what another asks for.
#[test]
fn the_handlers_of_a_pool_come_first_and_none_is_asked_within_another() {
    let bench = Bench::sim();
    let stream = bench.stream();
    let (tell, told) = mpsc::channel();
    let also_tell = tell.clone();
    let config = PoolConfig::default().maximum(MIB).on_out_of_memory(move |_| {
        let _ = tell.send("pool");
        Relief::None
    });
    let pool = Arc::new(Cuda::new(&bench.device()).pool(config).unwrap());
    let within = Arc::clone(&pool);
    let resource = pool.failure_callback(move |_| {
        let _ = also_tell.send("layer");
        assert!(within.allocate_sync(layout_of(3 * MIB)).is_err(), "and it asks nobody");
        Relief::None
    });
    let live = Held::of(&resource, 1000, stream.as_ref());
    assert!(resource.allocate(layout_of(MIB), stream.as_ref()).is_err());
    assert_eq!(told.try_iter().collect::<Vec<_>>(), ["pool", "layer"]);
    live.free(stream.as_ref());
    bench.check();
}

/// Threads that are out at once ask at once, each on its own account.
#[test]
fn four_threads_ask_at_once() {
    let bench = Bench::sim();
    let device = bench.device();
    let limited = Arc::new(Cuda::new(&device).limiting(4 * MIB));
    let hoard = Arc::new(Mutex::new(Vec::new()));
    let (hoarded, source) = (Arc::clone(&hoard), Arc::clone(&limited));
    let resource = Arc::clone(&limited).failure_callback(move |_| {
        let popped = hoarded.lock().unwrap().pop();
        match popped {
            Some((pointer, layout)) => {
                Held::adopt(&*source, pointer, layout).free_sync();
                Relief::Freed
            }
            None => Relief::None,
        }
    });
    for _ in 0..4 {
        hoard.lock().unwrap().push(Held::allocate_sync(&*limited, layout_of(MIB)).unwrap().into_parts());
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.stream().expect("a stream can be made");
                Held::of(&resource, MIB, stream.as_ref()).into_parts()
            });
        }
    });
    assert_eq!((hoard.lock().unwrap().len(), limited.used_bytes()), (0, 4 * MIB));
    assert_eq!((resource.book().rescued(), resource.book().failed()), (4, 0));
}

#[test]
fn a_call_that_fails_is_asked_about_and_loses_nothing() {
    let swept = Sweep::new().run(|sim| {
        let (device, stream) = (sim.device(0), sim.device(0).stream()?);
        let resource = CudaAsync::new(&device)?.failure_callback(|_| Relief::None);
        let layout = layout_of(3 * MIB);
        Held::allocate(&resource, layout, stream.as_ref())?.free(stream.as_ref());
        Held::allocate_sync(&resource, layout)?.free_sync();
        stream.synchronize()
    });
    assert!(swept.errors > 0, "{swept}");
    // One that helps hides the failure.
    let swept = Sweep::new().codes(&[Code::OUT_OF_MEMORY]).run(|sim| {
        let (device, stream) = (sim.device(0), sim.device(0).stream()?);
        let resource = Cuda::new(&device).failure_callback(|_| Relief::Freed);
        let failed_before = resource.book().failed();
        Held::allocate(&resource, layout_of(3 * MIB), stream.as_ref())?.free(stream.as_ref());
        assert_eq!(resource.book().failed(), failed_before);
        stream.synchronize()
    });
    assert!(swept.runs > 0, "{swept}");
}
