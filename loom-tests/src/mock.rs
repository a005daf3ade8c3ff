//! A model of a driver: which work comes before which.

#![allow(clippy::disallowed_types, reason = "the handles and the log are no part of the model")]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex as Unmodelled, MutexGuard};

use alluvion::MemoryInfo;
use alluvion::driver::{
    Call, CaptureId, CaptureStatus, Code, DeviceAttribute, Driver, DriverError, DriverResult, FillValue,
    PinnedFlags, RawEvent, RawGraph, RawStream, StreamFlags,
};
use loom::sync::atomic::{AtomicU64, Ordering};

/// A piece of work, by number below 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work(pub u32);

/// A set of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkSet(u64);

impl WorkSet {
    /// Returns `true` if the work is in the set.
    #[must_use]
    pub fn contains(self, work: Work) -> bool {
        self.0 & 1 << work.0 != 0
    }

    fn join(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// What a queue or an event comes after, by the bits of [`WorkSet`], and [`ENDED`] after its end.
///
/// Every access is relaxed. The calls that concern one stream have an order, which is that of the changes of one word, and
/// order nothing else: what one thread did before its call, another one sees after its own only if the crate sees to that.
type Point = Arc<AtomicU64>;

/// No work has this number.
const ENDED: u64 = 1 << 63;

/// A driver that keeps, for each stream, what its next work comes after; for each event, what was before its record.
#[derive(Debug)]
pub struct Mock {
    /// Records still to fail.
    failing_records: AtomicU64,
    /// What is over, because the host waited or asked. Relaxed, too: what one thread has learned of the device, another one knows
    /// only if the crate has told it.
    over: AtomicU64,
    /// The handles, sorted so that each run of a model is the same. No part of it: no modelled operation is made under
    /// their lock.
    points: Unmodelled<BTreeMap<u64, Point>>,
    log: Unmodelled<Log>,
    probe: Unmodelled<Option<Probe>>,
}

/// What is run when a device is asked what it can do.
struct Probe(Arc<dyn Fn() -> DriverResult<()> + Send + Sync>);

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

#[derive(Debug, Default)]
struct Log {
    handles: u64,
    destroyed: Vec<RawStream>,
    /// How often the host waited.
    host_waits: usize,
    /// How often it asked.
    queries: usize,
    /// What was on streams that are destroyed.
    of_destroyed: WorkSet,
    /// The device gets nothing done: every query says so.
    busy: bool,
    mistakes: Vec<String>,
    /// The captures that streams take part in, by number.
    capturing: BTreeMap<u64, u64>,
    /// Pinned memory that is out, by where it begins.
    pinned: BTreeMap<usize, Box<[u64]>>,
}

/// What pinned memory is aligned to.
const PAGE: usize = 4096;

impl Mock {
    pub(crate) fn new() -> Arc<Self> {
        let (points, log) = (Unmodelled::default(), Unmodelled::default());
        let [failing_records, over] = [(); 2].map(|()| AtomicU64::new(0));
        let mock = Self { failing_records, over, points, log, probe: Unmodelled::default() };
        // The legacy stream, which those made here are not ordered with.
        mock.points.lock().unwrap().insert(RawStream::LEGACY.0, Arc::new(AtomicU64::new(0)));
        Arc::new(mock)
    }

    pub(crate) fn create(&self) -> u64 {
        let handle = {
            let mut log = self.log();
            log.handles += 1;
            0x1000 + log.handles
        };
        self.points.lock().unwrap().insert(handle, Arc::new(AtomicU64::new(0)));
        handle
    }

    /// Submits work to a stream; returns what the stream follows.
    pub fn submit(&self, stream: RawStream, work: Work) -> WorkSet {
        self.queue(stream.0, Call::StreamHostCall, WorkSet(1 << work.0)).unwrap_or_default()
    }

    /// Ends a stream as its owner does.
    pub fn end(&self, stream: RawStream) {
        if self.destroy(stream.0, Call::StreamDestroy).is_ok() {
            self.log().destroyed.push(stream);
        }
    }

    /// Makes the next `count` records fail, without an effect.
    pub fn fail_records(&self, count: u64) {
        self.failing_records.store(count, Ordering::Relaxed);
    }

    /// Runs `probe` whenever a device is asked whether it has memory pools: once for each current resource that is made. Where it
    /// succeeds the device has none, and can nothing else.
    pub fn while_probed(&self, probe: impl Fn() -> DriverResult<()> + Send + Sync + 'static) {
        *self.probe.lock().unwrap() = Some(Probe(Arc::new(probe)));
    }

    /// Lets go of what [`while_probed`](Self::while_probed) was given, which may have the machine.
    pub fn forget_probe(&self) {
        drop(self.probe.lock().unwrap().take());
    }

    /// No lock is held while it runs.
    fn probe(&self) -> Option<Arc<dyn Fn() -> DriverResult<()> + Send + Sync>> {
        self.probe.lock().unwrap().as_ref().map(|probe| Arc::clone(&probe.0))
    }

    /// Has a stream take part in a capture, or in none. What is submitted to it is ordered all the same, as captured work is.
    pub fn set_capture(&self, stream: RawStream, capture: Option<u64>) {
        let mut log = self.log();
        match capture {
            Some(number) => log.capturing.insert(stream.0, number),
            None => log.capturing.remove(&stream.0),
        };
    }

    /// Lets the device get nothing done from now on.
    pub fn keep_busy(&self) {
        self.log().busy = true;
    }

    /// Lets the device get its work done again.
    pub fn get_going(&self) {
        self.log().busy = false;
    }

    /// What the next work on a stream follows.
    #[must_use]
    pub fn before(&self, stream: RawStream) -> WorkSet {
        self.queue(stream.0, Call::StreamHostCall, WorkSet::default()).unwrap_or_default()
    }

    /// Returns `true` if `earlier` comes before what follows these: it is one of them, or it is over. What is over is looked at only
    /// if need be: each look has several answers, and each answer is a schedule.
    #[must_use]
    pub fn is_before(&self, followed: WorkSet, earlier: Work) -> bool {
        followed.contains(earlier) || self.over().contains(earlier)
    }

    /// What is over, because the host has waited or asked, as far as this thread knows.
    #[must_use]
    pub fn over(&self) -> WorkSet {
        WorkSet(self.over.load(Ordering::Relaxed))
    }

    /// How often a stream was destroyed.
    pub fn times_destroyed(&self, stream: RawStream) -> usize {
        self.log().destroyed.iter().filter(|other| **other == stream).count()
    }

    /// How often the host waited for a stream, an event or the device.
    pub fn host_waits(&self) -> usize {
        self.log().host_waits
    }

    /// How often the host asked whether something is over.
    pub fn queries(&self) -> usize {
        self.log().queries
    }

    /// Succeeds if no stream or event was used after its end.
    ///
    /// # Panics
    ///
    /// If one was.
    pub fn assert_no_mistakes(&self) {
        let log = self.log();
        assert!(log.mistakes.is_empty(), "{:?}", log.mistakes);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    fn point(&self, handle: u64) -> Point {
        let point = self.points.lock().unwrap().get(&handle).cloned();
        point.expect("the crate calls with handles that it was given")
    }

    /// What a stream or an event had in it when it was called, unless it had ended, which is a mistake.
    fn unless_ended(&self, bits: u64, handle: u64, call: Call) -> DriverResult<WorkSet> {
        if bits & ENDED == 0 {
            return Ok(WorkSet(bits));
        }
        self.log().mistakes.push(format!("{} was called after the end of {handle:#x}", call.symbol()));
        Err(DriverError::new(call, Code::INVALID_HANDLE))
    }

    /// Puts something in a queue; returns what is before it.
    fn queue(&self, stream: u64, call: Call, more: WorkSet) -> DriverResult<WorkSet> {
        let before = self.point(stream).fetch_or(more.0, Ordering::Relaxed);
        self.unless_ended(before, stream, call)
    }

    /// What an event comes after, as far as this thread knows.
    fn recorded(&self, event: u64, call: Call) -> DriverResult<WorkSet> {
        let before = self.point(event).load(Ordering::Relaxed);
        self.unless_ended(before, event, call)
    }

    fn destroy(&self, handle: u64, call: Call) -> DriverResult<()> {
        let point = self.point(handle).fetch_or(ENDED, Ordering::Relaxed);
        let point = self.unless_ended(point, handle, call)?;
        self.log().of_destroyed.join(point);
        Ok(())
    }

    fn is_over(&self, before: WorkSet) -> bool {
        let busy = {
            let mut log = self.log();
            log.queries += 1;
            log.busy
        };
        if !busy {
            self.note_over(before);
        }
        !busy
    }

    fn wait(&self, before: WorkSet) {
        self.log().host_waits += 1;
        self.note_over(before);
    }

    fn note_over(&self, work: WorkSet) {
        self.over.fetch_or(work.0, Ordering::Relaxed);
    }
}

// SAFETY: it hands out no memory but boxes of its own. Work on one stream runs in the order of the changes of the stream's word; a
// wait takes over what was on the recording stream at the time of the record.
unsafe impl Driver for Mock {
    fn name(&self) -> &'static str {
        "mock"
    }

    fn version(&self) -> u32 {
        13_000
    }

    fn device_count(&self) -> DriverResult<u32> {
        Ok(1)
    }

    fn context_synchronize(&self, _: u32) -> DriverResult<()> {
        let points: Vec<Point> = self.points.lock().unwrap().values().cloned().collect();
        let mut before = self.log().of_destroyed;
        for point in points {
            before.join(WorkSet(point.fetch_or(0, Ordering::Relaxed) & !ENDED));
        }
        self.wait(before);
        Ok(())
    }

    fn device_name(&self, _: u32) -> DriverResult<String> {
        Ok("mock".to_owned())
    }

    fn attribute(&self, _: u32, attribute: DeviceAttribute) -> DriverResult<i32> {
        if attribute == DeviceAttribute::MemoryPools
            && let Some(probe) = self.probe()
        {
            probe()?;
        }
        Ok(i32::from(attribute == DeviceAttribute::UnifiedAddressing))
    }

    fn memory_info(&self, _: u32) -> DriverResult<MemoryInfo> {
        Ok(MemoryInfo { free_bytes: 1 << 40, total_bytes: 1 << 40 })
    }

    fn stream_create(&self, _: u32, _: StreamFlags) -> DriverResult<RawStream> {
        Ok(RawStream(self.create()))
    }

    unsafe fn stream_destroy(&self, _: u32, stream: RawStream) -> DriverResult<()> {
        self.end(stream);
        Ok(())
    }

    unsafe fn stream_synchronize(&self, _: u32, stream: RawStream) -> DriverResult<()> {
        self.wait(self.queue(stream.0, Call::StreamSynchronize, WorkSet::default())?);
        Ok(())
    }

    unsafe fn stream_query(&self, _: u32, stream: RawStream) -> DriverResult<bool> {
        Ok(self.is_over(self.queue(stream.0, Call::StreamQuery, WorkSet::default())?))
    }

    unsafe fn stream_wait_event(&self, _: u32, stream: RawStream, event: RawEvent) -> DriverResult<()> {
        let before = self.recorded(event.0, Call::StreamWaitEvent)?;
        self.queue(stream.0, Call::StreamWaitEvent, before)?;
        Ok(())
    }

    unsafe fn stream_capture_status(&self, _: u32, stream: RawStream) -> DriverResult<CaptureStatus> {
        self.queue(stream.0, Call::StreamCaptureStatus, WorkSet::default())?;
        let captures = self.log().capturing.contains_key(&stream.0);
        Ok(if captures { CaptureStatus::Active } else { CaptureStatus::None })
    }

    unsafe fn stream_capture_id(&self, _: u32, stream: RawStream) -> DriverResult<Option<CaptureId>> {
        self.queue(stream.0, Call::StreamCaptureId, WorkSet::default())?;
        let number = self.log().capturing.get(&stream.0).copied();
        Ok(number.map(|number| CaptureId { number, graph: RawGraph(number) }))
    }

    // No handle is given out twice, so that it is the number.
    unsafe fn stream_id(&self, _: u32, stream: RawStream) -> DriverResult<u64> {
        self.queue(stream.0, Call::StreamId, WorkSet::default())?;
        Ok(stream.0)
    }

    unsafe fn stream_context_device(&self, stream: RawStream) -> DriverResult<Option<u32>> {
        self.queue(stream.0, Call::StreamContext, WorkSet::default())?;
        Ok(Some(0))
    }

    fn event_create(&self, _: u32) -> DriverResult<RawEvent> {
        Ok(RawEvent(self.create()))
    }

    unsafe fn event_destroy(&self, _: u32, event: RawEvent) -> DriverResult<()> {
        self.destroy(event.0, Call::EventDestroy)
    }

    unsafe fn event_record(&self, _: u32, event: RawEvent, stream: RawStream) -> DriverResult<()> {
        let fails = self
            .failing_records
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if fails.is_ok() {
            return Err(DriverError::new(Call::EventRecord, Code::OUT_OF_MEMORY));
        }
        let before = self.queue(stream.0, Call::EventRecord, WorkSet::default())?;
        let earlier = self.point(event.0).swap(before.0, Ordering::Relaxed);
        self.unless_ended(earlier, event.0, Call::EventRecord)?;
        Ok(())
    }

    unsafe fn event_query(&self, _: u32, event: RawEvent) -> DriverResult<bool> {
        Ok(self.is_over(self.recorded(event.0, Call::EventQuery)?))
    }

    unsafe fn event_synchronize(&self, _: u32, event: RawEvent) -> DriverResult<()> {
        self.wait(self.recorded(event.0, Call::EventSynchronize)?);
        Ok(())
    }

    fn allocate_pinned(&self, _: u32, bytes: usize, _: PinnedFlags) -> DriverResult<NonNull<u8>> {
        let mut words = vec![0_u64; bytes.div_ceil(8) + PAGE / 8].into_boxed_slice();
        let first = words.as_mut_ptr().cast::<u8>();
        let start = NonNull::new(first.wrapping_add(first.align_offset(PAGE))).expect("it is within a box");
        start.as_ptr().expose_provenance();
        self.log().pinned.insert(start.as_ptr().addr(), words);
        Ok(start)
    }

    unsafe fn free_pinned(&self, _: u32, start: NonNull<u8>) -> DriverResult<()> {
        let freed = self.log().pinned.remove(&start.as_ptr().addr());
        if freed.is_none() {
            self.log().mistakes.push("pinned memory was freed that is not there".to_owned());
        }
        Ok(())
    }

    // What moves bytes is done when it is submitted: the models that do have memory behind their addresses, and no work that may
    // come late.

    unsafe fn copy_async(&self, _: u32, to: u64, from: u64, bytes: usize, _: RawStream) -> DriverResult<()> {
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
        let from = std::ptr::with_exposed_provenance::<u8>(from as usize);
        // SAFETY: both ranges are live, and nobody else uses them: the caller's promise.
        unsafe { std::ptr::copy(from, to, bytes) };
        Ok(())
    }

    unsafe fn fill_async(
        &self,
        _: u32,
        address: u64,
        value: FillValue,
        count: usize,
        _: RawStream,
    ) -> DriverResult<()> {
        let FillValue::U8(byte) = value else {
            return Err(DriverError::new(Call::FillAsync, Code::NOT_SUPPORTED));
        };
        let first = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: the range is live, and nobody else uses it: the caller's promise.
        unsafe { std::ptr::write_bytes(first, byte, count) };
        Ok(())
    }

    // Memory of a device is not modelled.

    fn allocate_device(&self, _: u32, _: usize) -> DriverResult<u64> {
        Err(DriverError::new(Call::AllocateDevice, Code::NOT_SUPPORTED))
    }

    unsafe fn free_device(&self, _: u32, _: u64) -> DriverResult<()> {
        Err(DriverError::new(Call::FreeDevice, Code::NOT_SUPPORTED))
    }
}
