//! Each kind of mistake is reported, and its repaired twin is not.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the tests break the seam's contract on purpose, in ways whose outcome the simulator defines"
)]

use core::ptr::NonNull;
use std::sync::Arc;

use alluvion::driver::{
    Call, Code, Driver, FillValue, HandleType, Location, MapAccess, PinnedFlags, PoolKind, RawEvent, RawPool,
    RawStream, StreamFlags,
};
use alluvion::sim::{HazardKind, Kernel, SimConfig, SimDriver};

const BYTES: usize = 4096;

/// A machine with a buffer and two independent streams.
struct Rig {
    driver: Arc<SimDriver>,
    buffer: u64,
    a: RawStream,
    b: RawStream,
    event: RawEvent,
    pool: RawPool,
}

impl Rig {
    fn new() -> Self {
        let driver = SimDriver::new(SimConfig::default().devices(2));
        let stream = || driver.stream_create(0, StreamFlags::default()).unwrap();
        Self {
            buffer: driver.allocate_device(0, BYTES).unwrap(),
            a: stream(),
            b: stream(),
            event: driver.event_create(0).unwrap(),
            pool: driver.pool_default(0, PoolKind::Device).unwrap(),
            driver,
        }
    }

    fn write(&self, stream: RawStream, address: u64, bytes: usize) {
        unsafe { self.driver.launch(0, stream, Kernel::new("writer").writes(address, bytes)) }.unwrap();
    }

    fn read(&self, stream: RawStream, address: u64, bytes: usize) {
        unsafe { self.driver.launch(0, stream, Kernel::new("reader").reads(address, bytes)) }.unwrap();
    }

    /// Orders what comes next on `after` behind what is on `before`.
    fn edge(&self, before: RawStream, after: RawStream) {
        unsafe {
            self.driver.event_record(0, self.event, before).unwrap();
            self.driver.stream_wait_event(0, after, self.event).unwrap();
        }
    }

    fn synchronize(&self, stream: RawStream) {
        unsafe { self.driver.stream_synchronize(0, stream) }.unwrap();
    }

    fn kinds(&self) -> Vec<HazardKind> {
        self.driver.take_hazards().iter().map(|hazard| hazard.kind()).collect()
    }

    fn expect(&self, kinds: &[HazardKind]) {
        assert_eq!(self.kinds(), kinds);
    }
}

#[test]
fn two_unordered_writes_race_and_the_hazard_names_both() {
    let rig = Rig::new();
    rig.write(rig.a, rig.buffer, 100);
    rig.write(rig.b, rig.buffer + 50, 100);
    let hazards = rig.driver.take_hazards();
    let [hazard] = &hazards[..] else { panic!("{hazards:?}") };
    assert_eq!(hazard.kind(), HazardKind::Race);
    let (first, second) = (hazard.first().unwrap(), hazard.second().unwrap());
    assert_eq!((first.operation(), first.address(), first.bytes()), ("writer", rig.buffer, 100));
    assert_eq!((second.address(), second.submission()), (rig.buffer + 50, first.submission() + 1));
    let id = |stream| unsafe { rig.driver.stream_id(0, stream) }.unwrap();
    let words = hazard.to_string();
    let expected = format!(
        "stream {} of gpu 0 never waited for an event recorded on stream {} of gpu 0 after #1",
        id(rig.b),
        id(rig.a)
    );
    assert!(words.contains(&expected), "{words}");
    assert!(!words.contains('\n'));
}

#[test]
fn a_race_is_found_although_the_work_happened_to_run_in_order() {
    let rig = Rig::new();
    rig.write(rig.a, rig.buffer, 100);
    // The first write has run, but nobody has been told.
    while !unsafe { rig.driver.stream_query(0, rig.b) }.unwrap() {}
    rig.read(rig.b, rig.buffer, 1);
    rig.expect(&[HazardKind::Race]);
}

#[test]
fn a_write_after_a_read_races_too() {
    let rig = Rig::new();
    rig.read(rig.a, rig.buffer, 100);
    rig.read(rig.b, rig.buffer, 100);
    rig.expect(&[]);
    rig.write(rig.b, rig.buffer, 100);
    rig.expect(&[HazardKind::Race]);
}

#[test]
fn an_event_orders() {
    let rig = Rig::new();
    rig.write(rig.a, rig.buffer, 100);
    rig.edge(rig.a, rig.b);
    rig.write(rig.b, rig.buffer, 100);
    rig.expect(&[]);
}

#[test]
fn an_event_covers_only_what_was_there_when_it_was_recorded() {
    let rig = Rig::new();
    unsafe { rig.driver.event_record(0, rig.event, rig.a) }.unwrap();
    rig.write(rig.a, rig.buffer, 100);
    unsafe { rig.driver.stream_wait_event(0, rig.b, rig.event) }.unwrap();
    rig.read(rig.b, rig.buffer, 100);
    rig.expect(&[HazardKind::Race]);
}

#[test]
fn order_is_inherited_through_a_third_stream() {
    let rig = Rig::new();
    let c = rig.driver.stream_create(0, StreamFlags::default()).unwrap();
    rig.write(rig.a, rig.buffer, 100);
    rig.edge(rig.a, rig.b);
    rig.edge(rig.b, c);
    rig.write(c, rig.buffer, 100);
    rig.expect(&[]);
}

#[test]
fn the_host_orders_what_it_has_waited_for() {
    for wait in 0..4 {
        let rig = Rig::new();
        rig.write(rig.a, rig.buffer, 100);
        unsafe { rig.driver.event_record(0, rig.event, rig.a) }.unwrap();
        match wait {
            0 => rig.synchronize(rig.a),
            1 => unsafe { rig.driver.event_synchronize(0, rig.event) }.unwrap(),
            2 => rig.driver.context_synchronize(0).unwrap(),
            _ => while !unsafe { rig.driver.event_query(0, rig.event) }.unwrap() {},
        }
        rig.write(rig.b, rig.buffer, 100);
        rig.expect(&[]);
    }
}

#[test]
fn the_legacy_stream_orders_blocking_streams_only() {
    let rig = Rig::new();
    let blocking =
        rig.driver.stream_create(0, StreamFlags { blocking: true, ..StreamFlags::default() }).unwrap();
    rig.write(blocking, rig.buffer, 8);
    rig.write(RawStream::LEGACY, rig.buffer, 8);
    rig.write(RawStream::PER_THREAD, rig.buffer, 8);
    rig.write(blocking, rig.buffer + 8, 8);
    rig.write(RawStream::LEGACY, rig.buffer + 8, 8);
    rig.expect(&[]);
    rig.write(rig.a, rig.buffer, 8);
    rig.expect(&[HazardKind::Race]);
}

#[test]
fn per_thread_streams_are_one_per_thread() {
    let rig = Rig::new();
    rig.write(RawStream::PER_THREAD, rig.buffer, 8);
    rig.write(RawStream::PER_THREAD, rig.buffer, 8);
    rig.expect(&[]);
    std::thread::scope(|scope| {
        scope.spawn(|| rig.write(RawStream::PER_THREAD, rig.buffer, 8));
    });
    rig.expect(&[HazardKind::Race]);
}

#[test]
fn copies_race_on_memory_of_the_host() {
    let rig = Rig::new();
    let mut host = vec![0_u8; 64];
    let host = host.as_mut_ptr().expose_provenance() as u64;
    unsafe {
        rig.driver.copy_async(0, rig.buffer, host, 64, rig.a).unwrap();
        rig.driver.copy_async(0, rig.buffer + 64, host, 64, rig.b).unwrap();
        rig.expect(&[]);
        rig.driver.copy_async(0, host, rig.buffer + 128, 64, rig.b).unwrap();
        rig.expect(&[HazardKind::Race]);
    }
    rig.driver.context_synchronize(0).unwrap();
}

#[test]
fn stream_ordered_memory_is_ready_behind_its_allocation() {
    let rig = Rig::new();
    let block = unsafe { rig.driver.allocate_async(0, BYTES, rig.pool, rig.a) }.unwrap();
    rig.write(rig.a, block, BYTES);
    rig.expect(&[]);
    let other = unsafe { rig.driver.allocate_async(0, BYTES, rig.pool, rig.a) }.unwrap();
    rig.write(rig.b, other, BYTES);
    rig.expect(&[HazardKind::UseBeforeReady]);
    rig.edge(rig.a, rig.b);
    rig.read(rig.b, block, BYTES);
    rig.expect(&[]);
}

#[test]
fn stream_ordered_memory_is_gone_behind_its_free() {
    let rig = Rig::new();
    let block = unsafe { rig.driver.allocate_async(0, BYTES, rig.pool, rig.a) }.unwrap();
    rig.write(rig.a, block, BYTES);
    unsafe { rig.driver.free_async(0, block, rig.a) }.unwrap();
    rig.expect(&[]);
    rig.read(rig.a, block, BYTES);
    let hazards = rig.driver.take_hazards();
    assert_eq!(hazards[0].kind(), HazardKind::UseAfterFree);
    assert_eq!(hazards[0].first().unwrap().operation(), Call::FreeAsync.symbol());
}

#[test]
fn a_stream_ordered_free_comes_after_every_use() {
    let rig = Rig::new();
    let free = |ordered: bool| unsafe {
        let block = rig.driver.allocate_async(0, BYTES, rig.pool, rig.a).unwrap();
        rig.edge(rig.a, rig.b);
        rig.read(rig.b, block, BYTES);
        if ordered {
            rig.edge(rig.b, rig.a);
        }
        rig.driver.free_async(0, block, rig.a).unwrap();
        rig.kinds()
    };
    assert_eq!(free(true), []);
    assert_eq!(free(false), [HazardKind::FreeInUse]);
}

#[test]
fn reused_memory_of_a_pool_starts_afresh() {
    let rig = Rig::new();
    let first = unsafe { rig.driver.allocate_async(0, BYTES, rig.pool, rig.a) }.unwrap();
    rig.write(rig.a, first, BYTES);
    unsafe { rig.driver.free_async(0, first, rig.a) }.unwrap();
    rig.edge(rig.a, rig.b);
    let second = unsafe { rig.driver.allocate_async(0, BYTES, rig.pool, rig.b) }.unwrap();
    assert_eq!(first, second);
    rig.write(rig.b, second, BYTES);
    rig.expect(&[]);
}

#[test]
fn device_memory_is_gone_after_its_free() {
    let rig = Rig::new();
    rig.write(rig.a, rig.buffer, 8);
    unsafe { rig.driver.free_device(0, rig.buffer) }.unwrap();
    rig.expect(&[]);
    rig.write(rig.a, rig.buffer, 8);
    let fill = unsafe { rig.driver.fill_async(0, rig.buffer, FillValue::U8(0), 8, rig.a) };
    assert_eq!(fill.unwrap_err().code, Code::INVALID_VALUE);
    rig.expect(&[HazardKind::UseAfterFree, HazardKind::UseAfterFree]);
}

#[test]
fn accesses_stay_in_their_allocation() {
    let rig = Rig::new();
    let small = rig.driver.allocate_device(0, 100).unwrap();
    rig.write(rig.a, small, 100);
    rig.write(rig.a, small + 99, 1);
    rig.expect(&[]);
    rig.write(rig.a, small, 101);
    let hazards = rig.driver.take_hazards();
    assert_eq!(hazards[0].kind(), HazardKind::OutOfBounds);
    assert!(hazards[0].missing().contains("1 bytes behind the end"), "{}", hazards[0]);
    let over = unsafe { rig.driver.fill_async(0, small, FillValue::U8(0), 513, rig.a) };
    assert_eq!(over.unwrap_err().code, Code::INVALID_VALUE);
    rig.write(rig.a, 1 << 48, 1);
    rig.expect(&[HazardKind::OutOfBounds, HazardKind::OutOfBounds]);
}

#[test]
fn a_block_of_a_pool_ends_where_its_neighbour_begins() {
    let rig = Rig::new();
    let block = unsafe { rig.driver.allocate_async(0, 512, rig.pool, rig.a) }.unwrap();
    let next = unsafe { rig.driver.allocate_async(0, 512, rig.pool, rig.a) }.unwrap();
    assert_eq!(next, block + 512);
    rig.write(rig.a, block, 1024);
    rig.expect(&[HazardKind::OutOfBounds]);
}

#[test]
fn a_kernel_reaches_its_own_device_only() {
    let rig = Rig::new();
    let there = rig.driver.allocate_device(1, 8).unwrap();
    rig.write(rig.a, there, 8);
    rig.expect(&[HazardKind::NoAccess]);
    unsafe { rig.driver.copy_async(0, rig.buffer, there, 8, rig.a) }.unwrap();
    rig.expect(&[]);
}

#[test]
fn mapped_memory_is_for_whom_it_was_opened() {
    let rig = Rig::new();
    let unit = 2 << 20;
    let address = rig.driver.virtual_reserve(0, unit, 0).unwrap();
    rig.write(rig.a, address, 8);
    rig.expect(&[HazardKind::OutOfBounds]);
    let memory = rig.driver.memory_create(0, unit, HandleType::NONE).unwrap();
    let open = |access| unsafe {
        rig.driver.memory_set_access(0, address, unit, Location::Device(0), access).unwrap();
    };
    unsafe { rig.driver.memory_map(0, address, unit, memory) }.unwrap();
    rig.write(rig.a, address, 8);
    open(MapAccess::Read);
    rig.write(rig.a, address, 8);
    rig.expect(&[HazardKind::NoAccess, HazardKind::NoAccess]);
    open(MapAccess::ReadWrite);
    rig.write(rig.a, address, 8);
    rig.expect(&[]);
    unsafe { rig.driver.memory_unmap(0, address, unit) }.unwrap();
    rig.expect(&[HazardKind::FreeInUse]);
    rig.read(rig.a, address, 8);
    rig.expect(&[HazardKind::UseAfterFree]);
}

#[test]
fn unmapping_what_the_host_has_waited_for_is_fine() {
    let rig = Rig::new();
    let unit = 2 << 20;
    let address = rig.driver.virtual_reserve(0, unit, 0).unwrap();
    let memory = rig.driver.memory_create(0, unit, HandleType::NONE).unwrap();
    unsafe {
        rig.driver.memory_map(0, address, unit, memory).unwrap();
        rig.driver.memory_set_access(0, address, unit, Location::Device(0), MapAccess::ReadWrite).unwrap();
        rig.write(rig.a, address, 8);
        rig.synchronize(rig.a);
        rig.driver.memory_unmap(0, address, unit).unwrap();
    }
    rig.expect(&[]);
}

#[test]
fn unregistering_waits_for_nothing() {
    for waits in [true, false] {
        let rig = Rig::new();
        let mut pages = vec![0_u8; 8192];
        let pointer = NonNull::new(pages.as_mut_ptr()).unwrap();
        let address = pointer.as_ptr().expose_provenance() as u64;
        unsafe {
            rig.driver.register_host(0, pointer, 8192, PinnedFlags::default()).unwrap();
            rig.driver.copy_async(0, rig.buffer, address, 64, rig.a).unwrap();
            if waits {
                rig.synchronize(rig.a);
            }
            rig.driver.unregister_host(0, pointer).unwrap();
        }
        rig.expect(if waits { &[] } else { &[HazardKind::FreeInUse] });
    }
}

#[test]
fn a_free_waits_for_its_own_device_only() {
    let rig = Rig::new();
    let pinned = rig.driver.allocate_pinned(0, 64, PinnedFlags::default()).unwrap();
    let other = rig.driver.allocate_device(1, 64).unwrap();
    let there = rig.driver.stream_create(1, StreamFlags::default()).unwrap();
    unsafe {
        rig.driver.copy_async(1, other, pinned.as_ptr().expose_provenance() as u64, 64, there).unwrap();
        rig.driver.free_pinned(0, pinned).unwrap();
    }
    rig.expect(&[HazardKind::FreeInUse]);
}

#[test]
fn memory_is_freed_once_and_by_the_right_call() {
    let rig = Rig::new();
    let block = unsafe { rig.driver.allocate_async(0, BYTES, rig.pool, rig.a) }.unwrap();
    let code = |outcome: alluvion::driver::DriverResult<()>| outcome.unwrap_err().code;
    unsafe {
        assert_eq!(code(rig.driver.free_device(0, block)), Code::INVALID_VALUE);
        assert_eq!(code(rig.driver.free_device(0, rig.buffer + 512)), Code::INVALID_VALUE);
        assert_eq!(code(rig.driver.free_device(1, rig.buffer)), Code::INVALID_VALUE);
        assert_eq!(code(rig.driver.free_device(0, 4096)), Code::INVALID_VALUE);
        rig.expect(&[HazardKind::InvalidFree; 4]);
        rig.driver.free_device(0, rig.buffer).unwrap();
        rig.driver.free_async(0, block, rig.a).unwrap();
        rig.expect(&[]);
        assert_eq!(code(rig.driver.free_device(0, rig.buffer)), Code::INVALID_VALUE);
        assert_eq!(code(rig.driver.free_async(0, block, rig.a)), Code::INVALID_VALUE);
        rig.expect(&[HazardKind::DoubleFree; 2]);
    }
}

#[test]
fn handles_are_used_while_they_live_and_where_they_belong() {
    let rig = Rig::new();
    unsafe {
        assert_eq!(rig.driver.event_record(1, rig.event, rig.a).unwrap_err().code, Code::INVALID_HANDLE);
        rig.driver.stream_destroy(0, rig.a).unwrap();
        assert_eq!(rig.driver.stream_synchronize(0, rig.a).unwrap_err().code, Code::INVALID_HANDLE);
        rig.driver.event_destroy(0, rig.event).unwrap();
        assert_eq!(rig.driver.event_query(0, rig.event).unwrap_err().code, Code::INVALID_HANDLE);
        assert!(rig.driver.pool_trim(0, RawPool(3), 0).is_err());
    }
    rig.expect(&[HazardKind::StaleHandle; 4]);
}

#[test]
fn a_kernel_that_touches_what_is_not_there_loses_the_context() {
    let rig = Rig::new();
    let wild = rig.buffer + (1 << 30);
    let kernel = Kernel::new("wild").writes(wild, 4).run(move |memory| memory.write(wild, &[0; 4]));
    unsafe { rig.driver.launch(0, rig.a, kernel) }.unwrap();
    rig.expect(&[HazardKind::OutOfBounds]);
    let error = unsafe { rig.driver.stream_synchronize(0, rig.a) }.unwrap_err();
    assert_eq!(error.code, Code::ILLEGAL_ADDRESS);
    assert_eq!(rig.driver.allocate_device(0, 8).unwrap_err().code, Code::ILLEGAL_ADDRESS);
    assert!(rig.driver.allocate_device(1, 8).is_ok(), "the other device lives on");
}

#[test]
fn a_callback_must_not_call_the_driver() {
    let rig = Rig::new();
    let driver = Arc::clone(&rig.driver);
    let kernel = Kernel::new("caller").run(move |_| {
        assert_eq!(driver.context_synchronize(0).unwrap_err().code, Code::NOT_PERMITTED);
        assert_eq!(driver.live().streams, 2, "but it may look");
    });
    unsafe { rig.driver.launch(0, rig.a, kernel) }.unwrap();
    rig.synchronize(rig.a);
    rig.expect(&[HazardKind::CallFromCallback]);
}

#[test]
fn a_panic_in_a_kernel_is_a_launch_that_failed() {
    let rig = Rig::new();
    let kernel = Kernel::new("bad").run(|_| panic!("the sum is {}", 7));
    unsafe { rig.driver.launch(0, rig.a, kernel) }.unwrap();
    assert_eq!(rig.driver.context_synchronize(0).unwrap_err().code, Code::LAUNCH_FAILED);
    let hazards = rig.driver.take_hazards();
    assert_eq!(hazards[0].kind(), HazardKind::Panic);
    assert!(hazards[0].to_string().contains("`bad`") && hazards[0].to_string().contains("the sum is 7"));
}
