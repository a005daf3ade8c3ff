//! The device that is current on a thread.

use std::thread;

use alluvion::driver::{Code, Driver};

use super::rig::{GPU, Memory, PEBIBYTE, TestStream, code};
use super::speaks_cuda;

/// What is current on a new thread: nothing, or device 0 where a library has no contexts, and a current device instead.
fn at_first(driver: &dyn Driver) -> Option<u32> {
    if speaks_cuda(driver) { None } else { Some(0) }
}

/// Runs `body` on a thread where nothing is current yet.
fn on_a_new_thread(body: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(body);
    });
}

pub(crate) fn each_thread_has_a_current_device(driver: &dyn Driver) {
    let last = driver.device_count().expect("it knows") - 1;
    on_a_new_thread(|| {
        assert_eq!(driver.context_device(), Ok(at_first(driver)));
        assert_eq!(driver.set_context(GPU), Ok(()));
        assert_eq!(driver.context_device(), Ok(Some(GPU)));
        on_a_new_thread(|| {
            assert_eq!(driver.context_device(), Ok(at_first(driver)), "it is the other thread's");
            assert_eq!(driver.set_context(last), Ok(()));
        });
        assert_eq!(driver.context_device(), Ok(Some(GPU)));
        // The one that is set replaces the one before; one that cannot be set does not.
        assert_eq!(driver.set_context(last), Ok(()));
        assert_eq!(driver.set_context(last), Ok(()));
        assert_eq!(code(driver.set_context(last + 1)), Err(Code::INVALID_DEVICE));
        assert_eq!(driver.context_device(), Ok(Some(last)));
    });
}

pub(crate) fn a_context_is_made_current_where_none_is(driver: &dyn Driver) {
    let last = driver.device_count().expect("it knows") - 1;
    on_a_new_thread(|| {
        assert_eq!(driver.ensure_context(), Ok(()));
        assert_eq!(driver.context_device(), Ok(Some(GPU)));
        on_a_new_thread(|| {
            assert_eq!(driver.context_device(), Ok(at_first(driver)), "it is the other thread's");
        });
        assert_eq!(driver.set_context(last), Ok(()));
        assert_eq!(driver.ensure_context(), Ok(()));
        assert_eq!(driver.context_device(), Ok(Some(last)), "one that is current stays");
    });
}

pub(crate) fn code_of_others_runs_with_a_current_device(driver: &dyn Driver) {
    let last = driver.device_count().expect("it knows") - 1;
    let seen = |ordinal| {
        let mut seen = None;
        driver.in_context(ordinal, &mut || seen = Some(driver.context_device())).map(|()| seen)
    };
    on_a_new_thread(|| {
        assert_eq!(seen(last), Ok(Some(Ok(Some(last)))));
        assert_eq!(driver.context_device(), Ok(at_first(driver)));
        assert_eq!(driver.set_context(GPU), Ok(()));
        assert_eq!(seen(last), Ok(Some(Ok(Some(last)))));
        assert_eq!(seen(GPU), Ok(Some(Ok(Some(GPU)))));
        let mut is_called = false;
        let refused = driver.in_context(last + 1, &mut || is_called = true);
        assert_eq!((code(refused), is_called), (Err(Code::INVALID_DEVICE), false));
        assert_eq!(driver.context_device(), Ok(Some(GPU)));
    });
}

pub(crate) fn what_a_thread_has_made_current_stays_current(driver: &dyn Driver) {
    let last = driver.device_count().expect("it knows") - 1;
    let calls = || {
        drop(TestStream::new(driver));
        let memory = Memory::new(driver, 256);
        assert!(driver.memory_info(last).is_ok());
        assert!(driver.pointer_attributes(memory.address).is_ok());
        assert!(driver.address_range(memory.address).is_ok());
        assert_eq!(code(driver.allocate_device(GPU, PEBIBYTE)), Err(Code::OUT_OF_MEMORY));
        assert!(driver.device_name(u32::MAX).is_err());
    };
    on_a_new_thread(|| {
        calls();
        assert_eq!(driver.context_device(), Ok(at_first(driver)));
        for ordinal in [GPU, last] {
            assert_eq!(driver.set_context(ordinal), Ok(()));
            calls();
            assert_eq!(driver.context_device(), Ok(Some(ordinal)));
        }
    });
}
