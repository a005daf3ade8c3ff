//! Captures record, forbid what CUDA forbids, and give graphs that run.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the tests keep their ranges live, or break the rules where the simulator says what happens"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use alluvion::driver::{
    CaptureMode, CaptureStatus, Code, Driver, DriverResult, FillValue, PoolKind, RawEvent, RawStream,
    RelaxedCapture, StreamFlags,
};
use alluvion::sim::{HazardKind, Kernel, SimConfig, SimDriver};

struct Rig {
    driver: Arc<SimDriver>,
    buffer: u64,
    stream: RawStream,
    other: RawStream,
    event: RawEvent,
}

impl Rig {
    fn new() -> Self {
        Self::with_seed(0)
    }

    fn with_seed(seed: u64) -> Self {
        let driver = SimDriver::new(SimConfig::default().seed(seed));
        let stream = || driver.stream_create(0, StreamFlags::default()).unwrap();
        Self {
            buffer: driver.allocate_device(0, 4096).unwrap(),
            stream: stream(),
            other: stream(),
            event: driver.event_create(0).unwrap(),
            driver,
        }
    }

    fn begin(&self, mode: CaptureMode) {
        self.driver.begin_capture(0, self.stream, mode).unwrap();
    }

    fn status(&self) -> CaptureStatus {
        unsafe { self.driver.stream_capture_status(0, self.stream) }.unwrap()
    }

    fn fill(&self, stream: RawStream, offset: u64, value: u8) {
        unsafe { self.driver.fill_async(0, self.buffer + offset, FillValue::U8(value), 8, stream) }.unwrap();
    }

    fn add_one(&self, stream: RawStream) {
        let buffer = self.buffer;
        let kernel = Kernel::new("add one").writes(buffer, 4).run(move |memory| {
            let value = memory.read_u32(buffer);
            memory.write_u32(buffer, value + 1);
        });
        unsafe { self.driver.launch(0, stream, kernel) }.unwrap();
    }

    fn edge(&self, before: RawStream, after: RawStream) {
        unsafe {
            self.driver.event_record(0, self.event, before).unwrap();
            self.driver.stream_wait_event(0, after, self.event).unwrap();
        }
    }

    fn word(&self, offset: u64) -> u32 {
        let mut back = [0_u32];
        unsafe {
            self.driver
                .copy(0, back.as_mut_ptr().expose_provenance() as u64, self.buffer + offset, 4)
                .unwrap();
        }
        back[0]
    }

    /// Checks that a call broke the capture, and ends it.
    fn broken_by<T>(&self, call: DriverResult<T>, code: Code) {
        assert_eq!(call.map(drop).unwrap_err().code, code);
        assert_eq!(self.status(), CaptureStatus::Invalidated);
        let fill = unsafe { self.driver.fill_async(0, self.buffer, FillValue::U8(0), 8, self.stream) };
        assert_eq!(fill.unwrap_err().code, Code::CAPTURE_INVALIDATED);
        assert_eq!(self.driver.end_capture(0, self.stream).unwrap_err(), Code::CAPTURE_INVALIDATED);
        assert_eq!(self.status(), CaptureStatus::None);
        let kinds: Vec<_> = self.driver.take_hazards().iter().map(|hazard| hazard.kind()).collect();
        assert_eq!(kinds, [HazardKind::IllegalDuringCapture]);
    }
}

#[test]
fn captured_work_is_recorded_and_runs_when_the_graph_is_launched() {
    let rig = Rig::new();
    rig.fill(rig.stream, 0, 0);
    rig.begin(CaptureMode::Global);
    assert_eq!(rig.status(), CaptureStatus::Active);
    rig.add_one(rig.stream);
    rig.add_one(rig.stream);
    let graph = rig.driver.end_capture(0, rig.stream).unwrap();
    assert_eq!(graph.node_count(), 2);
    rig.driver.context_synchronize(0).unwrap();
    assert_eq!(rig.word(0), 0);
    for _ in 0..3 {
        unsafe { rig.driver.launch_graph(0, rig.stream, &graph) }.unwrap();
    }
    rig.driver.context_synchronize(0).unwrap();
    assert_eq!(rig.word(0), 6);
    assert_eq!(rig.driver.hazards(), []);
}

#[test]
fn a_stream_that_waits_for_a_captured_event_joins_and_must_be_joined_back() {
    for joined in [true, false] {
        let rig = Rig::new();
        rig.begin(CaptureMode::Global);
        rig.fill(rig.stream, 0, 1);
        rig.edge(rig.stream, rig.other);
        rig.fill(rig.other, 8, 2);
        rig.fill(rig.stream, 16, 3);
        if joined {
            rig.edge(rig.other, rig.stream);
            let graph = rig.driver.end_capture(0, rig.stream).unwrap();
            assert_eq!(graph.node_count(), 3);
            unsafe { rig.driver.launch_graph(0, rig.stream, &graph) }.unwrap();
            unsafe { rig.driver.stream_synchronize(0, rig.stream) }.unwrap();
            assert_eq!([rig.word(0), rig.word(8), rig.word(16)], [0x0101_0101, 0x0202_0202, 0x0303_0303]);
            assert_eq!(rig.driver.hazards(), []);
        } else {
            assert_eq!(rig.driver.end_capture(0, rig.stream).unwrap_err(), Code::CAPTURE_UNJOINED);
        }
        let status = unsafe { rig.driver.stream_capture_status(0, rig.other) }.unwrap();
        assert_eq!(status, CaptureStatus::None);
    }
}

#[test]
fn branches_of_a_graph_race_if_nothing_orders_them() {
    let rig = Rig::new();
    rig.begin(CaptureMode::Global);
    rig.edge(rig.stream, rig.other);
    rig.fill(rig.other, 0, 2);
    rig.fill(rig.stream, 0, 3);
    rig.edge(rig.other, rig.stream);
    let graph = rig.driver.end_capture(0, rig.stream).unwrap();
    assert_eq!(rig.driver.hazards(), [], "nothing has been asked to run");
    unsafe { rig.driver.launch_graph(0, rig.stream, &graph) }.unwrap();
    let hazards = rig.driver.take_hazards();
    assert_eq!(hazards.len(), 1);
    assert_eq!(hazards[0].kind(), HazardKind::Race);
    assert!(hazards[0].to_string().contains("of a graph on gpu 0"), "{}", hazards[0]);
}

#[test]
fn work_behind_a_launched_graph_waits_for_all_of_it() {
    for seed in 0..10 {
        let rig = Rig::with_seed(seed);
        rig.begin(CaptureMode::Global);
        rig.edge(rig.stream, rig.other);
        rig.fill(rig.other, 0, 2);
        rig.edge(rig.other, rig.stream);
        let graph = rig.driver.end_capture(0, rig.stream).unwrap();
        rig.fill(rig.stream, 0, 1);
        unsafe { rig.driver.launch_graph(0, rig.stream, &graph) }.unwrap();
        rig.add_one(rig.stream);
        unsafe { rig.driver.stream_synchronize(0, rig.stream) }.unwrap();
        assert_eq!(rig.word(0), 0x0202_0203);
        assert_eq!(rig.driver.hazards(), []);
    }
}

#[test]
fn launches_of_one_graph_follow_each_other() {
    for seed in 0..10 {
        let rig = Rig::with_seed(seed);
        rig.fill(rig.stream, 0, 0);
        rig.begin(CaptureMode::Global);
        rig.add_one(rig.stream);
        let graph = rig.driver.end_capture(0, rig.stream).unwrap();
        for stream in [rig.stream, rig.other, rig.stream] {
            unsafe { rig.driver.launch_graph(0, stream, &graph) }.unwrap();
        }
        rig.driver.context_synchronize(0).unwrap();
        assert_eq!(rig.word(0), 3);
        assert_eq!(rig.driver.hazards(), []);
    }
}

#[test]
fn potentially_unsafe_calls_break_a_global_capture_from_any_thread() {
    let rig = Rig::new();
    rig.begin(CaptureMode::Global);
    rig.broken_by(rig.driver.allocate_device(0, 8), Code::CAPTURE_UNSUPPORTED);
    rig.begin(CaptureMode::Global);
    let there = thread::scope(|scope| scope.spawn(|| rig.driver.allocate_device(0, 8)).join().unwrap());
    rig.broken_by(there, Code::CAPTURE_UNSUPPORTED);
    rig.begin(CaptureMode::Global);
    rig.broken_by(unsafe { rig.driver.event_query(0, rig.event) }, Code::CAPTURE_UNSUPPORTED);
}

#[test]
fn a_thread_local_capture_is_broken_by_its_own_thread_only() {
    let rig = Rig::new();
    rig.begin(CaptureMode::ThreadLocal);
    let there = thread::scope(|scope| scope.spawn(|| rig.driver.allocate_device(0, 8)).join().unwrap());
    assert!(there.is_ok());
    assert_eq!(rig.status(), CaptureStatus::Active);
    rig.broken_by(rig.driver.allocate_device(0, 8), Code::CAPTURE_UNSUPPORTED);
}

#[test]
fn a_relaxed_capture_or_a_relaxed_thread_forbids_nothing() {
    let rig = Rig::new();
    rig.begin(CaptureMode::Relaxed);
    assert!(rig.driver.allocate_device(0, 8).is_ok());
    rig.driver.end_capture(0, rig.stream).unwrap();
    rig.begin(CaptureMode::Global);
    {
        let _relaxed = RelaxedCapture::enter(&*rig.driver).unwrap();
        let address = rig.driver.allocate_device(0, 8).unwrap();
        unsafe { rig.driver.free_device(0, address) }.unwrap();
    }
    assert_eq!(rig.status(), CaptureStatus::Active);
    rig.broken_by(rig.driver.allocate_device(0, 8), Code::CAPTURE_UNSUPPORTED);
}

#[test]
fn what_encompasses_the_capture_cannot_be_waited_for() {
    let rig = Rig::new();
    rig.begin(CaptureMode::Relaxed);
    rig.broken_by(unsafe { rig.driver.stream_synchronize(0, rig.stream) }, Code::CAPTURE_UNSUPPORTED);
    rig.begin(CaptureMode::Relaxed);
    rig.broken_by(unsafe { rig.driver.stream_query(0, rig.stream) }, Code::CAPTURE_UNSUPPORTED);
    rig.begin(CaptureMode::Relaxed);
    rig.broken_by(rig.driver.context_synchronize(0), Code::CAPTURE_UNSUPPORTED);
    rig.begin(CaptureMode::Relaxed);
    unsafe { rig.driver.stream_synchronize(0, rig.other) }.unwrap();
    assert_eq!(rig.status(), CaptureStatus::Active);
}

#[test]
fn captured_events_are_not_for_the_outside() {
    let rig = Rig::new();
    rig.begin(CaptureMode::Relaxed);
    unsafe { rig.driver.event_record(0, rig.event, rig.stream) }.unwrap();
    rig.broken_by(unsafe { rig.driver.event_query(0, rig.event) }, Code::CAPTURED_EVENT);
    let wait = unsafe { rig.driver.stream_wait_event(0, rig.other, rig.event) };
    assert_eq!(wait.unwrap_err().code, Code::INVALID_VALUE, "the capture is over");
    let wait = unsafe { rig.driver.event_synchronize(0, rig.event) };
    assert_eq!(wait.unwrap_err().code, Code::CAPTURED_EVENT);
    unsafe { rig.driver.event_record(0, rig.event, rig.other) }.unwrap();
    assert!(unsafe { rig.driver.event_query(0, rig.event) }.is_ok(), "recorded anew, it is an event again");
}

#[test]
fn a_capture_waits_for_nothing_from_outside() {
    let rig = Rig::new();
    rig.begin(CaptureMode::Relaxed);
    unsafe { rig.driver.stream_wait_event(0, rig.stream, rig.event) }.unwrap();
    assert_eq!(rig.status(), CaptureStatus::Active, "an event that was never recorded is nothing");
    unsafe { rig.driver.event_record(0, rig.event, rig.other) }.unwrap();
    let wait = unsafe { rig.driver.stream_wait_event(0, rig.stream, rig.event) };
    rig.broken_by(wait, Code::CAPTURE_ISOLATION);
}

#[test]
fn two_captures_do_not_merge() {
    let rig = Rig::new();
    rig.begin(CaptureMode::Relaxed);
    rig.driver.begin_capture(0, rig.other, CaptureMode::Relaxed).unwrap();
    unsafe { rig.driver.event_record(0, rig.event, rig.other) }.unwrap();
    let wait = unsafe { rig.driver.stream_wait_event(0, rig.stream, rig.event) };
    rig.broken_by(wait, Code(902));
    assert_eq!(rig.driver.end_capture(0, rig.other).unwrap_err(), Code::CAPTURE_INVALIDATED);
}

#[test]
fn the_legacy_stream_is_out_of_use_while_a_blocking_stream_captures() {
    let rig = Rig::new();
    let flags = StreamFlags { blocking: true, ..StreamFlags::default() };
    let rig = Rig { stream: rig.driver.stream_create(0, flags).unwrap(), ..rig };
    rig.begin(CaptureMode::Relaxed);
    let status = unsafe { rig.driver.stream_capture_status(0, RawStream::LEGACY) };
    assert_eq!(status.unwrap_err().code, Code::CAPTURE_IMPLICIT);
    assert_eq!(rig.status(), CaptureStatus::Active, "asking breaks nothing");
    let fill = unsafe { rig.driver.fill_async(0, rig.buffer, FillValue::U8(0), 8, RawStream::LEGACY) };
    rig.broken_by(fill, Code::CAPTURE_IMPLICIT);
    let rig = Rig { stream: rig.other, ..rig };
    rig.begin(CaptureMode::Relaxed);
    rig.fill(RawStream::LEGACY, 0, 1);
    assert_eq!(rig.status(), CaptureStatus::Active, "a non-blocking stream has nothing to do with it");
    assert_eq!(
        rig.driver.begin_capture(0, RawStream::LEGACY, CaptureMode::Relaxed).unwrap_err(),
        Code::INVALID_VALUE
    );
}

#[test]
fn a_capture_ends_where_and_by_whom_it_was_begun() {
    let rig = Rig::new();
    assert_eq!(rig.driver.end_capture(0, rig.stream).unwrap_err(), Code::INVALID_VALUE);
    rig.begin(CaptureMode::Global);
    assert_eq!(
        rig.driver.begin_capture(0, rig.stream, CaptureMode::Global).unwrap_err(),
        Code::INVALID_VALUE
    );
    let there = thread::scope(|scope| scope.spawn(|| rig.driver.end_capture(0, rig.stream)).join().unwrap());
    assert_eq!(there.unwrap_err(), Code::CAPTURE_WRONG_THREAD);
    rig.edge(rig.stream, rig.other);
    assert_eq!(rig.driver.end_capture(0, rig.other).unwrap_err(), Code(903));
    assert_eq!(rig.status(), CaptureStatus::Invalidated);
    unsafe { rig.driver.stream_destroy(0, rig.stream) }.unwrap();
    let status = unsafe { rig.driver.stream_capture_status(0, rig.other) }.unwrap();
    assert_eq!(status, CaptureStatus::None, "the capture went with its stream");
}

#[test]
fn a_graph_allocates_at_every_launch_and_gives_all_back_when_it_is_dropped() {
    let rig = Rig::new();
    let free = || rig.driver.memory_info(0).unwrap().free_bytes;
    let before = free();
    let pool = rig.driver.pool_default(0, PoolKind::Device).unwrap();
    rig.begin(CaptureMode::Relaxed);
    let block = unsafe { rig.driver.allocate_async(0, 64, pool, rig.stream) }.unwrap();
    unsafe {
        rig.driver.fill_async(0, block, FillValue::U8(5), 64, rig.stream).unwrap();
        rig.driver.copy_async(0, rig.buffer, block, 4, rig.stream).unwrap();
        rig.driver.free_async(0, block, rig.stream).unwrap();
    }
    let graph = rig.driver.end_capture(0, rig.stream).unwrap();
    for _ in 0..2 {
        unsafe { rig.driver.launch_graph(0, rig.stream, &graph) }.unwrap();
    }
    unsafe { rig.driver.stream_synchronize(0, rig.stream) }.unwrap();
    assert_eq!(rig.word(0), 0x0505_0505);
    assert_eq!(free(), before - (2 << 20));
    drop(graph);
    assert_eq!(free(), before);
    assert_eq!(rig.driver.hazards(), []);
}

#[test]
fn memory_that_a_graph_leaves_out_is_freed_outside_and_before_the_next_launch() {
    let rig = Rig::new();
    let pool = rig.driver.pool_default(0, PoolKind::Device).unwrap();
    rig.begin(CaptureMode::Relaxed);
    let block = unsafe { rig.driver.allocate_async(0, 64, pool, rig.stream) }.unwrap();
    let graph = rig.driver.end_capture(0, rig.stream).unwrap();
    unsafe { rig.driver.launch_graph(0, rig.stream, &graph) }.unwrap();
    let again = unsafe { rig.driver.launch_graph(0, rig.stream, &graph) };
    assert_eq!(again.unwrap_err(), Code::INVALID_VALUE);
    unsafe {
        rig.driver.fill_async(0, block, FillValue::U8(5), 64, rig.stream).unwrap();
        rig.driver.free_async(0, block, rig.stream).unwrap();
        rig.driver.launch_graph(0, rig.stream, &graph).unwrap();
        drop(graph);
        rig.driver.fill_async(0, block, FillValue::U8(5), 64, rig.stream).unwrap();
        rig.driver.free_async(0, block, rig.stream).unwrap();
        rig.driver.stream_synchronize(0, rig.stream).unwrap();
    }
    assert_eq!(rig.driver.live().pooled, 0);
    assert_eq!(rig.driver.hazards(), []);
    assert_eq!(rig.driver.memory_info(0).unwrap().free_bytes, (256 << 20) - 4096);
}

#[test]
fn a_broken_capture_gives_its_memory_back() {
    let rig = Rig::new();
    let before = rig.driver.memory_info(0).unwrap();
    let pool = rig.driver.pool_default(0, PoolKind::Device).unwrap();
    rig.begin(CaptureMode::Global);
    unsafe { rig.driver.allocate_async(0, 64, pool, rig.stream) }.unwrap();
    rig.broken_by(rig.driver.allocate_device(0, 1), Code::CAPTURE_UNSUPPORTED);
    assert_eq!(rig.driver.memory_info(0).unwrap(), before);
}

#[test]
fn a_capture_frees_only_what_graphs_allocate() {
    let rig = Rig::new();
    let pool = rig.driver.pool_default(0, PoolKind::Device).unwrap();
    let block = unsafe { rig.driver.allocate_async(0, 64, pool, rig.stream) }.unwrap();
    rig.begin(CaptureMode::Relaxed);
    let free = unsafe { rig.driver.free_async(0, block, rig.stream) };
    assert_eq!(free.unwrap_err().code, Code::INVALID_VALUE);
    assert_eq!(rig.driver.take_hazards()[0].kind(), HazardKind::IllegalDuringCapture);
}

#[test]
fn a_recorded_host_function_runs_at_the_first_launch_and_there_is_no_second() {
    let rig = Rig::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    rig.begin(CaptureMode::Relaxed);
    let function = Box::new(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    unsafe { rig.driver.stream_host_call(0, rig.stream, function) }.unwrap();
    let graph = rig.driver.end_capture(0, rig.stream).unwrap();
    unsafe { rig.driver.launch_graph(0, rig.stream, &graph) }.unwrap();
    let again = unsafe { rig.driver.launch_graph(0, rig.stream, &graph) };
    assert_eq!(again.unwrap_err(), Code::INVALID_VALUE);
    unsafe { rig.driver.stream_synchronize(0, rig.stream) }.unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    let again = unsafe { rig.driver.launch_graph(0, rig.stream, &graph) };
    assert_eq!(again.unwrap_err(), Code::INVALID_VALUE);
}
