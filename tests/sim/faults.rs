//! Errors on demand: injected, sticky, and the ones of a forked child.
#![cfg(feature = "sim")]
#![expect(unsafe_code, reason = "drives the driver seam by hand")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    reason = "the tests keep their ranges live, or break the contract where the simulator says what happens"
)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use alluvion::driver::{Call, CaptureMode, Code, Driver, FillValue, PinnedFlags, RawStream, StreamFlags};
use alluvion::sim::{CostModel, Fault, Kernel, SimConfig, SimDriver};

fn machine() -> Arc<SimDriver> {
    SimDriver::new(SimConfig::default().devices(2))
}

/// A program that makes one call of many kinds, and stops at the first error.
fn program(driver: &SimDriver) -> Result<(), alluvion::driver::DriverError> {
    let stream = driver.stream_create(0, StreamFlags::default())?;
    let event = driver.event_create(0)?;
    let address = driver.allocate_device(0, 64)?;
    unsafe {
        driver.fill_async(0, address, FillValue::U8(1), 64, stream)?;
        driver.event_record(0, event, stream)?;
        driver.stream_wait_event(0, stream, event)?;
        driver.stream_synchronize(0, stream)?;
        driver.free_device(0, address)?;
        driver.event_destroy(0, event)?;
        driver.stream_destroy(0, stream)
    }
}

#[test]
fn every_call_of_a_program_can_fail_and_does_nothing_then() {
    let calls = {
        let driver = machine();
        program(&driver).unwrap();
        driver.calls().total()
    };
    for n in 1..=calls {
        let driver = machine();
        driver.inject(Fault::nth_call(n, Code::UNKNOWN));
        driver.clear_faults();
        driver.inject(Fault::nth_call(n, Code::OUT_OF_MEMORY));
        assert_eq!(program(&driver).unwrap_err().code, Code::OUT_OF_MEMORY);
        assert_eq!((driver.faults_left(), driver.calls().total()), (0, n));
        assert_eq!(driver.hazards(), []);
        assert!(program(&driver).is_ok(), "the machine is as good as before");
    }
}

#[test]
fn an_allocation_that_fails_takes_nothing() {
    let driver = machine();
    let before = driver.memory_info(0).unwrap();
    driver.inject(Fault::every(Call::AllocateDevice, Code::OUT_OF_MEMORY));
    for _ in 0..3 {
        assert!(driver.allocate_device(0, 64).is_err());
    }
    assert_eq!((driver.memory_info(0).unwrap(), driver.live().is_empty()), (before, true));
}

#[test]
fn handles_are_gone_although_destroying_them_failed() {
    let driver = machine();
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    let event = driver.event_create(0).unwrap();
    driver.inject(Fault::every(Call::StreamDestroy, Code::INVALID_CONTEXT));
    driver.inject(Fault::every(Call::EventDestroy, Code::INVALID_CONTEXT));
    assert_eq!(unsafe { driver.stream_destroy(0, stream) }.unwrap_err().code, Code::INVALID_CONTEXT);
    assert_eq!(unsafe { driver.event_destroy(0, event) }.unwrap_err().code, Code::INVALID_CONTEXT);
    assert!(driver.live().is_empty());
}

#[test]
fn a_sticky_fault_loses_one_device_for_good() {
    let driver = machine();
    driver.inject(Fault::nth(Call::EventCreate, 1, Code::INVALID_VALUE).sticky());
    assert_eq!(driver.event_create(0).unwrap_err().code, Code::INVALID_VALUE);
    assert_eq!(driver.allocate_device(0, 64).unwrap_err().code, Code::INVALID_VALUE);
    assert_eq!(driver.context_synchronize(0).unwrap_err().code, Code::INVALID_VALUE);
    assert!(driver.allocate_device(1, 64).is_ok());
    assert!(
        driver.attribute(0, alluvion::driver::DeviceAttribute::PciBus).is_ok(),
        "asking for facts still works"
    );
}

#[test]
fn a_fault_with_a_sticky_code_is_sticky() {
    let driver = machine();
    driver.inject(Fault::nth(Call::EventCreate, 1, Code::LAUNCH_FAILED));
    assert!(driver.event_create(0).is_err());
    assert_eq!(driver.event_create(0).unwrap_err().code, Code::LAUNCH_FAILED);
}

#[test]
fn the_first_error_of_a_lost_context_stays() {
    let driver = machine();
    driver.poison(0, Code::ILLEGAL_ADDRESS);
    driver.poison(0, Code::LAUNCH_FAILED);
    assert_eq!(driver.memory_info(0).unwrap_err().code, Code::ILLEGAL_ADDRESS);
}

#[test]
fn whoever_waits_for_a_device_that_is_lost_is_let_go() {
    let driver = machine();
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    let (release, wait) = std::sync::mpsc::channel::<()>();
    unsafe { driver.stream_host_call(0, stream, Box::new(move || wait.recv().unwrap_or(()))) }.unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| unsafe { driver.stream_synchronize(0, stream) });
        thread::sleep(Duration::from_millis(60));
        driver.poison(0, Code::LAUNCH_FAILED);
        assert_eq!(waiter.join().unwrap().unwrap_err().code, Code::LAUNCH_FAILED);
    });
    drop(release);
}

#[test]
fn a_kernel_that_outlives_its_context_touches_nothing() {
    let driver = machine();
    let pinned = driver.allocate_pinned(0, 64, PinnedFlags::default()).unwrap();
    let address = pinned.as_ptr().expose_provenance() as u64;
    let poisoner = Arc::downgrade(&driver);
    let kernel = Kernel::new("late").writes(address, 64).run(move |memory| {
        memory.write(address, &[1; 32]);
        poisoner.upgrade().unwrap().poison(0, Code::LAUNCH_TIMEOUT);
        memory.write(address + 32, &[1; 32]);
    });
    unsafe { driver.launch(0, RawStream::LEGACY, kernel) }.unwrap();
    assert_eq!(driver.context_synchronize(0).unwrap_err().code, Code::LAUNCH_TIMEOUT);
    let bytes = unsafe { core::slice::from_raw_parts(pinned.as_ptr(), 64) };
    assert_eq!((&bytes[..32], &bytes[32..]), (&[1; 32][..], &[0; 32][..]));
}

#[test]
fn pinned_memory_is_limited_if_asked_for() {
    let driver = SimDriver::new(SimConfig::default().pinned_bytes(8192));
    let first = driver.allocate_pinned(0, 8192, PinnedFlags::default()).unwrap();
    assert_eq!(driver.allocate_managed(0, 1).unwrap_err().code, Code::OUT_OF_MEMORY);
    unsafe { driver.free_pinned(0, first) }.unwrap();
    let second = driver.allocate_managed(0, 1).unwrap();
    unsafe { driver.free_device(0, second) }.unwrap();
}

#[test]
fn the_clock_charges_what_the_model_says() {
    let driver =
        SimDriver::new(SimConfig::default().cost(CostModel::free().with(Call::AllocateDevice, 10, 4)));
    driver.event_create(0).unwrap();
    assert_eq!(driver.clock_ns(), 0);
    driver.allocate_device(0, 2 << 20).unwrap();
    assert_eq!(driver.clock_ns(), 18);
}

#[cfg(unix)]
#[test]
fn a_forked_child_is_answered_at_once() {
    let driver = machine();
    let stream = driver.stream_create(0, StreamFlags::default()).unwrap();
    // Something is running while the parent forks, on a thread that the child will not have.
    let (inside, entered) = std::sync::mpsc::channel();
    let (leave, left) = std::sync::mpsc::channel::<()>();
    unsafe {
        let function = Box::new(move || {
            inside.send(()).unwrap();
            let _ = left.recv();
        });
        driver.stream_host_call(0, stream, function).unwrap();
    }
    entered.recv().unwrap();
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_answered = driver.event_create(0).is_err_and(|error| error.code == Code::NOT_INITIALIZED)
            && unsafe { driver.stream_synchronize(0, stream) }.is_err()
            && unsafe { driver.stream_destroy(0, stream) }.is_err()
            && driver.live().is_empty()
            && driver.version() == 0;
        drop(driver);
        unsafe { libc::_exit(i32::from(!is_answered)) };
    }
    let mut status = 0;
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    leave.send(()).unwrap();
    assert_eq!(status, 0);
    assert!(driver.event_create(0).is_ok(), "the parent goes on");
}

/// Memory of the host is let go on the word that a context is lost, so whoever is told so must be able to rely on it.
#[test]
fn a_sticky_code_of_a_call_without_a_device_loses_them_all() {
    let driver = SimDriver::new(SimConfig::default().devices(2));
    driver.inject(Fault::nth(Call::CaptureMode, 1, Code::ILLEGAL_ADDRESS));
    assert_eq!(driver.exchange_capture_mode(CaptureMode::Relaxed).unwrap_err().code, Code::ILLEGAL_ADDRESS);
    for ordinal in 0..2 {
        assert_eq!(driver.context_synchronize(ordinal).unwrap_err().code, Code::ILLEGAL_ADDRESS);
    }
}
