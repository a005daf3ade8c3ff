//! What the tests hold their machine with: things that are given back when a test ends, however it ends.
//!
//! The methods are safe to call, which a driver's are not: every test waits for what it queued before it lets go of the
//! memory, and memory of a device is given back by a call that waits for the device.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use alluvion::driver::{
    Advice, CaptureId, CaptureStatus, Code, Driver, DriverResult, FillValue, HandleType, Location, MapAccess,
    PinnedFlags, PoolAttribute, PoolKind, PoolProperties, RawEvent, RawMemory, RawPool, RawStream,
    StreamFlags,
};

/// The device that everything happens on.
pub(crate) const GPU: u32 = 0;
/// More than any machine has, and no address space holds it twice.
pub(crate) const PEBIBYTE: usize = 1 << 50;
/// A page of the host, on every machine that CUDA runs on but the largest.
pub(crate) const PAGE: usize = 1 << 16;

/// How long a stalled stream is stalled: long enough to be caught at it, short enough to wait for.
const STALL: Duration = Duration::from_millis(30);

/// How a call went, to be compared.
pub(crate) fn code<T>(result: DriverResult<T>) -> Result<(), Code> {
    result.map(drop).map_err(|error| error.code)
}

/// A stream that is destroyed at the end.
pub(crate) struct TestStream<'a> {
    pub(crate) driver: &'a dyn Driver,
    pub(crate) raw: RawStream,
    owned: bool,
}

impl<'a> TestStream<'a> {
    pub(crate) fn new(driver: &'a dyn Driver) -> Self {
        Self::with(driver, StreamFlags::default())
    }

    pub(crate) fn with(driver: &'a dyn Driver, flags: StreamFlags) -> Self {
        let raw = driver.stream_create(GPU, flags).expect("a stream can be made");
        Self { driver, raw, owned: true }
    }

    /// A stream that always exists.
    pub(crate) fn default_stream(driver: &'a dyn Driver, raw: RawStream) -> Self {
        Self { driver, raw, owned: false }
    }

    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        // SAFETY: the stream is live while `self` is.
        unsafe { self.driver.stream_synchronize(GPU, self.raw) }
    }

    pub(crate) fn query(&self) -> DriverResult<bool> {
        // SAFETY: the stream is live while `self` is.
        unsafe { self.driver.stream_query(GPU, self.raw) }
    }

    pub(crate) fn wait(&self, event: &TestEvent<'_>) -> DriverResult<()> {
        // SAFETY: both are live while the references are.
        unsafe { self.driver.stream_wait_event(GPU, self.raw, event.raw) }
    }

    pub(crate) fn id(&self) -> DriverResult<u64> {
        // SAFETY: the stream is live while `self` is.
        unsafe { self.driver.stream_id(GPU, self.raw) }
    }

    pub(crate) fn capture_status(&self) -> DriverResult<CaptureStatus> {
        // SAFETY: the stream is live while `self` is.
        unsafe { self.driver.stream_capture_status(GPU, self.raw) }
    }

    pub(crate) fn capture_id(&self) -> DriverResult<Option<CaptureId>> {
        // SAFETY: the stream is live while `self` is.
        unsafe { self.driver.stream_capture_id(GPU, self.raw) }
    }

    pub(crate) fn call(&self, function: impl FnOnce() + Send + 'static) {
        // SAFETY: the stream is live while `self` is; no function of these tests unwinds.
        unsafe { self.driver.stream_host_call(GPU, self.raw, Box::new(function)) }
            .expect("a host call can be queued");
    }

    pub(crate) fn copy(&self, to: u64, from: u64, bytes: usize) -> DriverResult<()> {
        // SAFETY: see the module.
        unsafe { self.driver.copy_async(GPU, to, from, bytes, self.raw) }
    }

    pub(crate) fn fill(&self, to: u64, value: FillValue, count: usize) -> DriverResult<()> {
        // SAFETY: see the module.
        unsafe { self.driver.fill_async(GPU, to, value, count, self.raw) }
    }

    pub(crate) fn prefetch(&self, address: u64, bytes: usize, to: Location) -> DriverResult<()> {
        // SAFETY: see the module.
        unsafe { self.driver.prefetch_async(GPU, address, bytes, to, self.raw) }
    }

    /// Keeps the stream busy for a while. The function that does it waits for another thread, because some machines run
    /// it on the thread that waits for the stream.
    pub(crate) fn stall(&self) -> Stall {
        let (release, released) = channel::<()>();
        let over = Arc::new(AtomicBool::new(false));
        let sets = Arc::clone(&over);
        self.call(move || {
            // An error says that the test is over, and is as good.
            let _ = released.recv_timeout(Duration::from_secs(20));
            sets.store(true, Ordering::SeqCst);
        });
        let clock = thread::spawn(move || {
            thread::sleep(STALL);
            drop::<Sender<()>>(release);
        });
        Stall { over, clock: Some(clock) }
    }
}

impl Drop for TestStream<'_> {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `new` made it, and it is gone with `self`.
            let _ = unsafe { self.driver.stream_destroy(GPU, self.raw) };
        }
    }
}

/// Work that takes a while.
pub(crate) struct Stall {
    over: Arc<AtomicBool>,
    clock: Option<JoinHandle<()>>,
}

impl Stall {
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        if let Some(clock) = self.clock.take() {
            let _ = clock.join();
        }
    }
}

/// An event that is destroyed at the end.
pub(crate) struct TestEvent<'a> {
    driver: &'a dyn Driver,
    pub(crate) raw: RawEvent,
}

impl<'a> TestEvent<'a> {
    pub(crate) fn new(driver: &'a dyn Driver) -> Self {
        Self { driver, raw: driver.event_create(GPU).expect("an event can be made") }
    }

    /// An event that was made already. It is destroyed here.
    pub(crate) fn of(driver: &'a dyn Driver, raw: RawEvent) -> Self {
        Self { driver, raw }
    }

    pub(crate) fn record(&self, stream: &TestStream<'_>) {
        // SAFETY: both are live while the references are.
        unsafe { self.driver.event_record(GPU, self.raw, stream.raw) }.expect("an event can be recorded");
    }

    pub(crate) fn query(&self) -> DriverResult<bool> {
        // SAFETY: the event is live while `self` is.
        unsafe { self.driver.event_query(GPU, self.raw) }
    }

    pub(crate) fn synchronize(&self) -> DriverResult<()> {
        // SAFETY: the event is live while `self` is.
        unsafe { self.driver.event_synchronize(GPU, self.raw) }
    }
}

impl Drop for TestEvent<'_> {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and it is gone with `self`.
        let _ = unsafe { self.driver.event_destroy(GPU, self.raw) };
    }
}

/// Memory of the device, or managed memory.
pub(crate) struct Memory<'a> {
    driver: &'a dyn Driver,
    pub(crate) address: u64,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(driver: &'a dyn Driver, bytes: usize) -> Self {
        Self { driver, address: driver.allocate_device(GPU, bytes).expect("there is memory") }
    }

    pub(crate) fn managed(driver: &'a dyn Driver, bytes: usize) -> Self {
        Self { driver, address: driver.allocate_managed(GPU, bytes).expect("there is memory") }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: the driver made it, and it is gone with `self`.
        let _ = unsafe { self.driver.free_device(GPU, self.address) };
    }
}

/// Pinned memory of the host.
pub(crate) struct Pinned<'a> {
    driver: &'a dyn Driver,
    pub(crate) pointer: NonNull<u8>,
    bytes: usize,
}

impl<'a> Pinned<'a> {
    pub(crate) fn new(driver: &'a dyn Driver, bytes: usize) -> Self {
        let pointer =
            driver.allocate_pinned(GPU, bytes, PinnedFlags::default()).expect("there is memory to pin");
        let pinned = Self { driver, pointer, bytes };
        // SAFETY: the memory is `bytes` long and nobody else has it.
        unsafe { pointer.as_ptr().write_bytes(0, bytes) };
        pinned
    }

    pub(crate) fn address(&self) -> u64 {
        self.pointer.as_ptr().expose_provenance() as u64
    }

    /// To be read when no work that writes it is left.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `new` has written all of it; the tests read after they have waited.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }

    /// To be written when no work that touches it is left.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // SAFETY: `new` made it, and it is gone with `self`.
        let _ = unsafe { self.driver.free_pinned(GPU, self.pointer) };
    }
}

/// Whole pages of ordinary memory of the host.
pub(crate) struct Pages {
    pub(crate) pointer: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    pub(crate) fn new(pages: usize) -> Self {
        let layout = Layout::from_size_align(pages * PAGE, PAGE).expect("it is a layout");
        // SAFETY: the layout is not empty.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("there is memory");
        Self { pointer, layout }
    }

    pub(crate) fn len(&self) -> usize {
        self.layout.size()
    }

    pub(crate) fn address(&self) -> u64 {
        self.pointer.as_ptr().expose_provenance() as u64
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: it is all zeroed or written; the tests read after they have waited.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.len()) }
    }

    pub(crate) fn register(&self, driver: &dyn Driver) -> DriverResult<()> {
        // SAFETY: whole pages, which stay mapped until the test has unregistered them.
        unsafe { driver.register_host(GPU, self.pointer, self.len(), PinnedFlags::default()) }
    }

    pub(crate) fn unregister(&self, driver: &dyn Driver) -> DriverResult<()> {
        // SAFETY: the tests have waited for what touches it. Memory that is not registered is an error here, which the
        // driver finds.
        unsafe { driver.unregister_host(GPU, self.pointer) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` made it with this layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) };
    }
}

/// A memory pool. A default pool is left alone.
pub(crate) struct TestPool<'a> {
    driver: &'a dyn Driver,
    pub(crate) raw: RawPool,
    owned: bool,
}

impl<'a> TestPool<'a> {
    pub(crate) fn new(driver: &'a dyn Driver, properties: PoolProperties) -> Self {
        Self::of(driver, driver.pool_create(GPU, properties).expect("a pool can be made"))
    }

    /// A pool that was just made.
    pub(crate) fn of(driver: &'a dyn Driver, raw: RawPool) -> Self {
        Self { driver, raw, owned: true }
    }

    pub(crate) fn of_device(driver: &'a dyn Driver) -> Self {
        let raw = driver.pool_default(GPU, PoolKind::Device).expect("the device has a pool");
        Self { driver, raw, owned: false }
    }

    pub(crate) fn allocate(&self, bytes: usize, stream: &TestStream<'_>) -> DriverResult<u64> {
        // SAFETY: pool and stream are live while the references are.
        unsafe { self.driver.allocate_async(GPU, bytes, self.raw, stream.raw) }
    }

    pub(crate) fn free(&self, address: u64, stream: &TestStream<'_>) {
        // SAFETY: the tests free once what they allocated, on the stream that used it last.
        unsafe { self.driver.free_async(GPU, address, stream.raw) }.expect("memory can be freed");
    }

    pub(crate) fn get(&self, attribute: PoolAttribute) -> u64 {
        // SAFETY: the pool is live while `self` is.
        unsafe { self.driver.pool_attribute(GPU, self.raw, attribute) }.expect("it can be read")
    }

    pub(crate) fn set(&self, attribute: PoolAttribute, value: u64) -> DriverResult<()> {
        // SAFETY: the pool is live while `self` is.
        unsafe { self.driver.pool_set_attribute(GPU, self.raw, attribute, value) }
    }

    pub(crate) fn trim(&self, keep_bytes: usize) {
        // SAFETY: the pool is live while `self` is.
        unsafe { self.driver.pool_trim(GPU, self.raw, keep_bytes) }.expect("a pool can be trimmed");
    }
}

impl Drop for TestPool<'_> {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `new` made it, and it is gone with `self`.
            let _ = unsafe { self.driver.pool_destroy(GPU, self.raw) };
        }
    }
}

/// A range of reserved addresses. What is mapped there is the test's to unmap.
pub(crate) struct Reservation<'a> {
    driver: &'a dyn Driver,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

impl<'a> Reservation<'a> {
    pub(crate) fn new(driver: &'a dyn Driver, bytes: usize, align: usize) -> Self {
        let address = driver.virtual_reserve(GPU, bytes, align).expect("there are addresses");
        Self { driver, address, bytes }
    }

    pub(crate) fn map(&self, offset: usize, bytes: usize, memory: RawMemory) -> DriverResult<()> {
        // SAFETY: the tests pass live memory of that size.
        unsafe { self.driver.memory_map(GPU, self.address + offset as u64, bytes, memory) }
    }

    pub(crate) fn unmap(&self, offset: usize, bytes: usize) -> DriverResult<()> {
        // SAFETY: the tests wait before they unmap.
        unsafe { self.driver.memory_unmap(GPU, self.address + offset as u64, bytes) }
    }

    pub(crate) fn set_access(&self, offset: usize, bytes: usize, access: MapAccess) -> DriverResult<()> {
        let (address, accessor) = (self.address + offset as u64, Location::Device(GPU));
        // SAFETY: the tests wait before they take access away.
        unsafe { self.driver.memory_set_access(GPU, address, bytes, accessor, access) }
    }

    pub(crate) fn free(&self) -> DriverResult<()> {
        // SAFETY: it is one whole reservation; where something is mapped still, the driver refuses.
        unsafe { self.driver.virtual_free(GPU, self.address, self.bytes) }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let _ = self.free();
    }
}

/// Physical memory without an address.
pub(crate) fn physical(driver: &dyn Driver, bytes: usize) -> RawMemory {
    driver.memory_create(GPU, bytes, HandleType::NONE).expect("there is memory")
}

/// Lets go of physical memory.
pub(crate) fn release(driver: &dyn Driver, memory: RawMemory) {
    // SAFETY: the tests release once what `physical` made.
    unsafe { driver.memory_release(GPU, memory) }.expect("memory can be released");
}

/// Reads memory of any kind, when no work that writes it is left.
pub(crate) fn read(driver: &dyn Driver, address: u64, bytes: usize) -> Vec<u8> {
    let mut into = vec![0xEE; bytes];
    let to = into.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: both ranges are live and the tests have waited.
    unsafe { driver.copy(GPU, to, address, bytes) }.expect("it can be read");
    into
}

/// Writes memory of any kind, when no work that touches it is left.
pub(crate) fn write(driver: &dyn Driver, address: u64, from: &[u8]) {
    let from_address = from.as_ptr().expose_provenance() as u64;
    // SAFETY: both ranges are live and the tests have waited.
    unsafe { driver.copy(GPU, address, from_address, from.len()) }.expect("it can be written");
}

/// Copies and waits.
pub(crate) fn copy(driver: &dyn Driver, to: u64, from: u64, bytes: usize) -> DriverResult<()> {
    // SAFETY: both ranges are live and the tests have waited.
    unsafe { driver.copy(GPU, to, from, bytes) }
}

/// Advises on memory.
pub(crate) fn advise(driver: &dyn Driver, address: u64, bytes: usize, advice: Advice) -> DriverResult<()> {
    // SAFETY: the tests keep the memory.
    unsafe { driver.advise(GPU, address, bytes, advice) }
}

/// Bytes that do not repeat soon.
pub(crate) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|i| (i as u8).wrapping_mul(31) ^ ((i >> 8) as u8) ^ seed).collect()
}
