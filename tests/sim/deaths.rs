//! Simulated processes that die: what goes with them, what stays with others, and what later calls say.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "each test keeps its ranges live to its end, or breaks the contract on purpose where the simulator says what \
              happens"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use alluvion::driver::{
    CaptureMode, Code, Driver, HandleType, Location, MapAccess, PinnedFlags, PoolKind, PoolProperties,
    RawPool, RawStream, Sharing,
};
use alluvion::sim::{HazardKind, Kernel, SimConfig, SimDriver};
use alluvion::{DeviceVec, PinnedAlloc, PinnedVec, Sim};

use super::processes::{LEGACY, fill, free, kinds, lends, no_hazard, put, read, shared_event, stream, two};

const DESCRIPTOR: HandleType = HandleType::POSIX_FILE_DESCRIPTOR;
const PAGE: usize = 2 << 20;

/// What the importer has of the exporter, each full of its own byte.
struct Loan {
    allocation: u64,
    block: u64,
    pages: u64,
    event: alluvion::driver::RawEvent,
}

/// The exporter's own side of it.
struct Lent {
    allocation: u64,
    block: u64,
}

fn lend(exporter: &SimDriver, importer: &SimDriver) -> (Lent, Loan) {
    let (ours, theirs): (&dyn Sharing, &dyn Sharing) = (lends(exporter), lends(importer));
    let allocation = exporter.allocate_device(0, 512).unwrap();
    let opened = unsafe { theirs.memory_open(0, ours.memory_handle(0, allocation).unwrap()) }.unwrap();
    let properties = PoolProperties { handle_types: DESCRIPTOR, ..PoolProperties::default() };
    let pool = exporter.pool_create(0, properties).unwrap();
    let imported = theirs.pool_import(0, &unsafe { ours.pool_export(0, pool, DESCRIPTOR) }.unwrap()).unwrap();
    let block = unsafe { exporter.allocate_async(0, 512, pool, LEGACY) }.unwrap();
    exporter.context_synchronize(0).unwrap();
    let pointer = unsafe { ours.pool_export_pointer(0, block) }.unwrap();
    let there = unsafe { theirs.pool_import_pointer(0, imported, pointer) }.unwrap();
    let memory = exporter.memory_create(0, PAGE, DESCRIPTOR).unwrap();
    let exported = unsafe { exporter.memory_export(0, memory, DESCRIPTOR) }.unwrap();
    let pages = importer.virtual_reserve(0, PAGE, 0).unwrap();
    let held = theirs.memory_import(0, &exported).unwrap();
    unsafe {
        importer.memory_map(0, pages, PAGE, held).unwrap();
        importer.memory_set_access(0, pages, PAGE, Location::Device(0), MapAccess::ReadWrite).unwrap();
        importer.memory_release(0, held).unwrap();
    }
    for (n, at) in [opened, there, pages].into_iter().enumerate() {
        put(importer, at, n as u8 + 1, 512);
    }
    let (_, event) = shared_event(exporter, importer);
    (Lent { allocation, block }, Loan { allocation: opened, block: there, pages, event })
}

fn intact(importer: &SimDriver, loan: &Loan) {
    for (n, at) in [loan.allocation, loan.block, loan.pages].into_iter().enumerate() {
        assert_eq!(read(importer, at, 512), [n as u8 + 1; 512]);
    }
}

fn end(importer: &SimDriver, loan: &Loan) {
    unsafe {
        lends(importer).memory_close(0, loan.allocation).unwrap();
        importer.free_async(0, loan.block, LEGACY).unwrap();
        importer.memory_unmap(0, loan.pages, PAGE).unwrap();
        importer.event_destroy(0, loan.event).unwrap();
    }
    importer.context_synchronize(0).unwrap();
}

/// How the exporter ends.
const ENDS: [fn(Arc<SimDriver>); 2] = [
    |driver| {
        driver.kill();
        assert!(driver.live().is_empty() && driver.leaks().is_empty(), "{}", driver.live());
    },
    drop,
];

#[test]
fn what_an_exporter_has_lent_outlives_it() {
    for ends in ENDS {
        let (exporter, importer) = two();
        let before = free(&importer);
        let (_, loan) = lend(&exporter, &importer);
        exporter.allocate_device(0, 8 << 20).unwrap();
        ends(exporter);
        intact(&importer, &loan);
        assert!(free(&importer) < before && free(&importer) > before - (8 << 20) - (40 << 20));
        // The event of a process that is dead is as it was last recorded, and can be recorded.
        assert_eq!(unsafe { importer.event_query(0, loan.event) }, Ok(true));
        unsafe { importer.event_record(0, loan.event, LEGACY) }.unwrap();
        unsafe { importer.event_synchronize(0, loan.event) }.unwrap();
        end(&importer, &loan);
        assert_eq!(free(&importer), before);
        assert_eq!(importer.hazards(), []);
    }
}

#[test]
fn an_importer_that_dies_leaves_the_exporter_as_it_was() {
    for ends in ENDS {
        let (exporter, importer) = two();
        let (lent, loan) = lend(&exporter, &importer);
        let before = free(&exporter);
        // With work that it never gets to.
        fill(&importer, stream(&importer), loan.allocation, 77, 512);
        ends(importer);
        assert_eq!(read(&exporter, lent.allocation, 512), [1; 512], "the work was dropped");
        // Nobody has it open any more.
        unsafe { exporter.free_device(0, lent.allocation) }.unwrap();
        unsafe { exporter.free_async(0, lent.block, LEGACY) }.unwrap();
        exporter.context_synchronize(0).unwrap();
        assert!(free(&exporter) > before);
        assert_eq!(exporter.hazards(), []);
    }
}

#[test]
fn handles_of_a_process_that_is_dead_are_refused() {
    for ends in ENDS {
        let (exporter, importer) = two();
        let ours = lends(&exporter);
        let address = exporter.allocate_device(0, 512).unwrap();
        let handle = unsafe { ours.memory_handle(0, address) }.unwrap();
        let event = ours.event_create_shared(0).unwrap();
        let event = unsafe { ours.event_handle(0, event) }.unwrap();
        let properties = PoolProperties { handle_types: DESCRIPTOR, ..PoolProperties::default() };
        let pool = exporter.pool_create(0, properties).unwrap();
        let exported = unsafe { ours.pool_export(0, pool, DESCRIPTOR) }.unwrap();
        let theirs = lends(&importer).pool_import(0, &exported).unwrap();
        let block = unsafe { exporter.allocate_async(0, 512, pool, LEGACY) }.unwrap();
        let pointer = unsafe { ours.pool_export_pointer(0, block) }.unwrap();
        // Somebody still has the memory; that makes the handle no better.
        let third = exporter.process();
        let kept = unsafe { lends(&third).memory_open(0, handle) }.unwrap();
        put(&third, kept, 1, 512);
        ends(exporter);
        let gone = unsafe { lends(&importer).memory_open(0, handle) };
        assert_eq!(gone.unwrap_err().code, Code::INVALID_HANDLE);
        let gone = unsafe { lends(&importer).pool_import_pointer(0, theirs, pointer) };
        assert_eq!(gone.unwrap_err().code, Code::INVALID_VALUE);
        // As on an H200, which gives a pool with nothing in it, and an event that is done.
        assert!(lends(&importer).pool_import(0, &exported).is_ok());
        let event = unsafe { lends(&importer).event_open(0, event) }.unwrap();
        assert_eq!(unsafe { importer.event_query(0, event) }, Ok(true));
        assert_eq!(read(&third, kept, 512), [1; 512]);
        no_hazard([&importer, &third]);
    }
}

#[test]
fn pages_of_a_dead_process_live_in_its_descriptor() {
    for ends in ENDS {
        let (exporter, importer) = two();
        let before = free(&importer);
        let memory = exporter.memory_create(0, PAGE, DESCRIPTOR).unwrap();
        let exported = unsafe { exporter.memory_export(0, memory, DESCRIPTOR) }.unwrap();
        ends(exporter);
        assert_eq!(free(&importer), before - PAGE);
        let imported = lends(&importer).memory_import(0, &exported).unwrap();
        drop(exported);
        assert_eq!(free(&importer), before - PAGE);
        unsafe { importer.memory_release(0, imported) }.unwrap();
        assert_eq!(free(&importer), before);
    }
}

#[test]
fn every_call_of_a_dead_process_says_so() {
    let (first, second) = two();
    let (address, event, made) =
        (first.allocate_device(0, 512).unwrap(), first.event_create(0).unwrap(), stream(&first));
    let pinned = first.allocate_pinned(0, 4096, PinnedFlags::default()).unwrap();
    first.kill();
    first.kill();
    let outcomes = [
        first.device_count().map(|_| ()),
        first.memory_info(0).map(|_| ()),
        first.set_context(0),
        first.exchange_capture_mode(CaptureMode::Relaxed).map(|_| ()),
        first.allocate_device(0, 512).map(|_| ()),
        first.address_range(address).map(|_| ()),
        lends(&first).device_uuid(0).map(|_| ()),
        lends(&first).can_reach(0, 0).map(|_| ()),
        lends(&first).event_create_shared(0).map(|_| ()),
        unsafe { first.free_device(0, address) },
        unsafe { first.free_pinned(0, pinned) },
        unsafe { first.event_destroy(0, event) },
        unsafe { first.stream_destroy(0, made) },
        unsafe { first.stream_synchronize(0, made) },
        unsafe { first.launch(0, made, Kernel::new("late")) },
        unsafe { first.stream_host_call(0, made, Box::new(|| unreachable!("it is dead"))) },
    ];
    for (n, outcome) in outcomes.into_iter().enumerate() {
        assert_eq!(outcome.unwrap_err().code, Code::DEINITIALIZED, "{n}");
    }
    assert!(first.proves_stopped(0, first.memory_info(0).unwrap_err()));
    // Memory of the host is the test's, which lives.
    unsafe { pinned.as_ptr().write_bytes(5, 4096) };
    no_hazard([&first, &second]);
    assert_eq!(second.device_count(), Ok(1));
    // A machine whose first process is dead can have others.
    let third = first.process();
    put(&third, third.allocate_device(0, 512).unwrap(), 1, 512);
    assert_eq!(third.hazards(), []);
}

#[test]
fn all_that_a_dead_process_had_goes_back() {
    for ends in ENDS {
        let config = SimConfig::default().pinned_bytes(1 << 20);
        let first = SimDriver::new(config);
        let second = first.process();
        let before = free(&second);
        first.allocate_device(0, 1 << 20).unwrap();
        first.allocate_managed(0, 300 << 10).unwrap();
        first.allocate_pinned(0, 300 << 10, PinnedFlags::default()).unwrap();
        let pool: RawPool = first.pool_default(0, PoolKind::Device).unwrap();
        unsafe { first.allocate_async(0, 1 << 20, pool, LEGACY) }.unwrap();
        let memory = first.memory_create(0, PAGE, HandleType::NONE).unwrap();
        let at = first.virtual_reserve(0, PAGE, 0).unwrap();
        unsafe { first.memory_map(0, at, PAGE, memory) }.unwrap();
        let capturing = stream(&first);
        first.begin_capture(0, capturing, CaptureMode::Relaxed).unwrap();
        unsafe { first.allocate_async(0, 1 << 20, pool, capturing) }.unwrap();
        assert!(second.allocate_pinned(0, 600 << 10, PinnedFlags::default()).is_err());
        ends(first);
        assert_eq!(free(&second), before);
        let pinned = second.allocate_pinned(0, 1 << 20, PinnedFlags::default()).unwrap();
        unsafe { second.free_pinned(0, pinned) }.unwrap();
        assert_eq!(second.hazards(), []);
    }
}

/// As on an H200: a wait for an event that a process was killed before never ends, on the device and on the host.
#[test]
fn work_of_a_dead_process_never_runs_and_whoever_waits_for_it_waits_for_ever() {
    for seed in 0..10 {
        let first = SimDriver::new(SimConfig::default().seed(seed));
        let (second, other) = (first.process(), first.process());
        let (event, there) = shared_event(&first, &second);
        let ran = Arc::new(AtomicU32::new(0));
        let (counted, made) = (Arc::clone(&ran), stream(&first));
        let kernel = Kernel::new("never").run(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        unsafe { first.launch(0, made, kernel) }.unwrap();
        unsafe { first.event_record(0, event, made) }.unwrap();
        let (waits, free_one) = (stream(&second), stream(&second));
        unsafe { second.stream_wait_event(0, waits, there) }.unwrap();
        let at = second.allocate_device(0, 1024).unwrap();
        fill(&second, waits, at, 1, 512);
        fill(&second, free_one, at + 512, 2, 512);
        first.kill();
        assert_eq!((ran.load(Ordering::Relaxed), Arc::strong_count(&ran)), (0, 1), "it is dropped");
        unsafe { second.stream_synchronize(0, free_one) }.unwrap();
        for _ in 0..20 {
            assert_eq!(unsafe { second.event_query(0, there) }, Ok(false));
            assert_eq!(unsafe { second.stream_query(0, waits) }, Ok(false));
        }
        put(&other, other.allocate_device(0, 512).unwrap(), 1, 512);
        no_hazard([&first, &second]);
        // Only its own end ends the wait.
        thread::scope(|scope| {
            let synchronizes = scope.spawn(|| unsafe { second.event_synchronize(0, there) });
            second.kill();
            assert_eq!(synchronizes.join().unwrap().unwrap_err().code, Code::DEINITIALIZED);
        });
    }
}

/// Its queued writes are not in the way of those that still have the memory.
#[test]
fn work_of_a_dead_process_races_with_nobody() {
    for ends in ENDS {
        let (exporter, importer) = two();
        let (lent, loan) = lend(&exporter, &importer);
        let made = stream(&exporter);
        fill(&exporter, made, lent.allocation, 9, 512);
        fill(&exporter, made, lent.block, 9, 512);
        ends(exporter);
        intact(&importer, &loan);
        put(&importer, loan.allocation, 8, 512);
        end(&importer, &loan);
        assert_eq!(importer.hazards(), []);
    }
}

#[test]
fn a_thread_that_waits_for_a_process_that_is_killed_comes_back() {
    let (first, second) = two();
    let (made, at) = (stream(&first), second.allocate_device(0, 512).unwrap());
    let ((go, gone), (begun, begins)) = (channel::<()>(), channel::<()>());
    let stall = move || {
        begun.send(()).expect("the test waits for it");
        let _ = gone.recv();
    };
    unsafe { first.stream_host_call(0, made, Box::new(stall)) }.unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| unsafe { first.stream_synchronize(0, made) }.unwrap_err().code);
        begins.recv().expect("the function runs");
        first.kill();
        assert_eq!(waits.join().unwrap(), Code::DEINITIALIZED);
    });
    // The function is still at it, and the other process is none the worse.
    put(&second, at, 3, 512);
    assert_eq!(read(&second, at, 512), [3; 512]);
    drop(first);
    drop(go);
    put(&second, at, 4, 512);
    assert_eq!(kinds(&second), []);
}

#[test]
fn a_kernel_that_outlives_its_process_touches_nothing() {
    let (first, second) = two();
    let at = first.allocate_device(0, 512).unwrap();
    put(&first, at, 1, 512);
    let opened =
        unsafe { lends(&second).memory_open(0, lends(&first).memory_handle(0, at).unwrap()) }.unwrap();
    let ((go, gone), (begun, begins)) = (channel::<()>(), channel::<()>());
    let gates = std::sync::Mutex::new((begun, gone));
    let kernel = Kernel::new("late").writes(at, 512).run(move |memory| {
        let gates = gates.lock().unwrap();
        gates.0.send(()).expect("the test waits for it");
        let _ = gates.1.recv();
        memory.write(at, &[9; 512]);
    });
    unsafe { first.launch(0, LEGACY, kernel) }.unwrap();
    thread::scope(|scope| {
        let runs = scope.spawn(|| first.context_synchronize(0));
        begins.recv().expect("the kernel runs");
        first.kill();
        drop(go);
        assert_eq!(runs.join().unwrap().unwrap_err().code, Code::DEINITIALIZED);
    });
    assert_eq!(read(&second, opened, 512), [1; 512]);
    no_hazard([&first, &second]);
}

#[test]
fn a_graph_outlives_its_process() {
    let (first, second) = two();
    let made = stream(&first);
    first.begin_capture(0, made, CaptureMode::Relaxed).unwrap();
    unsafe { first.launch(0, made, Kernel::new("recorded")) }.unwrap();
    let graph = first.end_capture(0, made).unwrap();
    assert_eq!(
        unsafe { second.launch_graph(0, LEGACY, &graph) },
        Err(Code::INVALID_VALUE),
        "it is another's"
    );
    first.kill();
    assert_eq!(unsafe { first.launch_graph(0, LEGACY, &graph) }, Err(Code::DEINITIALIZED));
    drop(first);
    drop(graph);
    assert_eq!(second.hazards(), []);
}

#[test]
fn containers_of_a_dead_process_are_dropped_in_silence() {
    let first = Sim::new();
    let second = first.process();
    let stream = second.device(0).stream().unwrap();
    let vector = DeviceVec::from_slice(&[1, 2, 3], &stream).unwrap();
    let mut pinned: PinnedVec<u8> = PinnedVec::new_in(PinnedAlloc::new(&second.device(0)).unwrap());
    pinned.resize(1000, 0);
    second.kill();
    assert!(vector.to_vec(&stream).is_err());
    pinned[0] = 1;
    drop((vector, pinned, stream));
    second.assert_clean();
    first.assert_clean();
}

#[test]
fn two_hundred_processes_come_and_go() {
    let first = SimDriver::new(SimConfig::default());
    let before = free(&first);
    let at = first.allocate_device(0, 512).unwrap();
    put(&first, at, 1, 512);
    let handle = unsafe { lends(&first).memory_handle(0, at) }.unwrap();
    let mut addresses = Vec::new();
    for n in 0..200 {
        let process = first.process();
        let opened = unsafe { lends(&process).memory_open(0, handle) }.unwrap();
        assert_eq!(read(&process, opened, 512), [1; 512]);
        addresses.push(opened);
        let pool = process.pool_default(0, PoolKind::Device).unwrap();
        addresses.push(unsafe { process.allocate_async(0, 512, pool, RawStream::LEGACY) }.unwrap());
        if n % 2 == 0 {
            process.kill();
        }
    }
    // Addresses of the dead are used again.
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!(addresses.len(), 2);
    unsafe { first.free_device(0, at) }.unwrap();
    assert_eq!(free(&first), before);
    assert_eq!(kinds(&first), [] as [HazardKind; 0]);
}
