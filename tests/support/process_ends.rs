//! How a process ends while memory, streams and machines are in use. Each function is the body of a child process.

use std::cell::RefCell;
use std::process;
use std::sync::OnceLock;
use std::thread;

use alluvion::source::{Cuda, CudaAsync, Managed, Pinned};
use alluvion::{AnyResource, DeviceVec, Event, Layout, Machine, PinnedAlloc, Resource, Stream};

use crate::child::done;
use crate::wait_for_fork::wait_for_fork;

/// One of everything that lets go of something when it is dropped.
struct Everything {
    vectors: Vec<DeviceVec<u32>>,
    pinned: allocator_api2::vec::Vec<u8, PinnedAlloc>,
    streams: Vec<Stream>,
    event: Event,
    resources: Vec<AnyResource>,
}

fn everything(machine: &Machine) -> Everything {
    let device = machine.device(0).unwrap();
    let streams: Vec<Stream> = (0..2).map(|_| device.stream().unwrap()).collect();
    let resources = vec![
        AnyResource::new(Cuda::new(&device)),
        AnyResource::new(CudaAsync::new(&device).unwrap()),
        AnyResource::new(Managed::new(&device).unwrap()),
        AnyResource::new(Pinned::new(&device).unwrap()),
        device.current_resource().unwrap(),
    ];
    let vectors = resources
        .iter()
        .map(|resource| DeviceVec::filled_in(1000, 1, streams[0].as_ref(), resource.clone()).unwrap())
        .collect();
    let mut pinned = allocator_api2::vec::Vec::new_in(PinnedAlloc::new(&device).unwrap());
    pinned.resize(100_000, 1);
    let event = streams[0].record().unwrap();
    Everything { vectors, pinned, streams, event, resources }
}

impl Everything {
    fn use_it(&self) {
        for vector in &self.vectors {
            assert_eq!(vector.to_vec(self.streams[1].as_ref()).unwrap(), [1; 1000]);
        }
        assert_eq!(self.pinned.len(), 100_000);
        self.event.synchronize().unwrap();
        assert!(self.resources.iter().all(|resource| !resource.describe().to_string().is_empty()));
    }
}

/// A static is never dropped: the process ends over it.
pub(crate) fn keep_in_a_static(machine: &Machine) {
    static KEPT: OnceLock<Everything> = OnceLock::new();
    KEPT.get_or_init(|| everything(machine)).use_it();
    done();
}

thread_local! {
    static MINE: RefCell<Vec<Everything>> = const { RefCell::new(Vec::new()) };
}

/// The locals of a thread are dropped after its function has returned, those of this one perhaps after the process has begun
/// to end; in between, the thread's default stream goes too.
pub(crate) fn keep_in_locals(machine: &Machine) {
    let keep = || {
        let device = machine.device(0).unwrap();
        MINE.with_borrow_mut(|mine| mine.push(everything(machine)));
        // Made after `MINE`, so that it goes before.
        let own = device.per_thread_stream().unwrap();
        let vector = DeviceVec::filled(10, 2_u32, own.as_ref()).unwrap();
        assert_eq!(vector.to_vec(own.as_ref()).unwrap(), [2; 10]);
        MINE.with_borrow(|mine| mine[0].use_it());
    };
    thread::scope(|scope| scope.spawn(keep).join().unwrap());
    keep();
    done();
}

/// The process ends while another thread allocates and frees, and has no say in it.
pub(crate) fn exit_under_a_running_thread(machine: &Machine) -> ! {
    let machine = machine.clone();
    let (started, has_started) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let kept = everything(&machine);
        let stream = &kept.streams[0];
        started.send(()).unwrap();
        loop {
            for resource in &kept.resources {
                // The driver may have shut down by now: an error then, and no more.
                if let Ok(vector) = DeviceVec::filled_in(100, 3_u32, stream.as_ref(), resource.clone()) {
                    drop(vector);
                }
            }
        }
    });
    has_started.recv().unwrap();
    done();
    process::exit(0);
}

/// A child of a fork inherits memory and no driver: everything is dropped there, and nothing hangs, fails or reaches a device.
/// The parent goes on.
#[expect(unsafe_code, reason = "forks")]
pub(crate) fn fork_and_drop(machine: &Machine) {
    let kept = everything(machine);
    kept.use_it();
    // SAFETY: the child runs on this thread alone. It uses the C library's allocator, which survives a fork, and locks of this
    // crate that no other thread holds: there is none that uses it.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let stream = kept.streams[0].clone();
            let layout = Layout::from_bytes(100).unwrap();
            for resource in &kept.resources {
                let error = resource.allocate(layout, stream.as_ref()).unwrap_err();
                assert!(error.is_shut_down(), "{error}");
                let error = resource.allocate_sync(layout).unwrap_err();
                assert!(error.is_shut_down(), "{error}");
                assert!(!resource.describe().to_string().is_empty());
                let _ = resource.trim(0);
            }
            assert!(stream.synchronize().is_err());
            drop(stream);
            drop(kept);
        }));
        // SAFETY: ends the process at once. The handlers of the parent's exit are the parent's.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    wait_for_fork(child);
    kept.use_it();
    drop(kept);
    done();
}
