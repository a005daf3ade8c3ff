//! Queued work runs when it must, in any order that the program allows and in no other.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the tests keep their ranges live, or break the contract where the simulator says what happens"
)]

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use alluvion::driver::{
    Code, Driver, FillValue, HandleType, Location, MapAccess, PoolAttribute, PoolProperties, RawPool,
    RawStream, StreamFlags,
};
use alluvion::sim::{HazardKind, Kernel, SimConfig, SimDriver};

fn machine(seed: u64) -> Arc<SimDriver> {
    SimDriver::new(SimConfig::default().seed(seed))
}

fn stream(driver: &SimDriver) -> RawStream {
    driver.stream_create(0, StreamFlags::default()).unwrap()
}

fn fill(driver: &SimDriver, stream: RawStream, address: u64, value: u8, bytes: usize) {
    unsafe { driver.fill_async(0, address, FillValue::U8(value), bytes, stream) }.unwrap();
}

fn byte(driver: &SimDriver, address: u64) -> u8 {
    let mut back = [0_u8];
    unsafe { driver.copy(0, back.as_mut_ptr().expose_provenance() as u64, address, 1) }.unwrap();
    back[0]
}

#[test]
fn nothing_runs_until_it_must() {
    let driver = machine(0);
    let stream = stream(&driver);
    let ran = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ran);
    let kernel = Kernel::new("count").run(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    unsafe { driver.launch(0, stream, kernel) }.unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    driver.context_synchronize(0).unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
}

#[test]
fn unordered_work_runs_in_both_orders_over_the_seeds() {
    let outcomes: HashSet<u8> = (0..20)
        .map(|seed| {
            let driver = machine(seed);
            let address = driver.allocate_device(0, 1).unwrap();
            let (a, b) = (stream(&driver), stream(&driver));
            fill(&driver, a, address, 1, 1);
            fill(&driver, b, address, 2, 1);
            driver.context_synchronize(0).unwrap();
            byte(&driver, address)
        })
        .collect();
    assert_eq!(outcomes, HashSet::from([1, 2]));
}

#[test]
fn a_wait_does_not_imply_what_nobody_waited_for() {
    // The consumer never waited for the producer. Some schedule must show it.
    let seen: HashSet<u8> = (0..20)
        .map(|seed| {
            let driver = machine(seed);
            let address = driver.allocate_device(0, 2).unwrap();
            fill(&driver, RawStream::LEGACY, address, 9, 2);
            driver.context_synchronize(0).unwrap();
            let (producer, consumer) = (stream(&driver), stream(&driver));
            fill(&driver, producer, address, 1, 1);
            unsafe { driver.copy_async(0, address + 1, address, 1, consumer) }.unwrap();
            unsafe { driver.stream_synchronize(0, consumer) }.unwrap();
            byte(&driver, address + 1)
        })
        .collect();
    assert_eq!(seen, HashSet::from([9, 1]));
}

#[test]
fn ordered_work_runs_in_order_under_every_seed() {
    for seed in 0..50 {
        let driver = machine(seed);
        let address = driver.allocate_device(0, 1).unwrap();
        let event = driver.event_create(0).unwrap();
        let streams = [stream(&driver), stream(&driver), stream(&driver)];
        for round in 0..9 {
            let stream = streams[round % 3];
            unsafe { driver.stream_wait_event(0, stream, event) }.unwrap();
            fill(&driver, stream, address, round as u8, 1);
            unsafe { driver.event_record(0, event, stream) }.unwrap();
        }
        unsafe { driver.event_synchronize(0, event) }.unwrap();
        assert_eq!(byte(&driver, address), 8);
        assert_eq!(driver.hazards(), []);
    }
}

#[test]
fn the_same_seed_gives_the_same_schedule() {
    let run = |seed| {
        let driver = machine(seed);
        let address = driver.allocate_device(0, 64).unwrap();
        let streams: Vec<RawStream> = (0..4).map(|_| stream(&driver)).collect();
        for round in 0..32_u8 {
            fill(&driver, streams[usize::from(round % 4)], address + u64::from(round / 2), round, 8);
        }
        driver.context_synchronize(0).unwrap();
        (0..24).map(|at| byte(&driver, address + at)).collect::<Vec<u8>>()
    };
    assert_eq!(run(5), run(5));
    assert!((0..10).any(|seed| run(seed) != run(5)));
}

#[test]
fn the_source_of_a_copy_is_read_late() {
    // Whoever changes the source of a copy that he has not waited for finds the change in the copy.
    let driver = machine(0);
    let address = driver.allocate_device(0, 4).unwrap();
    let source = driver.allocate_pinned(0, 4, alluvion::driver::PinnedFlags::default()).unwrap();
    unsafe {
        source.as_ptr().write_bytes(1, 4);
        driver
            .copy_async(0, address, source.as_ptr().expose_provenance() as u64, 4, RawStream::LEGACY)
            .unwrap();
        source.as_ptr().write_bytes(2, 4);
    }
    assert_eq!(byte(&driver, address), 2);
}

#[test]
fn a_query_is_true_in_the_end() {
    for seed in 0..20 {
        let driver = machine(seed);
        let address = driver.allocate_device(0, 1).unwrap();
        let (a, b) = (stream(&driver), stream(&driver));
        fill(&driver, a, address, 1, 1);
        fill(&driver, b, address, 2, 1);
        let mut asked = 0;
        while !unsafe { driver.stream_query(0, a) }.unwrap() {
            asked += 1;
            assert!(asked < 1000);
        }
    }
}

#[test]
fn an_event_that_was_never_recorded_is_done() {
    let driver = machine(0);
    let event = driver.event_create(0).unwrap();
    let stream = stream(&driver);
    unsafe {
        assert!(driver.event_query(0, event).unwrap());
        driver.stream_wait_event(0, stream, event).unwrap();
        assert!(driver.stream_query(0, stream).unwrap());
    }
}

#[test]
fn a_wait_stays_in_force_when_its_event_is_recorded_anew_or_destroyed() {
    for seed in 0..20 {
        let driver = machine(seed);
        let address = driver.allocate_device(0, 2).unwrap();
        let event = driver.event_create(0).unwrap();
        let (a, b) = (stream(&driver), stream(&driver));
        fill(&driver, a, address, 7, 1);
        unsafe {
            driver.event_record(0, event, a).unwrap();
            driver.stream_wait_event(0, b, event).unwrap();
            driver.event_record(0, event, b).unwrap();
            driver.event_destroy(0, event).unwrap();
            driver.copy_async(0, address + 1, address, 1, b).unwrap();
            driver.stream_synchronize(0, b).unwrap();
        }
        assert_eq!(byte(&driver, address + 1), 7);
        assert_eq!(driver.hazards(), []);
    }
}

#[test]
fn a_destroyed_stream_runs_on_and_its_handle_comes_back() {
    let driver = machine(0);
    let address = driver.allocate_device(0, 2).unwrap();
    let (first, second) = (stream(&driver), stream(&driver));
    let id = |stream| unsafe { driver.stream_id(0, stream) }.unwrap();
    let (first_id, second_id) = (id(first), id(second));
    fill(&driver, first, address, 1, 1);
    fill(&driver, second, address + 1, 2, 1);
    unsafe {
        driver.stream_destroy(0, first).unwrap();
        driver.stream_destroy(0, second).unwrap();
    }
    let third = stream(&driver);
    assert_eq!(third, second, "last in, first out");
    assert!(![first_id, second_id].contains(&id(third)));
    driver.context_synchronize(0).unwrap();
    assert_eq!((byte(&driver, address), byte(&driver, address + 1)), (1, 2));
}

#[test]
fn a_new_stream_with_an_old_handle_is_not_ordered_behind_the_old_one() {
    let outcomes: HashSet<u8> = (0..20)
        .map(|seed| {
            let driver = machine(seed);
            let address = driver.allocate_device(0, 1).unwrap();
            let old = stream(&driver);
            fill(&driver, old, address, 1, 1);
            unsafe { driver.stream_destroy(0, old) }.unwrap();
            let new = stream(&driver);
            assert_eq!(old, new);
            fill(&driver, new, address, 2, 1);
            driver.context_synchronize(0).unwrap();
            byte(&driver, address)
        })
        .collect();
    assert_eq!(outcomes, HashSet::from([1, 2]));
}

#[test]
fn a_write_that_was_queued_before_its_memory_was_unmapped_faults() {
    let driver = machine(0);
    let (unit, stream) = (2 << 20, stream(&driver));
    let address = driver.virtual_reserve(0, unit, 0).unwrap();
    let memory = driver.memory_create(0, unit, HandleType::NONE).unwrap();
    unsafe {
        driver.memory_map(0, address, unit, memory).unwrap();
        driver.memory_set_access(0, address, unit, Location::Device(0), MapAccess::ReadWrite).unwrap();
    }
    fill(&driver, stream, address, 1, 8);
    unsafe { driver.memory_unmap(0, address, unit) }.unwrap();
    let code = unsafe { driver.stream_synchronize(0, stream) }.unwrap_err().code;
    assert_eq!(code, Code::ILLEGAL_ADDRESS);
    assert_eq!(driver.memory_info(0).unwrap_err().code, Code::ILLEGAL_ADDRESS);
}

#[test]
fn freeing_device_memory_waits_for_the_device() {
    let driver = machine(0);
    let (used, other) = (driver.allocate_device(0, 8).unwrap(), driver.allocate_device(0, 8).unwrap());
    let stream = stream(&driver);
    fill(&driver, stream, used, 1, 8);
    unsafe {
        driver.free_device(0, other).unwrap();
        assert!(driver.stream_query(0, stream).unwrap());
    }
}

#[test]
fn a_stalled_host_function_stalls_its_stream_only() {
    let driver = machine(0);
    let address = driver.allocate_device(0, 2).unwrap();
    let (stalled, free) = (stream(&driver), stream(&driver));
    let (release, wait) = mpsc::channel::<()>();
    unsafe { driver.stream_host_call(0, stalled, Box::new(move || wait.recv().unwrap())) }.unwrap();
    fill(&driver, stalled, address, 1, 1);
    fill(&driver, free, address + 1, 2, 1);
    unsafe {
        driver.stream_synchronize(0, free).unwrap();
        for _ in 0..20 {
            assert!(!driver.stream_query(0, stalled).unwrap());
        }
        release.send(()).unwrap();
        driver.stream_synchronize(0, stalled).unwrap();
    }
    assert_eq!((byte(&driver, address), byte(&driver, address + 1)), (1, 2));
}

#[test]
fn a_host_function_runs_although_nobody_waits_for_it() {
    let driver = machine(0);
    let address = driver.allocate_device(0, 1).unwrap();
    let stream = stream(&driver);
    fill(&driver, stream, address, 1, 1);
    let (done, wait) = mpsc::channel();
    unsafe { driver.stream_host_call(0, stream, Box::new(move || done.send(()).unwrap())) }.unwrap();
    wait.recv_timeout(Duration::from_secs(300)).unwrap();
    // What the function told us counts as waited for.
    let other = self::stream(&driver);
    fill(&driver, other, address, 2, 1);
    assert_eq!(driver.hazards(), []);
}

#[test]
fn two_threads_wait_for_each_others_host_functions() {
    let driver = machine(0);
    let meeting = Arc::new(Barrier::new(2));
    let streams = [stream(&driver), stream(&driver)];
    for stream in streams {
        let meeting = Arc::clone(&meeting);
        let meet = Box::new(move || {
            meeting.wait();
        });
        unsafe { driver.stream_host_call(0, stream, meet) }.unwrap();
    }
    thread::scope(|scope| {
        for stream in streams {
            let driver = &driver;
            scope.spawn(move || unsafe { driver.stream_synchronize(0, stream) }.unwrap());
        }
    });
}

#[test]
fn a_lost_context_drops_what_was_queued_uncalled() {
    let driver = machine(0);
    let stream = stream(&driver);
    let witness = Arc::new(());
    let held = Arc::clone(&witness);
    let function = Box::new(move || {
        drop(held);
        panic!("it must not run");
    });
    unsafe { driver.stream_host_call(0, stream, function) }.unwrap();
    driver.poison(0, Code::LAUNCH_FAILED);
    assert_eq!(Arc::strong_count(&witness), 1);
    assert_eq!(driver.context_synchronize(0).unwrap_err().code, Code::LAUNCH_FAILED);
    assert_eq!(driver.hazards(), []);
}

fn pool(driver: &SimDriver) -> RawPool {
    driver.pool_create(0, PoolProperties::default()).unwrap()
}

fn set(driver: &SimDriver, pool: RawPool, attribute: PoolAttribute, value: u64) {
    unsafe { driver.pool_set_attribute(0, pool, attribute, value) }.unwrap();
}

fn get(driver: &SimDriver, pool: RawPool, attribute: PoolAttribute) -> u64 {
    unsafe { driver.pool_attribute(0, pool, attribute) }.unwrap()
}

fn allocate(driver: &SimDriver, bytes: usize, pool: RawPool, stream: RawStream) -> u64 {
    unsafe { driver.allocate_async(0, bytes, pool, stream) }.unwrap()
}

fn free(driver: &SimDriver, address: u64, stream: RawStream) {
    unsafe { driver.free_async(0, address, stream) }.unwrap();
}

const MIB: usize = 1 << 20;

#[test]
fn the_stream_that_freed_a_block_may_have_it_back_at_once() {
    let driver = machine(0);
    let (pool, a, b) = (pool(&driver), stream(&driver), stream(&driver));
    let block = allocate(&driver, 4096, pool, a);
    free(&driver, block, a);
    assert_ne!(allocate(&driver, 4096, pool, b), block, "not while the free is pending");
    assert_eq!(allocate(&driver, 4096, pool, a), block);
}

#[test]
fn reuse_on_another_stream_follows_the_attributes() {
    let reused = |attribute: PoolAttribute, enabled: u64, order: fn(&SimDriver, RawStream, RawStream)| {
        let driver = machine(0);
        let (pool, a, b) = (pool(&driver), stream(&driver), stream(&driver));
        for reuse in [
            PoolAttribute::ReuseFollowEventDependencies,
            PoolAttribute::ReuseAllowOpportunistic,
            PoolAttribute::ReuseAllowInternalDependencies,
        ] {
            set(&driver, pool, reuse, 0);
        }
        set(&driver, pool, attribute, enabled);
        let block = allocate(&driver, 4096, pool, a);
        free(&driver, block, a);
        order(&driver, a, b);
        let again = allocate(&driver, 4096, pool, b) == block;
        assert_eq!(driver.hazards(), []);
        again
    };
    let by_event = |driver: &SimDriver, a, b| unsafe {
        let event = driver.event_create(0).unwrap();
        driver.event_record(0, event, a).unwrap();
        driver.stream_wait_event(0, b, event).unwrap();
    };
    // The frees run because something behind them is waited for, but the host does not learn it from that.
    let by_running = |driver: &SimDriver, a, _| {
        let (done, wait) = mpsc::channel();
        let blocked = stream(driver);
        let event = driver.event_create(0).unwrap();
        unsafe {
            driver.event_record(0, event, a).unwrap();
            driver.stream_wait_event(0, blocked, event).unwrap();
            driver.stream_host_call(0, blocked, Box::new(move || done.send(()).unwrap())).unwrap();
        }
        wait.recv_timeout(Duration::from_secs(300)).unwrap();
    };
    let by_nothing = |_: &SimDriver, _, _| ();
    assert!(reused(PoolAttribute::ReuseFollowEventDependencies, 1, by_event));
    assert!(!reused(PoolAttribute::ReuseFollowEventDependencies, 0, by_event));
    assert!(reused(PoolAttribute::ReuseAllowOpportunistic, 1, by_running));
    assert!(!reused(PoolAttribute::ReuseAllowOpportunistic, 1, by_nothing));
}

#[test]
fn a_full_pool_inserts_a_wait_if_it_may() {
    for seed in 0..10 {
        let driver = SimDriver::new(SimConfig::default().memory_bytes(4 * MIB).seed(seed));
        let (pool, a, b) = (pool(&driver), stream(&driver), stream(&driver));
        let block = allocate(&driver, 4 * MIB, pool, a);
        fill(&driver, a, block, 1, 4 * MIB);
        free(&driver, block, a);
        let again = allocate(&driver, 4 * MIB, pool, b);
        assert_eq!(again, block);
        fill(&driver, b, again, 2, 4 * MIB);
        unsafe { driver.stream_synchronize(0, b) }.unwrap();
        assert!(unsafe { driver.stream_query(0, a) }.unwrap(), "the free came before");
        assert_eq!(byte(&driver, again), 2);
        assert_eq!(driver.hazards(), []);
    }
}

#[test]
fn a_full_pool_waits_for_pending_frees_before_it_fails() {
    let driver = SimDriver::new(SimConfig::default().memory_bytes(4 * MIB));
    let (pool, a, b) = (pool(&driver), stream(&driver), stream(&driver));
    set(&driver, pool, PoolAttribute::ReuseAllowInternalDependencies, 0);
    let block = allocate(&driver, 4 * MIB, pool, a);
    free(&driver, block, a);
    let again = allocate(&driver, 4 * MIB, pool, b);
    let error = unsafe { driver.allocate_async(0, 512, pool, b) }.unwrap_err();
    assert_eq!(error.code, Code::OUT_OF_MEMORY);
    free(&driver, again, b);
}

#[test]
fn the_threshold_is_what_a_synchronisation_leaves() {
    let driver = machine(0);
    let (pool, stream) = (pool(&driver), stream(&driver));
    let held = || get(&driver, pool, PoolAttribute::ReservedCurrent);
    set(&driver, pool, PoolAttribute::ReleaseThreshold, u64::MAX);
    let blocks = [allocate(&driver, 32 * MIB, pool, stream), allocate(&driver, 32 * MIB, pool, stream)];
    assert_eq!(held(), 64 << 20);
    for block in blocks {
        free(&driver, block, stream);
    }
    unsafe { driver.stream_synchronize(0, stream) }.unwrap();
    assert_eq!(held(), 64 << 20);
    set(&driver, pool, PoolAttribute::ReleaseThreshold, 32 << 20);
    unsafe { driver.stream_synchronize(0, stream) }.unwrap();
    assert_eq!(held(), 32 << 20);
    unsafe { driver.pool_trim(0, pool, 0) }.unwrap();
    assert_eq!(held(), 0);
    assert_eq!(get(&driver, pool, PoolAttribute::ReservedHigh), 64 << 20);
    set(&driver, pool, PoolAttribute::ReservedHigh, 0);
    assert_eq!(get(&driver, pool, PoolAttribute::ReservedHigh), 0);
    let error = unsafe { driver.pool_set_attribute(0, pool, PoolAttribute::UsedCurrent, 0) }.unwrap_err();
    assert_eq!(error.code, Code::INVALID_VALUE);
}

#[test]
fn a_trim_leaves_what_is_still_to_be_freed() {
    let driver = machine(0);
    let (pool, stream) = (pool(&driver), stream(&driver));
    let block = allocate(&driver, 32 * MIB, pool, stream);
    free(&driver, block, stream);
    unsafe { driver.pool_trim(0, pool, 0) }.unwrap();
    assert_eq!(get(&driver, pool, PoolAttribute::ReservedCurrent), 32 << 20);
    unsafe { driver.stream_synchronize(0, stream) }.unwrap();
    assert_eq!(get(&driver, pool, PoolAttribute::ReservedCurrent), 0);
}

#[test]
fn a_pool_stays_within_its_limit_and_outlives_its_handle() {
    let driver = machine(0);
    let stream = stream(&driver);
    let properties = PoolProperties { max_bytes: 4 << 20, ..PoolProperties::default() };
    let pool = driver.pool_create(0, properties).unwrap();
    // The limit counts whole pages of 32 MiB, as on hardware.
    let block = allocate(&driver, 32 * MIB, pool, stream);
    let error = unsafe { driver.allocate_async(0, 512, pool, stream) }.unwrap_err();
    assert_eq!(error.code, Code::OUT_OF_MEMORY);
    unsafe { driver.pool_destroy(0, pool) }.unwrap();
    fill(&driver, stream, block, 5, 4 * MIB);
    unsafe { driver.stream_synchronize(0, stream) }.unwrap();
    assert_eq!(byte(&driver, block), 5);
    free(&driver, block, stream);
    unsafe { driver.stream_synchronize(0, stream) }.unwrap();
    assert_eq!(driver.memory_info(0).unwrap().free_bytes, 256 * MIB);
    // A real driver may crash here, so it is reported.
    let hazards = driver.take_hazards();
    assert_eq!(hazards.iter().map(|hazard| hazard.kind()).collect::<Vec<_>>(), [HazardKind::FreeInUse]);
    assert!(hazards[0].to_string().contains("with memory out"), "{}", hazards[0]);
}

#[test]
fn a_new_owner_of_pool_memory_finds_junk() {
    let driver = machine(0);
    let (pool, stream) = (pool(&driver), stream(&driver));
    let block = allocate(&driver, 4096, pool, stream);
    fill(&driver, stream, block, 0, 4096);
    free(&driver, block, stream);
    assert_eq!(allocate(&driver, 4096, pool, stream), block);
    driver.context_synchronize(0).unwrap();
    assert_ne!(byte(&driver, block), 0);
}
