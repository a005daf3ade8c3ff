//! A driver that lets another library meddle between any two calls.

#![expect(unsafe_code, reason = "passes calls on")]
#![expect(clippy::disallowed_types, reason = "a test has no model to be seen by")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use alluvion::driver::{
    CaptureId, CaptureMode, CaptureStatus, Code, DeviceAttribute, Driver, DriverError, DriverResult,
    FillValue, MemoryInfo, PinnedFlags, RawEvent, RawGraph, RawStream, StreamFlags,
};
use alluvion::sim::{SimDriver, SimGraph};

/// A simulated machine whose stream is captured, as by another thread, before one call and until another.
#[derive(Debug)]
pub(crate) struct Meddler {
    sim: Arc<SimDriver>,
    plan: Mutex<Plan>,
    /// Calls since the plan was made.
    calls: AtomicU64,
}

#[derive(Debug, Default)]
struct Plan {
    stream: Option<RawStream>,
    begin: u64,
    end: u64,
    is_open: bool,
    ended: Option<Result<SimGraph, Code>>,
}

impl Meddler {
    pub(crate) fn over(sim: &Arc<SimDriver>) -> Arc<Self> {
        Arc::new(Self { sim: Arc::clone(sim), plan: Mutex::default(), calls: AtomicU64::new(0) })
    }

    /// Has a capture of the stream begun right before call `begin` from now, and ended right before call `end`.
    pub(crate) fn meddle(&self, stream: RawStream, begin: u64, end: u64) {
        *self.plan.lock().unwrap() = Plan { stream: Some(stream), begin, end, ..Plan::default() };
        self.calls.store(0, Ordering::Relaxed);
    }

    /// Ends the capture, if it is not over, and lets calls be. Returns how many there were; what came of the capture, if it was
    /// begun; and whether it was open until now.
    pub(crate) fn let_be(&self) -> (u64, Option<Result<SimGraph, Code>>, bool) {
        let mut plan = std::mem::take(&mut *self.plan.lock().unwrap());
        let was_open = plan.is_open;
        self.end(&mut plan);
        (self.calls.load(Ordering::Relaxed), plan.ended, was_open)
    }

    fn end(&self, plan: &mut Plan) {
        if let Some(stream) = plan.stream.filter(|_| plan.is_open) {
            plan.is_open = false;
            plan.ended = Some(self.sim.end_capture(0, stream));
        }
    }

    fn before_a_call(&self) {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        let plan = &mut *self.plan.lock().unwrap();
        let Some(stream) = plan.stream else { return };
        if call == plan.begin {
            self.sim.begin_capture(0, stream, CaptureMode::Relaxed).expect("it does not capture");
            plan.is_open = true;
        }
        if call == plan.end {
            self.end(plan);
        }
    }
}

macro_rules! pass_on {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            self.before_a_call();
            self.sim.$name($($argument),*)
        })+
    };
}

macro_rules! pass_on_unsafe {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)+) => {
        $(unsafe fn $name(&self, $($argument: $type),*) -> DriverResult<$answer> {
            self.before_a_call();
            // SAFETY: the caller's promises.
            unsafe { self.sim.$name($($argument),*) }
        })+
    };
}

// SAFETY: every call is passed on to a driver that keeps the contract.
unsafe impl Driver for Meddler {
    fn name(&self) -> &'static str {
        "meddler"
    }

    fn version(&self) -> u32 {
        self.sim.version()
    }

    fn proves_stopped(&self, ordinal: u32, error: DriverError) -> bool {
        self.sim.proves_stopped(ordinal, error)
    }

    fn attribute(&self, ordinal: u32, attribute: DeviceAttribute) -> DriverResult<i32> {
        use DeviceAttribute::{HostRegister, ManagedMemory, MemoryPools, VirtualMemory};
        self.before_a_call();
        match attribute {
            // Their calls are not passed on.
            MemoryPools | VirtualMemory | ManagedMemory | HostRegister => Ok(0),
            attribute => self.sim.attribute(ordinal, attribute),
        }
    }

    pass_on! {
        fn device_count() -> u32;
        fn device_name(ordinal: u32) -> String;
        fn memory_info(ordinal: u32) -> MemoryInfo;
        fn context_synchronize(ordinal: u32) -> ();
        fn context_device() -> Option<u32>;
        fn set_context(ordinal: u32) -> ();
        fn exchange_capture_mode(mode: CaptureMode) -> CaptureMode;
        fn stream_create(ordinal: u32, flags: StreamFlags) -> RawStream;
        fn event_create(ordinal: u32) -> RawEvent;
        fn allocate_device(ordinal: u32, bytes: usize) -> u64;
        fn allocate_pinned(ordinal: u32, bytes: usize, flags: PinnedFlags) -> NonNull<u8>;
    }

    pass_on_unsafe! {
        fn stream_destroy(ordinal: u32, stream: RawStream) -> ();
        fn stream_synchronize(ordinal: u32, stream: RawStream) -> ();
        fn stream_query(ordinal: u32, stream: RawStream) -> bool;
        fn stream_wait_event(ordinal: u32, stream: RawStream, event: RawEvent) -> ();
        fn stream_capture_status(ordinal: u32, stream: RawStream) -> CaptureStatus;
        fn stream_capture_id(ordinal: u32, stream: RawStream) -> Option<CaptureId>;
        fn stream_id(ordinal: u32, stream: RawStream) -> u64;
        fn stream_context_device(stream: RawStream) -> Option<u32>;
        fn stream_begin_capture(ordinal: u32, stream: RawStream, mode: CaptureMode) -> ();
        fn stream_end_capture(ordinal: u32, stream: RawStream) -> RawGraph;
        fn graph_destroy(ordinal: u32, graph: RawGraph) -> ();
        fn event_destroy(ordinal: u32, event: RawEvent) -> ();
        fn event_record(ordinal: u32, event: RawEvent, stream: RawStream) -> ();
        fn event_query(ordinal: u32, event: RawEvent) -> bool;
        fn event_synchronize(ordinal: u32, event: RawEvent) -> ();
        fn free_device(ordinal: u32, address: u64) -> ();
        fn free_pinned(ordinal: u32, pointer: NonNull<u8>) -> ();
        fn copy(ordinal: u32, to: u64, from: u64, bytes: usize) -> ();
        fn copy_async(ordinal: u32, to: u64, from: u64, bytes: usize, stream: RawStream) -> ();
        fn fill_async(ordinal: u32, to: u64, value: FillValue, count: usize, stream: RawStream) -> ();
    }
}
