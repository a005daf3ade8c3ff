//! `ThreadSafe`: one thread at a time is in the upstream, and what is freed from within goes back before the outer call returns.

#![expect(unsafe_code, reason = "gives back what it allocates")]

use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use alluvion::adaptor::ThreadSafe;
use alluvion::{Device, DevicePtr, Error, Layout, Resource, ResourceExt, ResourceId, StreamRef};
use loom::cell::UnsafeCell;
use loom_tests::{Few, Seen, explore, explore_bounded, spawn};

fn layout() -> Layout {
    Layout::from_bytes(1000).expect("it is small")
}

/// What an upstream does in the middle of an allocation.
type Within = Box<dyn Fn() + Send>;

/// An upstream for one thread at a time: it counts its calls in a cell that the model watches.
struct Alone {
    few: Few,
    calls: UnsafeCell<usize>,
    within: OnceLock<Within>,
}

impl Alone {
    fn new(blocks: u64) -> Self {
        Self { few: Few::new(blocks, 0), calls: UnsafeCell::new(0), within: OnceLock::new() }
    }

    fn count(&self) {
        // SAFETY: one thread at a time is here, which is what the model watches.
        self.calls.with_mut(|calls| unsafe { *calls += 1 });
    }

    fn calls(&self) -> usize {
        // SAFETY: as above.
        self.calls.with(|calls| unsafe { *calls })
    }
}

// SAFETY: the blocks are those of another resource.
unsafe impl Resource for Alone {
    fn allocate(&self, layout: Layout, _: StreamRef<'_>) -> Result<DevicePtr, Error> {
        self.allocate_sync(layout)
    }

    unsafe fn deallocate(&self, block: DevicePtr, layout: Layout, _: StreamRef<'_>) {
        // SAFETY: the caller's promises.
        unsafe { self.deallocate_sync(block, layout) };
    }

    fn allocate_sync(&self, layout: Layout) -> Result<DevicePtr, Error> {
        self.count();
        if let Some(within) = self.within.get() {
            within();
        }
        self.few.allocate_sync(layout)
    }

    unsafe fn deallocate_sync(&self, block: DevicePtr, layout: Layout) {
        self.count();
        // SAFETY: the caller's promises.
        unsafe { self.few.deallocate_sync(block, layout) };
    }

    fn device(&self) -> &Device {
        self.few.device()
    }

    fn id(&self) -> ResourceId {
        self.few.id()
    }

    fn fmt_layer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Alone")
    }
}

fn come_and_go(resource: &impl Resource) {
    let block = resource.allocate_sync(layout()).expect("there is one for each");
    // SAFETY: the block came from there with this layout, and nothing uses it.
    unsafe { resource.deallocate_sync(block, layout()) };
}

#[test]
fn one_thread_at_a_time_is_inside() {
    explore(|| {
        let shared = Arc::new(Alone::new(2).thread_safe());
        let other = spawn({
            let shared = Arc::clone(&shared);
            move || come_and_go(&*shared)
        });
        come_and_go(&*shared);
        other.join().unwrap();
        assert_eq!(shared.look(Alone::calls).expect("nobody is inside"), 4);
        assert_eq!((shared.book().refused(), shared.book().parked()), (0, 0));
    });
}

/// A block is freed from within an allocation, while another thread allocates: it goes back once, before the outer call returns,
/// and nobody but who is inside is turned away.
#[test]
fn what_is_freed_from_within_goes_back_before_the_call_returns() {
    static SEEN: [Seen; 2] = [const { Seen::never() }; 2];
    explore_bounded(Some(3), || {
        let shared = Arc::new(Alone::new(2).thread_safe());
        let first = shared.allocate_sync(layout()).expect("there are two");
        let freed = std::sync::atomic::AtomicBool::new(false);
        let outer: Weak<ThreadSafe<Alone>> = Arc::downgrade(&shared);
        let within: Within = Box::new(move || {
            if freed.swap(true, std::sync::atomic::Ordering::Relaxed) {
                return;
            }
            let Some(shared) = outer.upgrade() else { return };
            assert!(shared.allocate_sync(layout()).is_err(), "it would wait for itself");
            // SAFETY: the block came from there with this layout, and nothing uses it.
            unsafe { shared.deallocate_sync(first, layout()) };
            assert_eq!(shared.book().waiting(), 1);
        });
        let set = shared.look(|alone| alone.within.set(within).is_ok());
        assert!(set.expect("nobody is inside"));
        let allocate =
            |shared: &ThreadSafe<Alone>| shared.allocate_sync(layout()).expect("there is one for each");
        let other = spawn({
            let shared = Arc::clone(&shared);
            move || {
                let block = allocate(&shared);
                (block == first, shared.book().waiting())
            }
        });
        let mine = allocate(&shared);
        let (is_first, waiting) = other.join().unwrap();
        SEEN[usize::from(is_first)].note(true);
        assert!(waiting == 0 && is_first != (mine == first), "what was parked went to one of the two");
        assert_eq!((shared.book().refused(), shared.book().parked()), (1, 1));
        // Four of those who came to stay, and one that came back.
        assert_eq!(shared.look(Alone::calls).expect("nobody is inside"), 4);
    });
    assert!(SEEN.iter().all(|seen| seen.times() > 0), "{SEEN:?}");
}

/// The same upstream without the layer.
struct Unlocked(Alone);

// SAFETY: it is none: two threads are inside, which is what the model is to see.
unsafe impl Sync for Unlocked {}

/// Shows that the model can see the mistake that it is there for.
#[test]
#[should_panic(expected = "Causality violation")]
fn two_threads_inside_are_caught() {
    explore(|| {
        let shared = Arc::new(Unlocked(Alone::new(2)));
        let other = spawn({
            let shared = Arc::clone(&shared);
            move || come_and_go(&shared.0)
        });
        come_and_go(&shared.0);
        other.join().unwrap();
    });
}
