//! The contract of `Driver` on a real GPU, and what only a real one can show.

#![expect(unsafe_code, reason = "calls the driver, and moves contexts as an application does")]

use std::sync::Arc;
use std::sync::mpsc::channel;

use alluvion::Machine;
use alluvion::driver::{Code, Driver};
use cudarc::driver::{result, sys};

use crate::driver_contract;
use crate::driver_contract::rig::{GPU, TestEvent, TestStream};
use crate::own_context::own_context;

/// The driver of this machine. That there is none is a failure.
fn gpu() -> Arc<dyn Driver> {
    Arc::clone(Machine::of_environment().expect("these tests need a GPU").driver())
}

fn on_gpu(clause: fn(&dyn Driver)) {
    clause(&*gpu());
}

driver_contract::clauses!(on_gpu, on_gpu);

#[test]
fn the_driver_introduces_itself() {
    let driver = gpu();
    let (name, version) = (driver.device_name(GPU).expect("it is there"), driver.version());
    println!("{name}, {} {}.{}", driver.name(), version / 1000, version % 1000 / 10);
}

#[test]
fn a_stalled_stream_is_not_done() {
    let driver = gpu();
    let (stream, event) = (TestStream::new(&*driver), TestEvent::new(&*driver));
    let (let_go, gone) = channel::<()>();
    // An error says that it was let go of.
    stream.call(move || {
        let _ = gone.recv();
    });
    event.record(&stream);
    assert_eq!((event.query(), stream.query()), (Ok(false), Ok(false)));
    drop(let_go);
    assert_eq!(stream.synchronize(), Ok(()));
    assert_eq!((event.query(), stream.query()), (Ok(true), Ok(true)));
}

#[test]
fn what_was_current_is_current_again() {
    let driver = gpu();
    let current = || result::ctx::get_current().expect("it can be asked for");
    let calls = |driver: &dyn Driver| {
        drop(TestStream::new(driver));
        assert!(driver.memory_info(GPU).is_ok());
        let refused = driver.allocate_device(GPU, 1 << 50).map_err(|error| error.code);
        assert_eq!(refused, Err(Code::OUT_OF_MEMORY));
        assert!(driver.device_name(u32::MAX).is_err());
    };
    std::thread::spawn(move || {
        // Nothing is current on a new thread.
        assert_eq!(current(), None);
        calls(&*driver);
        assert_eq!(current(), None);
        // The primary context, made current by somebody else.
        let device = result::device::get(GPU as i32).expect("it is there");
        // SAFETY: the device came from the driver.
        let primary = unsafe { result::primary_ctx::retain(device) }.expect("it has a context");
        // SAFETY: the context is retained.
        unsafe { result::ctx::set_current(primary) }.expect("it can be current");
        calls(&*driver);
        assert_eq!(current(), Some(primary));
        // A context of somebody's own.
        let (_, stranger) = own_context();
        assert_eq!(current(), Some(stranger));
        calls(&*driver);
        assert_eq!(current(), Some(stranger));
        // SAFETY: the context was made above and nothing uses it.
        assert_eq!(unsafe { sys::cuCtxDestroy_v2(stranger) }, sys::CUresult::CUDA_SUCCESS);
        // SAFETY: it was retained above; the driver under test holds it once more.
        unsafe { result::primary_ctx::release(device) }.expect("it is held");
    })
    .join()
    .expect("the contexts are as they were");
}
