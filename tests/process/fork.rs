//! Processes that fork while their threads are busy.

#![expect(unsafe_code, reason = "forks, and allocates by hand")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use alluvion::testing::Bench;
use alluvion::{DevicePtr, Layout, Resource, ResourceExt, Sim, Stream};

use crate::child::{done, in_child};
use crate::wait_for_fork::wait_for_fork;

/// As many as it takes for each lock to be taken at some fork: of children that hung, every second one did.
const CHILDREN: usize = 100;

/// Threads beside the one that forks.
const THREADS: usize = 2;

/// What is used in a thread of the parent, and then in a child.
struct Users<T> {
    it: *mut T,
}

impl<T> Users<T> {
    fn get(&self) -> &T {
        // SAFETY: it came from a box that is not dropped in this process; a child, which drops it, has one thread.
        unsafe { &*self.it }
    }
}

// SAFETY: it lends out what may be shared.
unsafe impl<T: Sync> Send for Users<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Users<T> {}

/// Forks while two threads `use_it`; each child uses it too, told that it is one, and drops it.
pub(crate) fn busy_threads<T: Send + Sync>(
    test: &str,
    make: impl FnOnce(&Sim) -> T,
    use_it: impl Fn(&T, bool) + Sync,
) {
    in_child(test, 1, || {
        let sim = Box::leak(Box::new(Sim::with_config(Bench::config())));
        let users = Users { it: Box::into_raw(Box::new(make(sim))) };
        let (users, is_over, begun) = (&users, AtomicBool::new(false), Barrier::new(THREADS + 1));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    use_it(users.get(), false);
                    begun.wait();
                    while !is_over.load(Ordering::Relaxed) {
                        use_it(users.get(), false);
                    }
                });
            }
            // However this ends, the threads do.
            let _end = SetWhenDropped(&is_over);
            begun.wait();
            for _ in 0..CHILDREN {
                fork(|| {
                    use_it(users.get(), true);
                    // SAFETY: it came from a box, and this process has one thread, which does not use it any more.
                    drop(unsafe { Box::from_raw(users.it) });
                });
                // Lets the others come to somewhere else, also where there is one processor.
                thread::yield_now();
            }
        });
        done();
    });
}

struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `body` in a child of a fork, which must end well, and in time.
fn fork(body: impl FnOnce()) {
    // SAFETY: the child goes on with this thread alone. It uses the C library's allocator, which survives a fork; and of this crate
    // what is tested to survive one.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        // The hook of the test program takes locks that its other threads may have.
        let outcome = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: ends the process at once. The handlers of the parent's exit are the parent's.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    wait_for_fork(child);
}

/// What each thread that uses a layer has.
struct Place {
    streams: Vec<Stream>,
    /// Blocks that the child of a fork finds allocated: one of the stream, one of the host.
    blocks: [DevicePtr; 2],
}

fn layout(bytes: usize) -> Layout {
    Layout::from_bytes(bytes).expect("the size of a test is no overflow")
}

/// Forks while two threads allocate, free and `ask`. Each child is refused all that, in time, and drops the layer.
pub(crate) fn busy_layer<R: Resource + Send + Sync>(
    test: &str,
    make: impl FnOnce(&Sim) -> R,
    ask: impl Fn(&R) + Sync,
) {
    let make_all = |sim: &Sim| {
        let resource = make(sim);
        let streams: Vec<_> = (0..4).map(|_| sim.device(0).stream().expect("a stream")).collect();
        let first = resource.allocate(layout(1000), streams[0].as_ref()).expect("there is memory");
        let second = resource.allocate_sync(layout(1000)).ok().unwrap_or(first);
        (resource, Place { streams, blocks: [first, second] })
    };
    busy_threads(test, make_all, |(resource, place), is_child| {
        if is_child {
            forked(resource, place);
        } else {
            allocate_and_free(resource, place);
        }
        ask(resource);
    });
}

fn allocate_and_free<R: Resource>(resource: &R, place: &Place) {
    for (at, stream) in place.streams.iter().enumerate() {
        let stream = stream.as_ref();
        let layouts = [256, 3000, 70_000, (1 << 20) - 4096 * at].map(layout);
        let blocks = layouts.map(|layout| resource.allocate(layout, stream).ok());
        for (block, layout) in blocks.into_iter().zip(layouts) {
            if let Some(block) = block {
                // SAFETY: the block came from there with this layout, and nothing uses it.
                unsafe { resource.deallocate(block, layout, stream) };
            }
        }
        if let Ok(block) = resource.allocate_sync(layouts[0]) {
            // SAFETY: as above.
            unsafe { resource.deallocate_sync(block, layouts[0]) };
        }
    }
    let _ = resource.trim(2 << 20);
}

fn forked<R: Resource>(resource: &R, place: &Place) {
    let (stream, layout) = (place.streams[0].as_ref(), layout(1000));
    let error = resource.allocate(layout, stream).expect_err("it is the parent's");
    assert!(error.is_shut_down(), "{error}");
    let error = resource.allocate_sync(layout).expect_err("it is the parent's");
    assert!(error.is_shut_down() || error.kind() == alluvion::ErrorKind::Unsupported, "{error}");
    let [first, second] = place.blocks;
    // SAFETY: the block came from there with this layout, and nothing uses it.
    unsafe { resource.deallocate(first, layout, stream) };
    if first != second {
        // SAFETY: as above.
        unsafe { resource.deallocate_sync(second, layout) };
    }
    assert!(resource.trim(0).is_err() || resource.upstream().is_none());
    let _ = resource.memory_info();
    assert!(!resource.describe().to_string().is_empty());
}
